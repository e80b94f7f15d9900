"""Cards from the Jinja templates of this folder, which refer to the results and to `model_descriptions.yaml`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from huggingface_hub import ModelCard, ModelCardData
from jinja2 import Environment, StrictUndefined, UndefinedError
from transformers import PreTrainedConfig

from .published import published_figure

FOLDER = Path(__file__).parent
TASKS = {"perplexity": "language modelling", "f1": "unsupervised constituency parsing"}


def describe_model(
    config: PreTrainedConfig, kind: str = "language_models", tree: str = "", sentence: str = "", beginning: str = ""
) -> dict:
    """Returns the texts of `model_descriptions.yaml` for a model, by their keys.

    `kind` is `"language_models"`, or `"classifiers"` of pairs. The other arguments are variables of the texts.

    Raises:
        ValueError: if the file has no texts for this model type.
    """
    content = yaml.safe_load((FOLDER / "model_descriptions.yaml").read_text(encoding="utf-8"))[kind]
    if config.model_type not in content:
        raise ValueError(
            f'there is no card for {kind} of type "{config.model_type}", only for {", ".join(content)}: '
            "add its texts to onlstm_hf/hub/cards/model_descriptions.yaml"
        )
    texts = content[config.model_type]
    values = {"config": config, "tree": tree, "sentence": sentence, "beginning": beginning}
    values |= {name: published_figure(TASKS[name], system) for name, system in texts.get("reported_as", {}).items()}
    rendered = {name: _render(text, **values) for name, text in texts.items() if isinstance(text, str)}
    return rendered | {"tags": [_render(tag, **values) for tag in texts["tags"]]}


def fill_template(template: str, metadata: ModelCardData, **values) -> ModelCard:
    """Fills in a template of this folder. (`ModelCard.from_template` would leave missing values empty.)"""
    return ModelCard(_render((FOLDER / template).read_text(encoding="utf-8"), card_data=metadata.to_yaml(), **values))


def _render(text: str, /, **values) -> str:
    return Environment(undefined=StrictUndefined).from_string(text).render(values)


@contextmanager
def complete_results(script: str) -> Iterator[None]:
    """Raises a `ValueError` if the block needs a result that is missing; `script` should have written it."""
    try:
        yield
    except (KeyError, UndefinedError) as error:
        raise ValueError(f"these results lack {error}, which the card states: {script} writes them all") from error
