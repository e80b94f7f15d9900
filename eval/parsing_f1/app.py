"""A web page that scores trees typed as brackets, one per line."""

from pathlib import Path

import evaluate
import gradio as gr
from evaluate.utils.gradio import parse_readme

FOLDER = Path(__file__).resolve().parent
EXAMPLE = [
    "((the (old cat)) ((sat on) it))",
    "(S (NP (DT The) (JJ old) (NN cat)) (VP (VBD sat) (PP (IN on) (NP (PRP it)))))",
]


def score(predictions: str, references: str) -> dict:
    """Scores the trees of two texts, one bracketed tree per line."""
    lines = [[line for line in text.split("\n") if line.strip()] for text in (predictions, references)]
    try:
        return evaluate.load(str(FOLDER / "parsing_f1.py")).compute(predictions=lines[0], references=lines[1])
    except ValueError as error:
        raise gr.Error(str(error)) from error


if __name__ == "__main__":
    gr.Interface(
        fn=score,
        inputs=[gr.Textbox(label="Predicted trees", lines=5), gr.Textbox(label="Gold trees", lines=5)],
        outputs=gr.JSON(label="Scores"),
        examples=[EXAMPLE],
        title="F1 of unsupervised parsing",
        article=parse_readme(FOLDER / "README.md"),
    ).launch()
