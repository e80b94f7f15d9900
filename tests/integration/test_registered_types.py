"""Every registered model type has tests, documentation, a model card text and public names."""

from dataclasses import fields

import pytest
from transformers import AutoModelForCausalLM, PreTrainedConfig

import onlstm_hf
from onlstm_hf.hub.cards.template import describe_model
from onlstm_hf.registration import MODEL_CLASSES
from tests.helpers.tiny_models import MODEL_TYPES
from tests.models import test_tree_lstm

# Models over gold trees are not language models and have other tests.
TESTED_ALONE = {"tree_lstm": test_tree_lstm}


def classes_of(models: dict) -> set[type]:
    """Returns the model classes of one type; an Auto class may have several."""
    return {one for found in models.values() for one in (found if isinstance(found, tuple) else (found,))}


@pytest.mark.parametrize("config_class", MODEL_CLASSES, ids=lambda config_class: config_class.model_type)
def test_a_registered_type_is_tested_and_has_a_card_and_public_names(config_class):
    models = MODEL_CLASSES[config_class]
    names = {public.__name__ for public in [config_class, *classes_of(models)]}
    assert names <= set(onlstm_hf.__all__), "names are missing in onlstm_hf/public_names.py"
    is_language_model = AutoModelForCausalLM in models
    tested = MODEL_TYPES if is_language_model else TESTED_ALONE
    assert config_class.model_type in tested, (
        "it is in no table of tests (MODEL_TYPES in tests/helpers/tiny_models.py)"
    )
    # Without a text in onlstm_hf/hub/cards/model_descriptions.yaml this is an error.
    describe_model(config_class(), "language_models" if is_language_model else "classifiers")


@pytest.mark.parametrize("kind", MODEL_TYPES.values(), ids=MODEL_TYPES)
def test_the_docstring_of_a_configuration_names_every_field_of_the_package(kind):
    own = {field.name for field in fields(kind.config_class)} - {field.name for field in fields(PreTrainedConfig)}
    own -= {"pad_token_id", "bos_token_id", "eos_token_id"}  # as in Transformers
    text = kind.config_class.__doc__
    assert [name for name in sorted(own) if f"{name} (`" not in text and f"`{name}`" not in text] == []
