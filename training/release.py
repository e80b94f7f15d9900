"""Exports the best checkpoint of a run as a folder for a Hub repository.

The folder gets weights in float16 or bfloat16, the tokenizer, `results.json` with the scores of these weights, and a
model card that states the scores and the commands behind them.
"""

import argparse
import json
import platform
import shlex
import sys
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import torch
import yaml
from accelerate import Accelerator
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from onlstm_hf.hub.cards.language_model import SHORT, VALIDATION_ROWS, layer_row, main_row, model_card
from onlstm_hf.hub.cards.template import describe_model
from onlstm_hf.hub.cards.text_descriptions import read_descriptions
from onlstm_hf.scoring.parsing_scores import ParsingScores, score_baselines, score_parses
from onlstm_hf.scoring.stream import stream_log_likelihood
from onlstm_hf.text.unknown_words import unknown_words
from onlstm_hf.trees.treebank import GoldTree
from onlstm_hf.utils.files import write_json
from onlstm_hf.utils.programs import run_program
from onlstm_hf.utils.results_file import portable
from onlstm_hf.utils.tokenizer_check import tokenizer_fingerprint
from training.language_models.recipe import DATA_FILES, DataArguments, parse_recipe
from training.language_models.text_batches import TextLines, encode_text
from training.language_models.validation import load_gold_trees
from training.loop.checkpointing import replaced_folder

PATH_FIELDS = ("output_dir", *DATA_FILES)
NAME_OR_PATH_FIELDS = ("dataset", "tokenizer", "model_code")  # a Hub name, or the path of a folder or file
# Fields of text sources, gold trees and scoring, which the training command leaves to the description of the text.
TEXT_AND_SCORING_FIELDS = (
    *("dataset", "dataset_config", "text_column", "train_split", "validation_split", "test_split"),
    *("gold_tree_column", "dropped_tags", "init_from", "model_code", "eval_every_steps", "eval_batch_size"),
    "test_batch_size",
)
RECIPES = Path(__file__).resolve().parent / "recipes"
DTYPES = ("float16", "bfloat16")


def main(arguments: list[str] | None = None) -> dict:
    options = _parse_arguments(arguments)
    training = _read_results(options.run)
    data = _read_data(options)
    text, gold_trees = read_descriptions(data)
    with replaced_folder(options.output, Accelerator()) as folder:
        export(options.run / "best", folder, options.dtype, options.max_shard_size)
        model = AutoModelForCausalLM.from_pretrained(folder)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        describe_model(model.config)  # fails early if the description is missing
        if options.treebank and not model.induces_trees:
            raise ValueError(f'models of type "{model.config.model_type}" induce no trees: leave out --treebank')
        treebank = load_gold_trees(DataArguments(gold_trees=options.treebank), model.config)
        parts = {"validation": (options.validation_files, VALIDATION_ROWS), "test": (options.test_files, 1)}
        results = {"parameters": model.num_parameters(), "perplexity": {}, "unknown_words": {}}
        for part, (paths, num_rows) in parts.items():
            if paths:
                stream = encode_text(TextLines(paths), tokenizer, "text", part)
                results["perplexity"][part] = stream_log_likelihood(model, stream, num_rows).perplexity
                results["unknown_words"][part] = unknown_words(tokenizer, TextLines(paths))
        if treebank:
            results["unknown_words"]["treebank"] = unknown_words(tokenizer, (tree.words for tree in treebank))
            results["parsing"] = _parsing(model, tokenizer, treebank)
        if options.unread_results:
            results["unread"] = read_held_out_scores(options.unread_results, model.config)
        threads = torch.get_num_threads()
        machine = f"{platform.machine()} CPU, {threads} thread{'s' if threads > 1 else ''}, torch {torch.__version__}"
        results |= {
            "data": data,
            "command": _release_command(options, text, gold_trees),
            "training": {
                "command": _training_command(options, text, training["recipe"]),
                "note": options.note,
                **_without_paths(training),
            },
            "date": date.today().isoformat(),
            "machine": machine,
        }
        write_json(folder / "results.json", results)
        model_card(options.output.name, model.config, results).save(folder / "README.md")
    print((options.output / "README.md").read_text(encoding="utf-8"))
    return results


def _read_results(run: Path) -> dict:
    path = run / "results.json"
    if not path.is_file():
        runs = ", ".join(sorted(str(results.parent) for results in run.glob("*/results.json")))
        hint = f"; it holds the runs {runs}" if runs else ""
        raise FileNotFoundError(f"{run} is no finished run of train_lm.py: it has no results.json{hint}")
    return json.loads(path.read_text(encoding="utf-8"))


def _training_command(options: argparse.Namespace, text: SimpleNamespace, recipe: dict) -> str:
    """Returns the command that trains the model, with the file names of the text's description."""
    overrides = _overrides(options.recipe, recipe) | {"output_dir": f"runs/{options.run.name}"}
    overrides |= {name: portable(recipe.get(name)) for name in ("init_from", "target_trees")}
    return (
        f"accelerate launch training/train_lm.py training/recipes/{options.recipe}.yaml --train_files {text.train} "
        f"--validation_files {text.validation}{_as_options({'test_files': text.test, **overrides})}"
    )


def _release_command(options: argparse.Namespace, text: SimpleNamespace, gold_trees: SimpleNamespace | None) -> str:
    further = {
        "test_files": text.test,
        "treebank": gold_trees and gold_trees.file,
        "unread_results": options.unread_results and f"eval/results/{options.unread_results.name}",
        "dtype": options.dtype if options.dtype != DTYPES[0] else None,
        "max_shard_size": options.max_shard_size,
    }
    return (
        f"python training/release.py runs/{options.run.name} model_cards/{options.output.name} "
        f"--recipe {options.recipe} --text training/texts/{options.text.name} "
        f"--validation_files {text.validation}{_as_options(further)}"
    )


def _as_options(values: Mapping[str, str | None]) -> str:
    return "".join(f" --{name} {value}" for name, value in values.items() if value)


def export(checkpoint: Path, folder: Path, dtype: str, max_shard_size: str | None) -> None:
    """Writes weights of another dtype and the tokenizer. The model still loads and computes in float32."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).to(getattr(torch, dtype))
    tokenizer = AutoTokenizer.from_pretrained(checkpoint, padding_side="left")  # needed for text generation
    model.config.tokenizer_fingerprint = tokenizer_fingerprint(tokenizer)
    shards = {} if max_shard_size is None else {"max_shard_size": max_shard_size}
    PreTrainedModel.save_pretrained(model, folder, **shards)  # without code, which `onlstm-hf export` and `push` add
    tokenizer.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    write_json(folder / "config.json", config | {"dtype": "float32"})


def _read_data(options: argparse.Namespace) -> dict:
    """Reads the description of the text and, if trees are scored, of the gold trees."""
    data = yaml.safe_load(options.text.read_text(encoding="utf-8"))
    if bool(options.test_files) != bool(data.get("text", {}).get("test")):
        raise ValueError(f"--test_files goes with `test` of the text in {options.text}: give both or neither")
    if options.treebank is None:
        data.pop("treebank", None)
    elif "treebank" not in data:
        raise ValueError(f"{options.text} does not describe the gold trees: add a section `treebank`")
    return data


def _parsing(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, treebank: list[GoldTree]) -> dict:
    """Scores the trees of every layer and of the baselines, on all sentences and on short ones if there are any."""
    unbiased = f"{main_row(model.config)}, no branching bias"
    parts = {"all": treebank, "short": [tree for tree in treebank if len(tree.words) <= SHORT]}
    scores = {}
    for name, trees in ((name, trees) for name, trees in parts.items() if trees):
        words = [list(tree.words) for tree in trees]
        rows = scores_by_layer(model, tokenizer, trees)
        rows[unbiased] = score_parses(model.parse(words, tokenizer, branching_bias="none"), trees)
        scores[name] = {row: score.to_dict() for row, score in (rows | score_baselines(trees)).items()}
    return scores


def scores_by_layer(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, treebank: list[GoldTree]
) -> dict[str, ParsingScores]:
    """Returns the scores of each layer's trees, by row of the model card; layers may share their trees."""
    trees, by_layer = model.parse_by_layer([list(tree.words) for tree in treebank], tokenizer)
    if model.parse_layer is None:
        return {main_row(model.config): score_parses(trees, treebank)}
    return {layer_row(layer): score_parses(trees, treebank) for layer, trees in enumerate(by_layer.values())}


def read_held_out_scores(path: Path, config: PreTrainedConfig) -> dict:
    """Reads the F1 of other runs of the recipe whose training text does not contain the sentences.

    They are in the output of `eval/evaluate_parsing.py --sentences-read no --output`. The result has `num_checkpoints`
    and the statistics of the sentence F1 for `all` sentences and, if their limit is that of the card, `short` ones.
    """
    results = json.loads(path.read_text(encoding="utf-8"))
    if results["sentences_read"] != "no":
        raise ValueError(f"{path} does not state that the sentences were not read (--sentences-read no)")
    if results["protocol"]["branching_bias"] != "right":
        raise ValueError(f"{path} has trees by another rule than the papers' (--branching-bias right)")
    parts = {part: rows for part, rows in results["summary"].items() if part == "all" or results["max_words"] == SHORT}
    name = main_row(config)
    scores = {
        part: {"num_checkpoints": summary["num_checkpoints"]} | summary["sentence_f1"]
        for part, rows in parts.items()
        for row, summary in rows.items()
        if row.partition(" (")[0] == name
    }
    if not scores:
        raise ValueError(f"{path} has no trees of {name}")
    return scores


def _overrides(name: str, run: dict) -> dict[str, str]:
    """Returns the recipe fields that the run overrode and that affect its weights, as arguments."""
    path = RECIPES / f"{name}.yaml"
    if not path.is_file():
        raise ValueError(f"--recipe must name a file of {RECIPES} without .yaml, but there is no {path}")
    recipe = parse_recipe([str(path), "--train_files", "train.txt", "--validation_files", "valid.txt"])
    written = recipe.fields("fixed") | recipe.fields("recorded")
    omitted = {*TEXT_AND_SCORING_FIELDS, *PATH_FIELDS, "model"}
    if "adam" not in run["optimizer"]:  # SGD does not use these
        omitted |= {"adam_beta1", "adam_beta2", "adam_epsilon"}
    values = {field: value for field, value in run.items() if field in written.keys() - omitted and value is not None}
    values |= {f"model.{field}": value for field, value in run["model"].items()}
    written |= {f"model.{field}": value for field, value in written["model"].items()}
    return {
        field: str(value).lower() if isinstance(value, bool) else shlex.quote(str(value))
        for field, value in values.items()
        if field not in written or value != written[field]
    }


def _without_paths(training: dict) -> dict:
    """Returns the training results without scores (of other weights) and file paths.

    `init_from` keeps its path, which shows that the run started from another model.
    """
    recipe = {
        name: portable(value)
        for name, value in training["recipe"].items()
        if name not in PATH_FIELDS and not (name in NAME_OR_PATH_FIELDS and value is not None and Path(value).exists())
    }
    names = ("epochs", "updates", "training_seconds", "onlstm_hf", "torch", "target_trees", "stages")
    kept = {name: training[name] for name in names if name in training} | {"recipe": recipe}
    changes = [change for change in training.get("changes", []) if change["field"] in recipe]
    return kept | ({"changes": changes} if changes else {})


def _parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="output_dir of a finished run of train_lm.py")
    parser.add_argument("output", type=Path, help="folder to write, for instance model_cards/onlstm-ptb-small")
    parser.add_argument("--recipe", required=True, help="name of the run's recipe")
    text = "description of training text and gold trees for the card, such as training/texts/penn_treebank.yaml"
    parser.add_argument("--text", type=Path, required=True, metavar="YAML", help=text)
    parser.add_argument("--validation_files", nargs="+", required=True)
    parser.add_argument("--test_files", nargs="+", help="test text, if the description of the text names one")
    parser.add_argument("--treebank", help="Penn-style gold trees (.mrg file or folder) for scores on the card")
    unread = (
        "if the training text contains the treebank's sentences: results of eval/evaluate_parsing.py for runs of the "
        "recipe without these sentences, which the card states first"
    )
    parser.add_argument("--unread_results", type=Path, metavar="FILE", help=unread)
    parser.add_argument("--dtype", choices=DTYPES, default=DTYPES[0], help="dtype of the weights (%(default)s)")
    parser.add_argument("--max_shard_size", metavar="SIZE", help="largest file of weights, such as 19MB")
    parser.add_argument("--note", help="remark on the training for the card")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(run_program("release.py", main))
