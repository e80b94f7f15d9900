"""Turns the best checkpoint of a run into a folder that can be a Hub repository.

The folder gets half-precision weights, the tokenizer, the modelling code, `results.json` with what the released
weights score, and a model card that states these numbers and the commands behind them.
"""

import argparse
import json
import platform
import sys
from datetime import date
from pathlib import Path

import torch
from accelerate import Accelerator
from checkpointing import replaced_folder
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from model_descriptions import ModelDescription, describe_model
from text_batches import TextLines, encode_stream
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

import onlstm_hf
from onlstm_hf.evaluation import parse_treebank, stream_log_likelihood
from onlstm_hf.files import write_json
from onlstm_hf.parsing_scores import score_baselines
from onlstm_hf.treebank import GoldTree, read_treebank

SHORT = 10
SHOWN_LABELS = ("ADJP", "ADVP", "NP", "PP", "S", "SBAR", "VP")
VALIDATION_ROWS = 10
PLACES = ("output_dir", "train_files", "validation_files", "test_files", "gold_trees")
TRAINING_COMMAND = (
    "accelerate launch training/train_lm.py training/recipes/{recipe}.yaml --train_files ptb/train.txt "
    "--validation_files ptb/valid.txt --test_files ptb/test.txt --output_dir runs/{run}"
)
RELEASE_COMMAND = (
    "python training/release.py runs/{run} model_cards/{output} --recipe {recipe} --validation_files ptb/valid.txt "
    "--test_files ptb/test.txt"
)
TREEBANK_OPTION = " --treebank wsj_sample.mrg"


def main(arguments: list[str] | None = None) -> dict:
    options = _parse_arguments(arguments)
    training = json.loads((options.run / "results.json").read_text(encoding="utf-8"))
    names = {"run": options.run.name, "output": options.output.name, "recipe": options.recipe}
    with replaced_folder(options.output, Accelerator()) as folder:
        export(options.run / "best", folder)
        model = AutoModelForCausalLM.from_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        describe_model(model.config)  # a missing description should not show after all that is measured
        treebank = _read_treebank(options.treebank, model)
        results = {
            "parameters": model.num_parameters(),
            "perplexity": {
                "validation": _perplexity(model, tokenizer, options.validation_files, VALIDATION_ROWS),
                "test": _perplexity(model, tokenizer, options.test_files, 1),
            },
            **({"parsing": _parsing(model, tokenizer, treebank)} if treebank else {}),
            "command": RELEASE_COMMAND.format(**names) + (TREEBANK_OPTION if treebank else ""),
            "training": {
                "command": TRAINING_COMMAND.format(**names),
                "note": options.note,
                **_without_paths(training),
            },
            "date": date.today().isoformat(),
            "machine": f"{platform.machine()} CPU, {torch.get_num_threads()} threads, torch {torch.__version__}",
        }
        write_json(folder / "results.json", results)
        model_card(options.output.name, model.config, results).save(folder / "README.md")
    print((options.output / "README.md").read_text(encoding="utf-8"))
    return results


def export(checkpoint: Path, folder: Path) -> None:
    """Writes half-precision weights, the tokenizer and the code. The model still loads, and computes, in float32."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).half()
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(checkpoint).save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    write_json(folder / "config.json", config | {"dtype": "float32"})


def model_card(name: str, config: PreTrainedConfig, results: dict) -> ModelCard:
    """The model card, metadata included; with a section on parsing where the results have one."""
    description = describe_model(config)
    return ModelCard.from_template(
        _metadata(name, config, description, results),
        template_path=str(Path(__file__).parent / "model_card.md"),
        name=name,
        model=description,
        millions=f"{results['parameters'] / 1e6:.1f}",
        version=onlstm_hf.__version__,
        date=results["date"],
        machine=results["machine"],
        release_command=results["command"].replace(" --", " \\\n    --"),
        training_command=results["training"]["command"].replace(" --", " \\\n    --"),
        validation_rows=VALIDATION_ROWS,
        validation=f"{results['perplexity']['validation']:.2f}",
        test=f"{results['perplexity']['test']:.2f}",
        updates=f"{results['training']['updates']:,}",
        note=results["training"]["note"],
        vocab_size=f"{config.vocab_size:,}",
        **(_parsing_section(config, results["parsing"]) if "parsing" in results else {}),
    )


def _parsing_section(config: PreTrainedConfig, parsing: dict) -> dict:
    """What the model card's section on parsing shows."""
    main_row = parsing["all"][_main_row(config)]
    recall = {label: counts["recall"] for label, counts in main_row["label_recall"].items() if label in SHOWN_LABELS}
    return {
        "main_row": _main_row(config),
        "num_sentences": f"{main_row['num_sentences']:,}",
        "short": SHORT,
        "parsing_rows": [
            {"name": row} | {part: f"{100 * parsing[part][row]['sentence_f1']:.1f}" for part in ("all", "short")}
            for row in parsing["all"]
        ],
        "label_recall": ", ".join(f"{label} {100 * value:.1f} %" for label, value in recall.items()),
        "depth": f"{main_row['average_depth']:.1f}",
    }


def _metadata(name: str, config: PreTrainedConfig, description: ModelDescription, results: dict) -> ModelCardData:
    text = {"dataset_type": "ptb_text_only", "dataset_name": "Penn Treebank (language modelling)"}
    perplexity = {"task_type": "text-generation", "metric_type": "perplexity"}
    eval_results = [
        EvalResult(
            **perplexity,
            **text,
            dataset_split=split,
            metric_value=round(value, 2),
            metric_name=f"{split} perplexity",
        )
        for split, value in results["perplexity"].items()
    ]
    if "parsing" in results:
        sentence_f1 = results["parsing"]["all"][_main_row(config)]["sentence_f1"]
        eval_results.append(
            EvalResult(
                task_type="token-classification",
                task_name="Unsupervised constituency parsing",
                dataset_type="wsj_sample",
                dataset_name="Penn Treebank, Wall Street Journal sample (wsj_0001 to wsj_0199)",
                metric_type="f1",
                metric_name=f"sentence F1, {_main_row(config)}; the sentences' words are in the training text",
                metric_value=round(100 * sentence_f1, 2),
            )
        )
    return ModelCardData(
        language="en",
        license="apache-2.0",
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=list(description.tags),
        datasets=["ptb-text-only/ptb_text_only"],
        model_name=name,
        eval_results=eval_results,
    )


def _read_treebank(path: str | None, model: PreTrainedModel) -> list[GoldTree] | None:
    """The gold trees for a model that induces trees, `None` for another.

    Raises:
        ValueError: if the first has none, or the second has some.
    """
    if model.induces_trees == (path is None):
        advice = "induce trees: give --treebank" if model.induces_trees else "induce no trees: leave out --treebank"
        raise ValueError(f'models of type "{model.config.model_type}" {advice}')
    return None if path is None else read_treebank(path)


def _perplexity(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, files: list[str], batch_size: int
) -> float:
    stream = encode_stream(TextLines(files), tokenizer, "text", ", ".join(files))
    return stream_log_likelihood(model, stream, batch_size, progress=True).perplexity


def _parsing(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, treebank: list[GoldTree]) -> dict:
    """Scores of every layer that gives distances and of the baselines, on all sentences and on the short ones."""
    options = {_main_row(model.config): {}}
    if hasattr(model.config, "parse_layer"):
        options = {_layer_row(layer): {"layer": layer} for layer in range(model.config.num_hidden_layers)}
    options[f"{_main_row(model.config)}, no branching bias"] = {"branching_bias": "none"}
    scores = {}
    for name, trees in {"all": treebank, "short": [tree for tree in treebank if len(tree.words) <= SHORT]}.items():
        rows = {row: parse_treebank(model, tokenizer, trees, **chosen) for row, chosen in options.items()}
        scores[name] = {row: score.to_dict() for row, score in (rows | score_baselines(trees)).items()}
    return scores


def _layer_row(layer: int) -> str:
    return f"layer {layer + 1}"


def _main_row(config: PreTrainedConfig) -> str:
    """The name of the trees that `parse` gives by default, of a layer where several give distances."""
    return _layer_row(config.parse_layer) if hasattr(config, "parse_layer") else "induced trees"


def _without_paths(training: dict) -> dict:
    """The training results without scores of other weights, and without the places where files lay."""
    recipe = {
        name: value
        for name, value in training["recipe"].items()
        if name not in PLACES and not (isinstance(value, str) and Path(value).exists())
    }
    return {name: training[name] for name in ("updates", "onlstm_hf", "torch")} | {"recipe": recipe}


def _parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="output_dir of a finished run of train_lm.py")
    parser.add_argument("output", type=Path, help="folder to write, for instance model_cards/onlstm-ptb-small")
    parser.add_argument("--recipe", required=True, help="name of the recipe that was run")
    parser.add_argument("--validation_files", nargs="+", required=True)
    parser.add_argument("--test_files", nargs="+", required=True)
    parser.add_argument(
        "--treebank",
        help="Penn-style gold trees, a .mrg file or a folder of them: needed for a model that induces trees, and only "
        "then",
    )
    parser.add_argument("--note", help="what else the card should say about the training")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"release.py: {error}")
