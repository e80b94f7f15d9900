"""The tables of targeted syntactic evaluation, beside what the ON-LSTM paper reports."""

from collections.abc import Iterable, Iterator, Sequence

from eval.data.syntactic_tests import MARVIN_LINZEN_SETS, Item
from eval.report.results_files import short_name
from eval.report.tables import format_table
from eval.report.tasks import SYNTAX
from onlstm_hf.hub.cards.published import central_figures

MARVIN_LINZEN, BLIMP = "Marvin & Linzen", "BLiMP"
# Published figures exist for Marvin & Linzen's test cases only.
PUBLISHED = central_figures(SYNTAX)
PUBLISHED_NOTE = (
    "published: Shen et al. (2019), Table 3; models trained on 90 million words of Wikipedia, not on the text of the "
    "models beside them"
)


def published_accuracies(test_case: str) -> list[str]:
    """Returns the accuracies of the paper's models in a test case of Marvin & Linzen; empty if the paper has none."""
    return [f"{model['accuracy'][test_case]:.2f}" for model in PUBLISHED if test_case in model["accuracy"]]


def syntax_table(test: str, items: Sequence[Item], results: Sequence[dict]) -> str:
    """The table of one test: the accuracy of each model, and its accuracy on the pairs that it knows the words of."""
    published = PUBLISHED if test == MARVIN_LINZEN else ()
    header = [test, "pairs"]
    for result in results:
        header += [short_name(result["model"]), "known pairs only"]
    header += [f"{model['system']} (published)" for model in published]

    scores = [result["scores"][test] for result in results]
    rows = []
    for label, part, name in _layout(test, items, scores[0]):
        row = [label]
        if part is not None:
            cells = [score[part][name] for score in scores] if part else scores
            row += [str(cells[0]["num_pairs"]), *(text for cell in cells for text in accuracies(cell))]
            row += published_accuracies(name) if published else []
        rows.append(row + [""] * (len(header) - len(row)))
    ties = [f"{result['model']}: {score['num_ties']} ties" for result, score in zip(results, scores, strict=True)]
    return "\n".join([format_table(header, rows), *ties, *([PUBLISHED_NOTE] if published else [])])


def _layout(test: str, items: Sequence[Item], scores: dict) -> Iterator[tuple[str, str | None, str]]:
    """The lines of a table: the label, and where in the scores its figures are (`""`: all, `None`: there are none)."""
    if test == MARVIN_LINZEN:
        for section, names in marvin_linzen_sections(scores["by_group"]).items():
            yield section, None, ""
            for name in names:
                yield f"  {name}", "by_group", name
    else:
        condition_groups = {item.condition: item.group for item in items}
        for group in sorted(scores["by_group"]):
            yield group, "by_group", group
            for condition in scores["by_condition"]:
                if condition_groups[condition] == group:
                    yield f"  {condition}", "by_condition", condition
    yield "all", "", ""


def marvin_linzen_sections(names: Iterable[str]) -> dict[str, list[str]]:
    """Groups test cases by the sections of the paper's table, in its order."""
    names = list(names)
    sections = {
        section: [name for group in groups for name in names if name == group or name.startswith(f"{group} (")]
        for section, groups in MARVIN_LINZEN_SETS.items()
    }
    return {section: found for section, found in sections.items() if found}


def accuracies(score: dict) -> tuple[str, str]:
    """Returns the accuracy on all pairs and on the pairs whose words the model knows, with their share."""
    known = 1 - score["num_out_of_vocabulary"] / score["num_pairs"]
    accuracy = score["in_vocabulary_accuracy"]
    return f"{score['accuracy']:.2f}", "-" if accuracy is None else f"{accuracy:.2f} of {known:.0%}"
