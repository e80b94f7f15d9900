"""Cards from the Jinja templates of this folder, which refer to the fields of the results."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from huggingface_hub import ModelCard, ModelCardData
from jinja2 import Environment, StrictUndefined, UndefinedError


def render(text: str, /, **values) -> str:
    """Renders a Jinja template; a missing value raises an `UndefinedError`."""
    return Environment(undefined=StrictUndefined).from_string(text).render(values)


def fill_template(template: str, metadata: ModelCardData, **values) -> ModelCard:
    """Fills in a template of this folder. (`ModelCard.from_template` would leave missing values empty.)"""
    text = Path(__file__).with_name(template).read_text(encoding="utf-8")
    return ModelCard(render(text, card_data=metadata.to_yaml(), **values))


@contextmanager
def complete_results(script: str) -> Iterator[None]:
    """Raises a `ValueError` if the block needs a result that is missing; `script` should have written it."""
    try:
        yield
    except (KeyError, UndefinedError) as error:
        raise ValueError(f"these results lack {error}, which the card states: {script} writes them all") from error
