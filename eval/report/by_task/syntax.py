"""Table of targeted syntactic evaluation, beside the figures of the ON-LSTM paper."""

from collections.abc import Iterable

from eval.data.syntactic_tests import MARVIN_LINZEN_SETS
from eval.report.results_files import Results, short_name
from eval.report.tables import Table
from eval.report.tasks import SYNTAX
from onlstm_hf.hub.cards.published import central_figures

MARVIN_LINZEN, BLIMP = "Marvin & Linzen", "BLiMP"
PUBLISHED = central_figures(SYNTAX)
PUBLISHED_NOTE = (
    "published: Shen et al. (2019), Table 3; models trained on 90 million words of Wikipedia, not on the text of the "
    "models beside them"
)


def syntax_table(files: Results, has_paradigms: bool = False) -> Table:
    """Returns accuracy on all pairs, and in brackets on those without unknown words and their share.

    Each model has a column; with `has_paradigms` the phenomena and paradigms of BLiMP have rows.
    """
    models = [model for results in files.values() for model in results["models"]]
    scores = [model["scores"] for model in models]
    names = dict.fromkeys(name for tests in scores for name in tests.get(MARVIN_LINZEN, {"by_group": ()})["by_group"])
    rows = [
        [name, *(_accuracy(tests[MARVIN_LINZEN]["by_group"][name]) for tests in scores), *_published(name)]
        for name in _in_paper_order(names)
    ]
    empty = [""] * len(PUBLISHED)
    for test in (MARVIN_LINZEN, BLIMP):
        if any(test in tests for tests in scores):
            rows.append([f"{test}, all", *(_accuracy(tests.get(test)) for tests in scores), *empty])
    if has_paradigms and BLIMP in scores[0]:
        for part in ("by_group", "by_condition"):
            for name in sorted(scores[0][BLIMP][part]):
                rows.append([f"{BLIMP}: {name}", *(_accuracy(tests[BLIMP][part][name]) for tests in scores), *empty])
    columns = [short_name(model["model"]) for model in models]
    return ["test case", *columns, *(f"{model['system']} (published)" for model in PUBLISHED)], rows


def _in_paper_order(names: Iterable[str]) -> list[str]:
    """Sorts test cases as in the paper's table; a test case of three sentences has three names."""
    names = list(names)
    groups = [group for groups in MARVIN_LINZEN_SETS.values() for group in groups]
    return [name for group in groups for name in names if name == group or name.startswith(f"{group} (")]


def _accuracy(score: dict | None) -> str:
    if score is None:
        return ""
    in_vocabulary = 1 - score["num_out_of_vocabulary"] / score["num_pairs"]
    accuracy = score["in_vocabulary_accuracy"]
    return f"{score['accuracy']:.2f} ({'-' if accuracy is None else f'{accuracy:.2f} of {in_vocabulary:.0%}'})"


def _published(test_case: str) -> list[str]:
    return [f"{model['accuracy'][test_case]:.2f}" for model in PUBLISHED if test_case in model["accuracy"]]
