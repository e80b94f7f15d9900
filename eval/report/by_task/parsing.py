"""Table of unsupervised parsing: one row per layer, averaged over seeds as in the papers."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean, stdev

import numpy as np

from eval.report.tables import Table, per_cent
from eval.report.tasks import PARSING
from onlstm_hf.hub.cards.published import central_figures, f1_figures
from onlstm_hf.scoring.parsing_scores import ParsingScores, mean_f1_interval

NUM_LABELS = 6  # columns of label recall
MAX_WORDS = 10  # length of short sentences, which the papers also score separately
SPREAD = ("mean", "standard_deviation", "min", "max")
PUBLISHED = central_figures(PARSING)
INTERVAL_NOTE = "95 %: bootstrap interval of the mean, over sentences and, where there are several, over checkpoints"
PUBLISHED_NOTE = (
    "published: sentence F1 on the WSJ test set (section 23) and on WSJ10, mostly over several seeds; "
    "not the sentences scored here unless these are the same"
)


def source_name(layer: int | None) -> str:
    """Names the trees of a layer, counted from 0; `None` is a model with one set of distances for all layers."""
    return "induced trees" if layer is None else f"layer {layer + 1} (--layer {layer})"


def summarize(scores: Sequence[ParsingScores], seed: int = 0) -> dict:
    """Returns the distribution of scores over several checkpoints; `seed` is that of the bootstrap interval."""
    labels = scores[0].label_recall
    sentence_f1 = _distribution(score.sentence_f1 for score in scores)
    return {
        "num_checkpoints": len(scores),
        "sentence_f1": sentence_f1 | {"interval": list(mean_f1_interval(scores, seed=seed))},
        "corpus_f1": _distribution(score.corpus_f1 for score in scores),
        "average_depth": _distribution(score.average_depth for score in scores),
        "label_counts": {label: counts.total for label, counts in labels.items()},
        "label_recall": {
            label: _distribution(score.label_recall[label].recall for score in scores) for label in labels
        },
    }


def group_scores(
    by_source: Mapping[str, Sequence[ParsingScores]], groups: Mapping[str, Sequence[int]], lengths: np.ndarray
) -> dict[str, dict]:
    """Returns size and sentence F1 by source of the trees for each group of sentences, given as indices."""
    return {
        name: {
            "num_sentences": len(indices),
            "num_words": int(lengths[indices].sum()),
            "summary": {
                source: {
                    "sentence_f1": _distribution(float(score.f1_of_sentences[indices].mean()) for score in scores)
                }
                for source, scores in by_source.items()
            },
        }
        for name, indices in groups.items()
        if len(indices)
    }


def _distribution(values: Iterable[float]) -> dict:
    """Returns mean, minimum, maximum, and sample standard deviation (`None` for one value)."""
    values = list(values)
    deviation = stdev(values) if len(values) > 1 else None
    return {"mean": mean(values), "standard_deviation": deviation, "min": min(values), "max": max(values)}


def parsing_table(summaries: Mapping[str, Mapping[str, dict]], has_published: bool) -> Table:
    """Returns the table in per cent (the depth excepted), with recall of the most frequent labels.

    `summaries` has results of `summarize` by part (`all` and, if there are any, `short` sentences) and name of trees.
    """
    short = summaries.get("short", {})
    counts = next(iter(summaries["all"].values()))["label_counts"]
    labels = sorted(counts, key=lambda label: (-counts[label], label))[:NUM_LABELS]
    spread = ["s.d.", "min", "max", "95 %"]
    short_f1 = f"F1, at most {MAX_WORDS} words"
    header = ["trees", "sentence F1", *spread, "corpus F1", short_f1, *spread, "depth", *labels]
    rows = [
        [
            name,
            *_spread(summary["sentence_f1"]),
            per_cent(summary["corpus_f1"]["mean"]),
            *(_spread(short[name]["sentence_f1"]) if short else ["-", "", "", "", ""]),
            f"{summary['average_depth']['mean']:.1f}",
            *(per_cent(recall["mean"]) if recall else "-" for recall in map(summary["label_recall"].get, labels)),
        ]
        for name, summary in summaries["all"].items()
    ]
    if has_published:
        rows.append([])
        for row in PUBLISHED:
            figures = [[f"{part[name]:.1f}" if name in part else "" for name in SPREAD] for part in f1_figures(row)]
            cells = [f"{row['system']} (published)", *figures[0], "", "", *figures[1]]
            rows.append(cells + [""] * (len(header) - len(cells)))
    return header, rows


def _spread(figure: dict) -> list[str]:
    """Returns mean, standard deviation, minimum, maximum and interval; one checkpoint has mean and interval only."""
    interval = "-".join(map(per_cent, figure["interval"]))
    if figure["standard_deviation"] is None:
        return [per_cent(figure["mean"]), "", "", "", interval]
    return [*(per_cent(figure[name]) for name in SPREAD), interval]


# Heading of the first column, by the key of the groups in results.
GROUPS = {"by_file": "file", "by_length": "length"}


def group_table(kind: str, groups: Mapping[str, dict]) -> Table:
    """Returns mean sentence F1 in per cent: one row for each of `group_scores`, then the mean over files.

    `kind` is a key of `GROUPS`.
    """
    names = list(next(iter(groups.values()))["summary"])
    figures = {
        group: [content["summary"][name]["sentence_f1"]["mean"] for name in names] for group, content in groups.items()
    }
    rows = [
        [group, str(content["num_sentences"]), str(content["num_words"]), *map(per_cent, figures[group])]
        for group, content in groups.items()
    ]
    if kind == "by_file":
        means = map(mean, zip(*figures.values(), strict=True))
        rows.append(["mean of files", "", "", *map(per_cent, means)])
    return [GROUPS[kind], "sentences", "words", *names], rows
