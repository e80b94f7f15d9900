"""The table of the narrative cloze: recall of models of events, and what they gain over bigrams."""

from collections.abc import Sequence
from statistics import mean

from eval.report.tables import Table, spread
from eval.report.tasks import NARRATIVE_CLOZE
from onlstm_hf.hub.cards.published import central_figures, citation, published_figures

BASELINE = "bigram"
COLUMNS = {"recall": "recall at 25", "verb_recall": "verb recall at 25", "recall_without_rare": "without rare words"}


def cloze_table(runs: Sequence[dict], names: Sequence[str] = ()) -> Table:
    """Header and rows, in per cent: for each run one for each system, then one for each central published figure.

    Args:
        runs: results files, each of one kind of arguments.
        names: by which rows refer to the runs; without, there is no such column.
    """
    rows = []
    for place, run in enumerate(runs):
        by_system: dict[str, list[dict]] = {}
        for model in run["models"]:
            by_system.setdefault(model["system"], []).append(model["scores"])
        baseline = by_system[BASELINE][0]["recall"]
        for system, scores in by_system.items():
            recall = mean(score["recall"] for score in scores)
            figures = [spread(100 * score[column] for score in scores) for column in COLUMNS]
            seeds = str(len(scores)) if len(scores) > 1 else ""
            row = [system, run["arguments"], seeds, *figures, _gain(system, recall, baseline)]
            rows.append([*row, *names[place : place + 1]])
    published = published_figures(NARRATIVE_CLOZE)
    baselines = {row["arguments"]: row["recall"] for row in published if row["system"] == BASELINE}
    for row in central_figures(NARRATIVE_CLOZE):
        gain = _gain(row["system"], row["recall"], baselines[row["arguments"]])
        figures = [f"{row['recall']:.1f}", "", "", gain]
        source = [citation(row)] if names else []
        rows.append([f"{row['system']} (published)", row["arguments"], "", *figures, *source])
    return ["model", "arguments", "seeds", *COLUMNS.values(), "gain over bigrams", *(["run"] if names else [])], rows


def _gain(system: str, recall: float, baseline: float) -> str:
    return "" if system == BASELINE or not baseline else f"{100 * (recall / baseline - 1):+.0f} %"
