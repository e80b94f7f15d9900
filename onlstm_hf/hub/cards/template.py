"""Cards from the templates of this folder, which name the fields of the results that they state."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from huggingface_hub import ModelCard, ModelCardData
from jinja2 import Environment, StrictUndefined, UndefinedError


def render(text: str, /, **values) -> str:
    """A Jinja template with these values; a missing one is an `UndefinedError`."""
    return Environment(undefined=StrictUndefined).from_string(text).render(values)


def fill_template(template: str, metadata: ModelCardData, **values) -> ModelCard:
    """The card that a template of this folder makes of these values.

    (`ModelCard.from_template` would leave a gap where a value is missing.)
    """
    text = Path(__file__).with_name(template).read_text(encoding="utf-8")
    return ModelCard(render(text, card_data=metadata.to_yaml(), **values))


@contextmanager
def complete_results(script: str) -> Iterator[None]:
    """A block that raises a `ValueError` if a result is missing that the script should have written."""
    try:
        yield
    except (KeyError, UndefinedError) as error:
        raise ValueError(f"these results lack {error}, which the card states: {script} writes them all") from error
