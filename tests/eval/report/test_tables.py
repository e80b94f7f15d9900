import csv

import pytest

from eval.report.tables import FORMATS, write_table

HEADER = ["trees", "F1, <= 10"]
ROWS = [["layer_1 (50 %)", "1.5"], [], ["A|B & C\\D", "±2"]]


def test_text_has_columns():
    assert FORMATS[".txt"](HEADER, ROWS).split("\n") == [
        "trees           F1, <= 10",
        "layer_1 (50 %)        1.5",
        "",
        "A|B & C\\D              ±2",
    ]


def test_markdown_escapes_its_separator():
    assert FORMATS[".md"](HEADER, ROWS).split("\n") == [
        "| trees | F1, <= 10 |",
        "| --- | ---: |",
        "| layer_1 (50 %) | 1.5 |",
        "| A\\|B & C\\D | ±2 |",
    ]


def test_latex_escapes_its_characters():
    text = FORMATS[".tex"](HEADER, ROWS)
    assert text.startswith(r"\begin{tabular}{lr}") and text.endswith(r"\end{tabular}")
    assert r"layer\_1 (50 \%) & 1.5" in text and r"B \& C\textbackslash D & ±2" in text


def test_csv_is_read_back(tmp_path):
    path = tmp_path / "table.csv"
    write_table(path, HEADER, ROWS)
    assert list(csv.reader(path.read_text(encoding="utf-8").splitlines())) == [HEADER, ROWS[0], ROWS[2]]


def test_other_endings_are_refused(tmp_path):
    with pytest.raises(ValueError, match="must end in .txt, .md, .tex, .csv"):
        write_table(tmp_path / "table.doc", HEADER, ROWS)
