"""Tables as text, Markdown, LaTeX and CSV: a header and rows of cells, the first column flush left.

The writers of pandas know no rows that part a table, and need one more library for Markdown.
"""

import csv
import io
import os
import re
from collections.abc import Sequence
from pathlib import Path

from onlstm_hf.utils.files import written_file

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
} | {character: f"\\{character}" for character in "&%$#_{}"}


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns with spaces between them, the first one flush left, the others right. An empty row stays empty."""
    filled = [row for row in (header, *rows) if row]
    widths = [max(len(row[column]) for row in filled) for column in range(len(header))]
    lines = []
    for row in (header, *rows):
        cells = [
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=False))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of GitHub's Markdown. Empty rows are left out."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *(row for row in rows if row)]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def latex_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A `tabular` for the package booktabs. An empty row becomes a rule."""
    lines = [rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}", r"\toprule", _latex_row(header), r"\midrule"]
    lines += [_latex_row(row) if row else r"\midrule" for row in rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(re.sub(r"[\\~^<>±&%$#_{}]", lambda match: _LATEX[match[0]], cell) for cell in cells) + r" \\"


def csv_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Comma-separated values. Empty rows are left out."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *(row for row in rows if row)])
    return text.getvalue().rstrip("\n")


FORMATS = {".txt": format_table, ".md": markdown_table, ".tex": latex_table, ".csv": csv_table}


def check_table_name(path: str | os.PathLike | None) -> None:
    """Raises a `ValueError` where the ending of a file, if there is one, names no kind of table."""
    if path is not None and Path(path).suffix not in FORMATS:
        raise ValueError(f"cannot write {path}: the name of a table must end in {', '.join(FORMATS)}")


def write_table(path: str | os.PathLike, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Writes a table of the kind that the file's ending names; an older file is replaced."""
    check_table_name(path)
    with written_file(path) as file:
        file.write(FORMATS[Path(path).suffix](header, rows) + "\n")
