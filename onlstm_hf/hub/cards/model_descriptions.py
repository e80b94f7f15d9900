"""Model card texts for each model type, from `model_descriptions.yaml`."""

from pathlib import Path

import yaml
from transformers import PreTrainedConfig

from .published import published_figure
from .template import render


def describe_model(config: PreTrainedConfig, tree: str = "", sentence: str = "", beginning: str = "") -> dict:
    """Returns the card texts of a language model by their keys in the YAML file.

    Args:
        config: the configuration.
        tree, sentence, beginning: values for the template variables of these names.

    Raises:
        ValueError: if the file has no texts for this model type.
    """
    texts = _texts("language_models", config)
    tasks = {"perplexity": "language modelling", "f1": "unsupervised constituency parsing"}
    rows = {name: published_figure(tasks[name], system) for name, system in texts["reported_as"].items()}
    return _rendered(texts, config=config, tree=tree, sentence=sentence, beginning=beginning, **rows)


def describe_classifier(config: PreTrainedConfig) -> dict:
    """Returns the card texts of a classifier of pairs by their keys in the YAML file.

    Raises:
        ValueError: if the file has no texts for this model type.
    """
    return _rendered(_texts("classifiers", config), config=config)


def _texts(kind: str, config: PreTrainedConfig) -> dict:
    texts = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))[kind]
    if config.model_type not in texts:
        raise ValueError(
            f'there is no card for {kind} of type "{config.model_type}", only for {", ".join(texts)}: '
            "add its texts to onlstm_hf/hub/cards/model_descriptions.yaml"
        )
    return texts[config.model_type]


def _rendered(texts: dict, **values) -> dict:
    rendered = {name: render(text, **values) for name, text in texts.items() if isinstance(text, str)}
    return rendered | {"tags": [render(tag, **values) for tag in texts["tags"]]}
