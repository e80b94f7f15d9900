"""Texts about a model for the page, from its configuration and its card."""

import re
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import ModelCard
from transformers import PreTrainedModel

from ..text.sentence_splitting import LANGUAGE_CODE

KINDS = {"onlstm": "ON-LSTM", "prpn": "PRPN"}
CELLS = {"lstm": "LSTM", "gru": "GRU", "rnn": "simple recurrent network"}


def about_model(model: PreTrainedModel, folder: str) -> dict[str, Any]:
    """Returns the page's texts about a model; `folder` is its checkpoint, which may contain a card.

    Returns:
        `kind`; the number of `parameters`; the names of `layers` with trees; `parse_layer`, counted from 0; from the
        card the code of its `language` or `None`, sentences about how it was `trained` and its `limits`, and `scores`.
    """
    config = model.config
    layers = []
    if model.induces_trees and config.parse_layer is None:
        layers = ["distances"]
    elif model.induces_trees:
        layers = [f"layer {number + 1}" for number in range(config.num_hidden_layers)]
    card = _card(folder)
    text = "" if card is None else card.text
    return {
        "kind": KINDS.get(config.model_type) or CELLS[config.cell_type],
        "parameters": model.num_parameters(),
        "layers": layers,
        "parse_layer": config.parse_layer or 0,
        "language": None if card is None else _language(card),
        "trained": _training(text, model),
        "limits": _sentences(_paragraph(text, "## Limits\n"))[:1],
        "scores": _scores(text),
    }


def _card(folder: str) -> ModelCard | None:
    try:
        path = Path(folder, "README.md") if Path(folder).is_dir() else folder
        return ModelCard.load(path, ignore_metadata_errors=True)
    except (OSError, ValueError, yaml.YAMLError):
        return None


def _language(card: ModelCard) -> str | None:
    """Returns the first language of the card if it is a language code, unlike "multilingual"."""
    language = card.data.language
    first = language[0] if isinstance(language, list) and language else language
    return first if isinstance(first, str) and LANGUAGE_CODE.fullmatch(first) else None


def _training(text: str, model: PreTrainedModel) -> list[str]:
    """Returns sentences of the card: its first paragraph, and the first sentence about target trees."""
    sentences = _sentences(_paragraph(text, r"# [^\n]+\n"))
    if not sentences:
        sentences = ["It has no card, so its training text is unknown."]
        if model.induces_trees:
            sentences.append("Its trees come from the distances that it computes as it predicts each next word.")
    sentences += _sentences(_paragraph(text, "(?=It also learned the average)"))[:1]
    return [sentence for sentence in sentences if not sentence.startswith("Trained with")]


def _paragraph(text: str, start: str) -> str:
    """Returns the paragraph after the first match of a pattern at the start of a line, as plain text."""
    match = re.search(rf"^{start}\s*(.+?)(?:\n\s*\n|\Z)", text, re.MULTILINE | re.DOTALL)
    if match is None:
        return ""
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", match[1])
    return " ".join(re.sub(r"[*`]", "", plain).split())


def _sentences(paragraph: str) -> list[str]:
    return [sentence for sentence in re.split(r"(?<=[.;!?])\s+(?=[A-Z])", paragraph) if sentence]


def _scores(text: str) -> list[list[str]]:
    """Returns rows of the card's parsing scores: the name of the trees and F1 on all sentences."""
    table = re.search(r"^\| \| [^\n]*\n\| --- .*?\n\n", text, re.MULTILINE | re.DOTALL)
    rows = [line.strip("| ").split(" | ") for line in (table[0].splitlines()[2:] if table else [])]
    kept = re.compile(r"layer \d+(, no branching bias)?|induced trees.*|(left|right) branching|upper bound")
    return [row[:2] for row in rows if len(row) > 1 and kept.fullmatch(row[0])]
