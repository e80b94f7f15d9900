"""Model card texts for each model type, from `model_descriptions.yaml`."""

from pathlib import Path

import yaml
from transformers import PreTrainedConfig

from .published import published_figure
from .template import render

TASKS = {"perplexity": "language modelling", "f1": "unsupervised constituency parsing"}


def describe_model(
    config: PreTrainedConfig, kind: str = "language_models", tree: str = "", sentence: str = "", beginning: str = ""
) -> dict:
    """Returns the card texts of a model by their keys in the YAML file.

    Args:
        kind: `"language_models"`, or `"classifiers"` of pairs.
        tree, sentence, beginning: values for the template variables of these names.

    Raises:
        ValueError: if the file has no texts for this model type.
    """
    content = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))[kind]
    if config.model_type not in content:
        raise ValueError(
            f'there is no card for {kind} of type "{config.model_type}", only for {", ".join(content)}: '
            "add its texts to onlstm_hf/hub/cards/model_descriptions.yaml"
        )
    texts = content[config.model_type]
    values = {"config": config, "tree": tree, "sentence": sentence, "beginning": beginning}
    values |= {name: published_figure(TASKS[name], system) for name, system in texts.get("reported_as", {}).items()}
    rendered = {name: render(text, **values) for name, text in texts.items() if isinstance(text, str)}
    return rendered | {"tags": [render(tag, **values) for tag in texts["tags"]]}
