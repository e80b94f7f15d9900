"""Tables as text, Markdown, LaTeX and CSV: a header and rows of cells, the first column left-aligned."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean, stdev

from onlstm_hf.utils.files import written_file

Table = tuple[list[str], list[list[str]]]  # the header and the rows


def per_cent(fraction: float | None) -> str:
    """Formats a fraction in per cent with one decimal place; empty for `None`."""
    return "" if fraction is None else f"{100 * fraction:.1f}"


def spread(values: Iterable[float], digits: int = 1) -> str:
    """Formats the mean, with the sample standard deviation if there are several values; empty without values."""
    values = list(values)
    if not values:
        return ""
    return f"{mean(values):.{digits}f}" + (f" ± {stdev(values):.{digits}f}" if len(values) > 1 else "")


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligns columns with spaces, the first one left, the others right. An empty row stays empty."""
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
    """Formats a GitHub Markdown table without empty rows."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *(row for row in rows if row)]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def latex_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Formats a LaTeX `tabular` for the package booktabs, without empty rows."""
    columns = "l" + "r" * (len(header) - 1)
    return _frame(header, rows).to_latex(index=False, escape=True, column_format=columns).rstrip()


def csv_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Formats comma-separated values without empty rows."""
    return _frame(header, rows).to_csv(index=False).rstrip()


def _frame(header: Sequence[str], rows: Sequence[Sequence[str]]):
    import pandas

    return pandas.DataFrame([row for row in rows if row], columns=list(header))


FORMATS = {".txt": format_table, ".md": markdown_table, ".tex": latex_table, ".csv": csv_table}


def write_table(path: str | os.PathLike, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Writes a table in the format of the file's suffix, one of `FORMATS`; an existing file is replaced."""
    with written_file(path) as file:
        file.write(FORMATS[Path(path).suffix.lower()](header, rows) + "\n")
