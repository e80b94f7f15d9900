"""Tiny models of every kind, for common tests of all models."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch.utils import _pytree as pytree
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from onlstm_hf import (
    ONLSTMConfig,
    ONLSTMForCausalLM,
    ONLSTMForSequenceClassification,
    ONLSTMForSequencePairClassification,
    ONLSTMModel,
    PRPNConfig,
    PRPNForCausalLM,
    PRPNForSequenceClassification,
    PRPNModel,
    RNNConfig,
    RNNForCausalLM,
    RNNForSequenceClassification,
    RNNForSequencePairClassification,
    RNNModel,
)
from onlstm_hf.models.state import ModelState

VOCAB_SIZE, PAD = 13, 12
DROPOUTS = "embedding_dropout", "input_dropout", "hidden_dropout", "output_dropout", "weight_dropout"
SIDES = pytest.mark.parametrize("side", ["left", "right"])  # of the padding


@dataclass(frozen=True)
class Kind:
    """A kind of model: its classes, options of a tiny model, and options that disable dropout."""

    config_class: type[PreTrainedConfig]
    model_class: type[PreTrainedModel]
    causal_class: type[PreTrainedModel]
    sequence_class: type[PreTrainedModel]
    options: dict
    no_dropout: dict = field(default_factory=lambda: dict.fromkeys(DROPOUTS, 0.0))
    pair_class: type[PreTrainedModel] | None = None

    def config(self, **options) -> PreTrainedConfig:
        tiny = {"vocab_size": VOCAB_SIZE, "embedding_size": 8, "hidden_size": 12}
        return self.config_class(**{**tiny, **self.options, **options})

    def make(self, model_class: type[PreTrainedModel] | None = None, **options) -> PreTrainedModel:
        """Returns a model in evaluation mode, by default with a head; large weights make outputs differ."""
        torch.manual_seed(0)
        model = (model_class or self.causal_class)(self.config(**options))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.uniform_(-1, 1)
        return model.eval()


def save_checkpoint(folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> str:
    """Saves a model and its tokenizer, and returns the name of the folder."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


_RNN_CLASSES = {
    "config_class": RNNConfig,
    "model_class": RNNModel,
    "causal_class": RNNForCausalLM,
    "sequence_class": RNNForSequenceClassification,
    "pair_class": RNNForSequencePairClassification,
}
AWD_LSTMS = {
    "onlstm": Kind(
        ONLSTMConfig,
        ONLSTMModel,
        ONLSTMForCausalLM,
        ONLSTMForSequenceClassification,
        {"chunk_size": 4},
        pair_class=ONLSTMForSequencePairClassification,
    ),
    "lstm": Kind(**_RNN_CLASSES, options={"cell_type": "lstm"}),
    "gru": Kind(**_RNN_CLASSES, options={"cell_type": "gru"}),
    "rnn": Kind(**_RNN_CLASSES, options={"cell_type": "rnn"}),
}
PRPN = Kind(
    PRPNConfig,
    PRPNModel,
    PRPNForCausalLM,
    PRPNForSequenceClassification,
    {"num_slots": 3, "lookback": 2},
    no_dropout=dict.fromkeys(("input_dropout", "output_dropout", "recurrent_dropout"), 0.0),
)
KINDS = {**AWD_LSTMS, "prpn": PRPN}
# One kind of each model type, for tests that do not depend on the recurrence.
MODEL_TYPES = {"onlstm": KINDS["onlstm"], "prpn": PRPN, "rnn": KINDS["lstm"]}


def random_rows() -> list[torch.Tensor]:
    """Returns the ids of three sentences of different lengths."""
    torch.manual_seed(1)
    return [torch.randint(PAD, (length,)) for length in (6, 4, 1)]


def random_state(model: PreTrainedModel, batch_size: int) -> ModelState:
    """Returns a state of random numbers between 0 and 1 for a model with a head."""
    torch.manual_seed(3)
    return model.model.initial_state(batch_size).map(torch.rand_like)


def assert_same_state(state: ModelState, expected: ModelState, **tolerances) -> None:
    assert type(state) is type(expected)
    torch.testing.assert_close(pytree.tree_leaves(state), pytree.tree_leaves(expected), **tolerances)


def pad(rows: list[torch.Tensor], side: str) -> tuple[torch.Tensor, torch.Tensor, list[slice]]:
    """Returns padded ids, their mask, and the slice of real tokens in each row."""
    longest = max(map(len, rows))
    places = [slice(longest - len(row), longest) if side == "left" else slice(0, len(row)) for row in rows]
    input_ids = torch.full((len(rows), longest), PAD)
    mask = torch.zeros(len(rows), longest, dtype=torch.long)
    for index, (row, place) in enumerate(zip(rows, places, strict=True)):
        input_ids[index, place] = row
        mask[index, place] = 1
    return input_ids, mask, places
