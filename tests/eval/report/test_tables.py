from eval.report.tables import FORMATS

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


def test_latex_and_csv_have_no_empty_rows():
    assert FORMATS[".csv"](HEADER, ROWS).split("\n") == ['trees,"F1, <= 10"', "layer_1 (50 %),1.5", "A|B & C\\D,±2"]
    text = FORMATS[".tex"](HEADER, ROWS)
    assert text.startswith(r"\begin{tabular}{lr}") and r"layer\_1 (50 \%)" in text and text.count(r"\\") == 3
