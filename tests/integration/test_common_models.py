"""Common tests of Transformers for all models, run on the models of this package.

Besides the required "model tester", this file overrides the few tests that need features which the models lack, each
with the reason. `PipelineTesterMixin` is no base class, because it only runs pipelines of models in a list on the Hub
(`tiny_model_summary.json`); test_transformers_integration.py tests pipelines.
"""

import unittest
from unittest.mock import patch

import pytest
import torch
from transformers import PreTrainedConfig, PreTrainedModel

from tests.helpers.tiny_models import MODEL_TYPES, PRPN, Kind
from tests.helpers.transformers_tests import common_tests

modeling = common_tests("test_modeling_common")
ConfigTester = common_tests("test_configuration_common").ConfigTester
TrainingTesterMixin = common_tests("test_training_mixin").TrainingTesterMixin


class ModelTester:
    """Tiny configurations and inputs, with the attribute names that the common tests read."""

    batch_size, seq_length = 3, 7
    num_hidden_layers = 2
    is_training = True

    def __init__(self, kind: Kind, **options):
        self.kind, self.options, self.causal_lm_class = kind, options, kind.causal_class
        # The first hidden state is the embedded input.
        self.hidden_size = kind.config().embedding_size

    def get_config(self) -> PreTrainedConfig:
        ids = {"vocab_size": 99, "pad_token_id": 98, "eos_token_id": 97, "bos_token_id": 97}
        sizes = {"num_hidden_layers": self.num_hidden_layers, "num_labels": 3}
        return self.kind.config(**{**ids, **sizes, **self.kind.no_dropout, **self.options})

    def prepare_config_and_inputs_for_common(self) -> tuple[PreTrainedConfig, dict[str, torch.Tensor]]:
        ids = torch.randint(97, (self.batch_size, self.seq_length))
        return self.get_config(), {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


class PairTester(ModelTester):
    """Joins both sides of the pairs as tokenizers do."""

    def prepare_config_and_inputs_for_common(self) -> tuple[PreTrainedConfig, dict[str, torch.Tensor]]:
        config, inputs = super().prepare_config_and_inputs_for_common()
        sides = torch.tensor([0, 0, 0, 0, 1, 1, 1]).expand(self.batch_size, -1)
        return config, {**inputs, "token_type_ids": sides}


class Common(modeling.ModelTesterMixin):
    """Common settings of all models."""

    kind: Kind
    class_of_tester: type[ModelTester] = ModelTester
    options: dict = {}
    # The attentions of a PRPN are those to memories; there is no attention between the positions of a sequence.
    has_attentions = False

    @property
    def model_tester(self) -> ModelTester:
        return self.class_of_tester(self.kind, **self.options)

    def classes_with_loss(self) -> tuple[type[PreTrainedModel], ...]:
        return self.all_model_classes

    def _prepare_for_class(self, inputs_dict, model_class, return_labels=False):
        # Transformers derives the shape of labels from class names of its own models.
        inputs = super()._prepare_for_class(inputs_dict, model_class)
        if return_labels and model_class in self.classes_with_loss():
            is_causal = model_class is self.kind.causal_class
            inputs["labels"] = inputs["input_ids"] if is_causal else torch.zeros(3, dtype=torch.long)
        return inputs

    def test_training(self):
        # It also excludes models without a loss by class names.
        with patch.object(type(self), "all_model_classes", self.classes_with_loss()):
            super().test_training()

    def test_configuration(self):
        tester = ConfigTester(self, self.kind.config_class, common_properties=["hidden_size", "num_hidden_layers"])
        tester.run_common_tests()


class LanguageModels(Common, modeling.GenerationTesterMixin, TrainingTesterMixin):
    training_overfit_steps = 200
    training_overfit_seq_length = 8
    training_overfit_learning_rate = 0.03

    @property
    def all_model_classes(self):
        return self.kind.model_class, self.kind.causal_class, self.kind.sequence_class

    def classes_with_loss(self):
        return self.kind.causal_class, self.kind.sequence_class

    @pytest.mark.slow
    def test_training_overfit(self):
        self.options = {"embedding_size": 64, "hidden_size": 64}
        if self.kind is not PRPN:
            # The penalties in the loss do not vanish.
            self.options |= {"activation_regularization": 0.0, "temporal_activation_regularization": 0.0}
        super().test_training_overfit()


class PairClassifiers(Common):
    class_of_tester = PairTester

    @property
    def all_model_classes(self):
        return (self.kind.pair_class,)

    no_hidden_states = unittest.skip(
        "the rows of a batch are encoded in groups of similar length, without hidden states"
    )
    test_hidden_states_output = no_hidden_states(Common.test_hidden_states_output)
    test_retain_grad_hidden_states_attentions = no_hidden_states(Common.test_retain_grad_hidden_states_attentions)

    def test_model_outputs_equivalence(self):
        # The test of Transformers continues with hidden states.
        config, inputs = self.model_tester.prepare_config_and_inputs_for_common()
        (model_class,) = self.all_model_classes
        model, inputs = model_class(config).eval(), self._prepare_for_class(inputs, model_class, return_labels=True)
        with torch.no_grad():
            torch.testing.assert_close(model(**inputs, return_dict=False), model(**inputs).to_tuple())


def _of(base: type, kinds: dict[str, Kind]) -> dict[str, type[unittest.TestCase]]:
    """Creates a test class for each kind of model."""
    names = {f"Test{kind.upper()}{base.__name__}": kind for kind in kinds}
    return {name: type(name, (base, unittest.TestCase), {"kind": kinds[kind]}) for name, kind in names.items()}


globals().update(_of(LanguageModels, MODEL_TYPES))
globals().update(_of(PairClassifiers, {name: kind for name, kind in MODEL_TYPES.items() if kind.pair_class}))
