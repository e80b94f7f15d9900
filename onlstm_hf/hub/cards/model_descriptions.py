"""Texts of model cards for each type of model, from `model_descriptions.yaml`."""

from functools import cache
from pathlib import Path

import yaml
from transformers import PreTrainedConfig

from .published import published_f1, published_perplexity
from .template import render


def describe_model(config: PreTrainedConfig, tree: str = "", sentence: str = "", beginning: str = "") -> dict:
    """The texts of the card of a language model of this configuration, as the YAML file names them.

    Args:
        config: the configuration.
        tree, sentence, beginning: what the texts have in the place of these words.

    Raises:
        ValueError: if there are none of its type.
    """
    texts = _texts("language_models", config)
    rows = {"perplexity": published_perplexity(texts["reported_as"]["perplexity"])}
    if "f1" in texts["reported_as"]:
        rows["f1"] = published_f1(texts["reported_as"]["f1"])
    return _rendered(texts, config=config, tree=tree, sentence=sentence, beginning=beginning, **rows)


def describe_classifier(config: PreTrainedConfig) -> dict:
    """The texts of the card of a classifier of pairs of this configuration, as the YAML file names them.

    Raises:
        ValueError: if there are none of its type.
    """
    return _rendered(_texts("classifiers", config), config=config)


@cache
def _content() -> dict:
    return yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))


def _texts(kind: str, config: PreTrainedConfig) -> dict:
    texts = _content()[kind]
    if config.model_type not in texts:
        raise ValueError(
            f'there is no card for {kind} of type "{config.model_type}", only for {", ".join(texts)}: '
            "add its texts to onlstm_hf/hub/cards/model_descriptions.yaml"
        )
    return texts[config.model_type]


def _rendered(texts: dict, **values) -> dict:
    rendered = {name: render(text, **values) for name, text in texts.items() if isinstance(text, str)}
    return rendered | {"tags": [render(tag, **values) for tag in texts["tags"]]}
