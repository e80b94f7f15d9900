"""A web page that turns log probabilities, one sequence per line, into perplexities."""

from pathlib import Path

import evaluate
import gradio as gr
from evaluate.utils.gradio import parse_readme

FOLDER = Path(__file__).resolve().parent


def score(log_probabilities: str, protocol: str) -> dict:
    """Scores natural log probabilities, one sequence per line, separated by spaces."""
    try:
        predictions = [[float(number) for number in line.split()] for line in log_probabilities.split("\n") if line]
        return evaluate.load(str(FOLDER / "perplexity.py")).compute(predictions=predictions, protocol=protocol)
    except ValueError as error:
        raise gr.Error(str(error)) from error


if __name__ == "__main__":
    gr.Interface(
        fn=score,
        inputs=[
            gr.Textbox(label="Natural log probabilities", lines=5),
            gr.Radio(["stream", "sentence"], value="stream", label="Protocol"),
        ],
        outputs=gr.JSON(label="Scores"),
        examples=[["-2.3 -0.7 -1.2\n-4.1 -0.2", "stream"]],
        title="Perplexity from log probabilities",
        article=parse_readme(FOLDER / "README.md"),
    ).launch()
