"""The table of the README: sentence F1 on sentences that no model has read, by both rules, beside baselines."""

from collections.abc import Mapping

# Name of the row, its results file (that of the unbiased rule ends in `_no_bias`), and the name of the row there.
ROWS = (
    ("**default model** (three seeds)", "parsing_distilled_seeds", "layer 3 (--layer 2)"),
    ("small ON-LSTM, layer 2 (five seeds)", "parsing_seeds", "layer 2 (--layer 1)"),
    ("small PRPN (five seeds)", "parsing_seeds", "induced trees"),
    ("right branching", "parsing_seeds", "right branching"),
    ("balanced", "parsing_seeds", "balanced"),
)


def unseen_trees(files: Mapping[str, dict]) -> tuple[list[str], list[list[str]]]:
    """Header and rows, in per cent; rows whose files are missing are left out.

    Args:
        files: results of parsing, by the name of their file.
    """
    header = ["trees", "papers' rule", "unbiased rule", "papers' rule, at most 10 words", "unbiased, at most 10 words"]
    rows = []
    for name, file, source in ROWS:
        by_rule = (file, f"{file}_no_bias")
        if all(rule in files for rule in by_rule):
            figures = [_f1(files[rule], part, source) for part in ("all", "short") for rule in by_rule]
            rows.append([name, *figures])
    return header, rows


def _f1(results: Mapping, part: str, source: str) -> str:
    figure = results["summary"][part][source]["sentence_f1"]
    spread = figure["standard_deviation"]
    return f"{100 * figure['mean']:.1f}" + ("" if spread is None else f" ± {100 * spread:.1f}")
