"""The table of targeted syntactic evaluation, beside what the ON-LSTM paper reports."""

from collections.abc import Iterable, Sequence

from eval.data.syntactic_tests import MARVIN_LINZEN_SETS
from eval.report.results_files import short_name
from eval.report.tables import Table
from eval.report.tasks import SYNTAX
from onlstm_hf.hub.cards.published import central_figures

MARVIN_LINZEN, BLIMP = "Marvin & Linzen", "BLiMP"
# Published figures exist for Marvin & Linzen's test cases only.
PUBLISHED = central_figures(SYNTAX)
PUBLISHED_NOTE = (
    "published: Shen et al. (2019), Table 3; models trained on 90 million words of Wikipedia, not on the text of the "
    "models beside them"
)


def syntax_table(models: Sequence[dict], has_paradigms: bool = False) -> Table:
    """Accuracy on all pairs, and in brackets on those whose words a model knows, with their share: a column a model.

    Args:
        models: `model` and `scores` of each, as results files have them.
        has_paradigms: whether BLiMP's phenomena and paradigms have rows, too.
    """
    scores = [model["scores"] for model in models]
    names = dict.fromkeys(name for own in scores if MARVIN_LINZEN in own for name in own[MARVIN_LINZEN]["by_group"])
    rows = [
        [name, *(_accuracy(own[MARVIN_LINZEN]["by_group"][name]) for own in scores), *_published(name)]
        for name in _in_the_papers_order(names)
    ]
    empty = [""] * len(PUBLISHED)
    for test in (MARVIN_LINZEN, BLIMP):
        if any(test in own for own in scores):
            rows.append([f"{test}, all", *(_accuracy(own.get(test)) for own in scores), *empty])
    if has_paradigms and BLIMP in scores[0]:
        for part in ("by_group", "by_condition"):
            for name in sorted(scores[0][BLIMP][part]):
                rows.append([f"{BLIMP}: {name}", *(_accuracy(own[BLIMP][part][name]) for own in scores), *empty])
    columns = [short_name(model["model"]) for model in models]
    return ["test case", *columns, *(f"{model['system']} (published)" for model in PUBLISHED)], rows


def _in_the_papers_order(names: Iterable[str]) -> list[str]:
    """Test cases in the order of the paper's table; one of three sentences has three names."""
    names = list(names)
    groups = [group for groups in MARVIN_LINZEN_SETS.values() for group in groups]
    return [name for group in groups for name in names if name == group or name.startswith(f"{group} (")]


def _accuracy(score: dict | None) -> str:
    if score is None:
        return ""
    known = 1 - score["num_out_of_vocabulary"] / score["num_pairs"]
    accuracy = score["in_vocabulary_accuracy"]
    return f"{score['accuracy']:.2f} ({'-' if accuracy is None else f'{accuracy:.2f} of {known:.0%}'})"


def _published(test_case: str) -> list[str]:
    """The accuracies of the paper's models in a test case."""
    return [f"{model['accuracy'][test_case]:.2f}" for model in PUBLISHED if test_case in model["accuracy"]]
