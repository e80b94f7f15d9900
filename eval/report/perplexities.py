"""Perplexities of texts by the metric `eval/perplexity`, and their table."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev

import torch
from transformers import PreTrainedTokenizerBase

from eval.report.tables import format_table
from eval.report.tasks import LANGUAGE_MODELLING
from eval.task import import_extra
from onlstm_hf.hub.cards.published import central_figures
from onlstm_hf.text.unknown_words import unknown_words
from onlstm_hf.text.word_alignment import word_offsets

PUBLISHED = central_figures(LANGUAGE_MODELLING)
# Number of lines of the validation and the test text.
PENN_TREEBANK_LINES = (3370, 3761)
# Columns of the table and their number formats.
UNITS = {"perplexity": "{:.2f}", "word_perplexity": "{:.2f}", "bits_per_character": "{:.3f}"}


def score_tokens(
    log_probabilities: Mapping[str, torch.Tensor], texts: Mapping[str, list[str]], tokenizer: PreTrainedTokenizerBase
) -> dict[str, dict[str, float]]:
    """Scores each text from the log probabilities `[N]` of its tokens, by the metric `eval/perplexity`.

    Words are those that the tokenizer keeps, and one `<eos>` per line. Characters include line ends.
    """
    metric = import_extra("evaluate").load(
        str(Path(__file__).resolve().parents[1] / "perplexity"), keep_in_memory=True
    )
    scores = {}
    for name, lines in texts.items():
        # Without punctuation that the tokenizer drops.
        kept = [[line[start:end] for start, end in word_offsets(tokenizer, line)] for line in lines]
        written = [
            line if len(words) == len(line.split()) else " ".join(words)
            for line, words in zip(lines, kept, strict=True)
        ]
        scores[name] = metric.compute(
            predictions=[log_probabilities[name].tolist()],
            num_words=[sum(len(words) + 1 for words in kept)],
            num_characters=[sum(len(line) + 1 for line in written)],
        ) | {"unknown_words": unknown_words(tokenizer, lines)}
    return scores


def report(models: Sequence[dict], texts: Mapping[str, Sequence[str]], are_alike: bool = True) -> str:
    """Returns the table of scores by text and model, with adapted scores.

    The published figures follow if one of the texts (lists of lines) is of the Penn Treebank. `models` are as in
    results files. `are_alike` adds mean and standard deviation over the models.
    """
    by_text: dict[str, dict[str, dict]] = defaultdict(dict)
    for model in models:
        adapted = model["adaptation"] or {"method": None, "scores": {}}
        scores = model["scores"] | {f"{text}, {adapted['method']}": row for text, row in adapted["scores"].items()}
        for text, row in scores.items():
            by_text[text][model["model"]] = row
    rows = []
    for text, scores in by_text.items():
        for name, row in scores.items():
            label = text if len(models) == 1 else f"{text}, {name}"
            rows.append([label, str(row["num_tokens"]), *_figures(row), f"{100 * row['unknown_words']:.1f} %"])
        if len(scores) > 1 and are_alike:
            for name, function in {"mean": mean, "standard deviation": stdev}.items():
                figures = {unit: function(row[unit] for row in scores.values()) for unit in UNITS}
                rows.append([f"{text}, {name}", "", *_figures(figures), ""])
    if any(len(lines) in PENN_TREEBANK_LINES for lines in texts.values()):
        rows.append([])
        for row in PUBLISHED:
            for part, perplexity in row["perplexity"].items():
                label = f"{row['system']}, Penn Treebank {part} (published)"
                rows.append([label, "", str(perplexity), str(perplexity), "", ""])
    header = ["text", "tokens", "perplexity", "per word", "bits per character", "unknown words"]
    settings = [_describe_adaptation(model, len(models) > 1) for model in models if model["adaptation"]]
    return "\n".join([format_table(header, rows), *([""] if settings else []), *settings])


def _describe_adaptation(model: dict, is_named: bool) -> str:
    """Describes the settings of an adaptation and the text that they were tuned on, in one line."""
    adapted = model["adaptation"]
    settings = ", ".join(f"{name} {value:g}" for name, value in adapted["settings"].items())
    line = f"{adapted['description']}: {settings}"
    if tuning := adapted["tuning"]:
        line += f"; the best of {len(tuning['grid'])} on {tuning['num_tokens']} tokens of {tuning['text']}"
    return f"{model['model']}: {line}" if is_named else line


def _figures(row: Mapping[str, float]) -> list[str]:
    return [places.format(row[unit]) for unit, places in UNITS.items()]
