"""The card of a language model: the template `language_model.md`, filled in with its results."""

import json
import textwrap
from types import SimpleNamespace

from huggingface_hub import EvalResult, EvalResultEntry, ModelCard, ModelCardData
from transformers import PreTrainedConfig

from ...utils.training_stages import training_stages
from ...version import __version__
from .template import complete_results, describe_model, fill_template
from .text_descriptions import PENN_TREEBANK, WSJ_SAMPLE, read_descriptions

# The card also shows scores of sentences with at most this many words.
SHORT = 10
# Recall is shown for these labels of the Penn Treebank, and for the most frequent labels of other treebanks.
PENN_LABELS = ("ADJP", "ADVP", "NP", "PP", "S", "SBAR", "VP")
NAMES_OF_TYPES = {"onlstm": "ON-LSTM", "prpn": "PRPN", "neural_grammar": "neural grammar"}
# Validation perplexity is measured on the text as a stream cut into this many rows.
VALIDATION_ROWS = 10


def layer_row(layer: int) -> str:
    """Returns the name of a layer's trees in the results and on the card."""
    return f"layer {layer + 1}"


def main_row(config: PreTrainedConfig) -> str:
    """Returns the name of the trees that `parse` returns by default: those of `parse_layer` if the model has one."""
    return "induced trees" if config.parse_layer is None else layer_row(config.parse_layer)


def model_card(repository: str, config: PreTrainedConfig, results: dict) -> ModelCard:
    """Builds the model card with metadata from the `results.json` of `training/release.py`.

    It loads the model by the name `repository`, and has a parsing section if the results have one.

    Raises:
        ValueError: if this model type has no description, or results are missing.
    """
    name = repository.rpartition("/")[2]
    with complete_results("training/release.py"):
        text, treebank = read_descriptions(results["data"])
        model = describe_model(
            config,
            tree="gold trees" if "target_trees" in results["training"] else "trees",
            sentence=json.dumps(text.example, ensure_ascii=False),
            beginning=json.dumps(_beginning(text.example), ensure_ascii=False),
        )
        return fill_template(
            "language_model.md",
            _metadata(name, config, model["tags"], results, text, treebank),
            repository=repository,
            name=name,
            config=config,
            results=results,
            text=text,
            model=model,
            unknown=results.get("unknown_words", {}),
            stages=training_stages(results),
            version=__version__,
            validation_rows=VALIDATION_ROWS,
            penn_treebank=PENN_TREEBANK,
            in_lines=_in_lines,
            names_of_types=NAMES_OF_TYPES,
            **_parsing_section(config, results, treebank),
        )


def _in_lines(command: str) -> str:
    """Formats a command with one line per option; long lines are wrapped."""
    lines = command.replace(" --", "\n--").split("\n")
    wrapped = (textwrap.wrap(line, 110, break_long_words=False, break_on_hyphens=False) for line in lines)
    return " \\\n    ".join(part for parts in wrapped for part in parts)


def _parsing_section(config: PreTrainedConfig, results: dict, treebank: SimpleNamespace | None) -> dict:
    """Returns the template values of the card's parsing section."""
    if "parsing" not in results:
        return {"parsing": None}
    parsing = results["parsing"]
    scores = parsing["all"][main_row(config)]
    recall, of_right_branching = (rows["label_recall"] for rows in (scores, parsing["all"]["right branching"]))
    labels = PENN_LABELS
    if treebank.dataset != WSJ_SAMPLE:
        labels = sorted(recall, key=lambda label: -recall[label]["total"])[: len(PENN_LABELS)]
    return {
        "parsing": parsing,
        "scores": scores,
        "treebank": treebank,
        "wsj_sample": WSJ_SAMPLE,
        "main_row": main_row(config),
        "short": SHORT if "short" in parsing else None,
        "unread": _unread_scores(results["unread"]) if "unread" in results else None,
        "label_recall": ", ".join(
            f"{label} {100 * recall[label]['recall']:.1f} % ({100 * of_right_branching[label]['recall']:.1f} %)"
            for label in labels
            if label in recall
        ),
    }


def _unread_scores(by_part: dict) -> dict:
    """Returns the number of runs that had not read the sentences, and their F1 for each part."""
    number = by_part["all"]["num_checkpoints"]
    f1 = {part: f"{100 * score['mean']:.1f}" for part, score in by_part.items()}
    if number > 1:
        for part, score in by_part.items():
            deviation, low, high = (100 * score[name] for name in ("standard_deviation", "min", "max"))
            f1[part] += f" ± {deviation:.1f} ({low:.1f} to {high:.1f})"
    return f1 | {"runs": f"{number} runs" if number > 1 else "one run"}


def _metadata(
    name: str,
    config: PreTrainedConfig,
    tags: list[str],
    results: dict,
    text: SimpleNamespace,
    treebank: SimpleNamespace | None,
) -> ModelCardData:
    eval_results = [
        EvalResult(
            task_type="text-generation",
            dataset_type=text.dataset.rpartition("/")[2],
            dataset_name=text.title,
            dataset_split=split,
            metric_type="perplexity",
            metric_name=f"{split} perplexity",
            metric_value=round(value, 2),
        )
        for split, value in results["perplexity"].items()
    ]
    if "parsing" in results:
        sentence_f1 = results["parsing"]["all"][main_row(config)]["sentence_f1"]
        remark = f"; {treebank.remark}" if treebank.remark else ""
        eval_results.append(
            EvalResult(
                task_type="token-classification",
                task_name="Unsupervised constituency parsing",
                dataset_type=treebank.dataset.rpartition("/")[2],
                dataset_name=treebank.title,
                metric_type="f1",
                metric_name=f"sentence F1, {main_row(config)}{remark}",
                metric_value=round(100 * sentence_f1, 2),
            )
        )
    return ModelCardData(
        language=text.language,
        license=text.license,
        library_name="transformers",
        pipeline_tag="text-generation",
        widget=[{"text": _beginning(text.example)}],
        tags=tags,
        datasets=[text.dataset] if "/" in text.dataset else None,
        model_name=name,
        eval_results=eval_results,
    )


def eval_result_entries(results: dict) -> list[EvalResultEntry]:
    """Returns the scores for `.eval_results/` of a repository: perplexities, if the text is a dataset on the Hub."""
    text, _ = read_descriptions(results["data"])
    if "/" not in text.dataset:
        return []
    return [
        EvalResultEntry(
            dataset_id=text.dataset,
            task_id=split,
            value=round(perplexity, 2),
            date=results["date"],
            notes="perplexity of a token, <eos> included, the state carried along the stream",
        )
        for split, perplexity in results["perplexity"].items()
    ]


def _beginning(sentence: str) -> str:
    """Returns the first three words as a prompt."""
    return " ".join(sentence.split()[:3])
