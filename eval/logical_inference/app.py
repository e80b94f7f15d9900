"""A web page that scores predicted relations of formulas, one pair per line."""

from pathlib import Path

import evaluate
import gradio as gr
from evaluate.utils.gradio import parse_readme

FOLDER = Path(__file__).resolve().parent


def score(lines: str) -> dict:
    """Scores lines of a predicted relation, the gold one and the number of operators."""
    try:
        rows = [line.split() for line in lines.split("\n") if line.strip()]
        if any(len(row) != 3 for row in rows):
            raise ValueError("each line must have a predicted relation, the gold one and the number of operators")
        predictions, references, numbers = zip(*rows, strict=True) if rows else ((), (), ())
        metric = evaluate.load(str(FOLDER / "logical_inference.py"))
        return metric.compute(
            predictions=predictions, references=references, num_operators=[int(number) for number in numbers]
        )
    except ValueError as error:
        raise gr.Error(str(error)) from error


if __name__ == "__main__":
    gr.Interface(
        fn=score,
        inputs=gr.Textbox(label="Predicted relation, gold relation, number of operators", lines=8),
        outputs=gr.JSON(label="Scores"),
        examples=[["< < 1\n# # 1\n# v 2\n= = 2"]],
        title="Accuracy of logical inference",
        article=parse_readme(FOLDER / "README.md"),
    ).launch()
