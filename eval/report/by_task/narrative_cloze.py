"""Table of the narrative cloze: recall of models of events, and their gain over bigrams."""

from collections import defaultdict
from statistics import mean

from eval.report.results_files import Results
from eval.report.tables import Table, spread
from eval.report.tasks import NARRATIVE_CLOZE
from onlstm_hf.hub.cards.published import central_figures, citation, published_figures

BASELINE = "bigram"
COLUMNS = {"recall": "recall at 25", "verb_recall": "verb recall at 25", "recall_without_rare": "without rare words"}


def cloze_table(files: Results) -> Table:
    """Returns rows in per cent: one per file and system, then one per central published figure."""
    rows = []
    for name, run in files.items():
        by_system: dict[str, list[dict]] = defaultdict(list)
        for model in run["models"]:
            by_system[model["system"]].append(model["scores"])
        baseline = by_system[BASELINE][0]["recall"]
        for system, scores in by_system.items():
            recall = mean(score["recall"] for score in scores)
            figures = [spread(100 * score[column] for score in scores) for column in COLUMNS]
            seeds = str(len(scores)) if len(scores) > 1 else ""
            rows.append([system, run["arguments"], seeds, *figures, _gain(system, recall, baseline), name])
    published = published_figures(NARRATIVE_CLOZE)
    baselines = {row["arguments"]: row["recall"] for row in published if row["system"] == BASELINE}
    for row in central_figures(NARRATIVE_CLOZE):
        gain = _gain(row["system"], row["recall"], baselines[row["arguments"]])
        figures = [f"{row['recall']:.1f}", "", "", gain]
        rows.append([f"{row['system']} (published)", row["arguments"], "", *figures, citation(row)])
    return ["model", "arguments", "seeds", *COLUMNS.values(), "gain over bigrams", "file"], rows


def _gain(system: str, recall: float, baseline: float) -> str:
    return "" if system == BASELINE or not baseline else f"{100 * (recall / baseline - 1):+.0f} %"
