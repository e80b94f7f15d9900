"""A web page that compares the log probabilities of sentences, one item per line."""

from pathlib import Path

import evaluate
import gradio as gr
from evaluate.utils.gradio import parse_readme

FOLDER = Path(__file__).resolve().parent


def score(log_probabilities: str, conditions: str) -> dict:
    """Scores items of two or three log probabilities a line, and by condition where each line has one."""
    try:
        predictions = [[float(number) for number in line.split()] for line in log_probabilities.split("\n") if line]
        names = [line for line in conditions.split("\n") if line.strip()] or None
        metric = evaluate.load(str(FOLDER / "minimal_pairs.py"))
        return metric.compute(predictions=predictions, conditions=names)
    except ValueError as error:
        raise gr.Error(str(error)) from error


if __name__ == "__main__":
    gr.Interface(
        fn=score,
        inputs=[
            gr.Textbox(label="Log probabilities: grammatical, (intrusive,) ungrammatical", lines=5),
            gr.Textbox(label="Condition of each line (optional)", lines=5),
        ],
        outputs=gr.JSON(label="Scores"),
        examples=[["-20.1 -22.4\n-18.0 -17.5", "singular\nplural"]],
        title="Accuracy on minimal pairs",
        article=parse_readme(FOLDER / "README.md"),
    ).launch()
