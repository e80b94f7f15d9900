import re

import pytest
import torch

from onlstm_hf import ONLSTMForCausalLM, convert_original_state_dict
from tests.helpers.original_files import onlstm_checkpoint, state_dict_of


def original_state_dict(tied=True, **sizes) -> dict[str, torch.Tensor]:
    """Returns a state dict of the authors' `RNNModel` with 15 words and layers of 12 and 8 units."""
    state_dict = state_dict_of(onlstm_checkpoint(**{"num_layers": 2, **sizes}))
    del state_dict["decoder.weight"]
    return state_dict if tied else state_dict | {"decoder.weight": torch.randn(15, 8)}


def layers_of_different_chunk_sizes() -> dict[str, torch.Tensor]:
    other = original_state_dict(chunk_size=2)
    return original_state_dict() | {name: other[name] for name in other if ".cells.1." in name}


def test_sizes_are_read_from_the_tensors():
    model = convert_original_state_dict(original_state_dict())
    assert isinstance(model, ONLSTMForCausalLM) and not model.training
    config = model.config
    assert (config.vocab_size, config.embedding_size, config.layer_sizes) == (15, 8, [12, 8])
    assert (config.num_hidden_layers, config.hidden_size, config.chunk_size, config.parse_layer) == (2, 12, 4, 1)
    assert config.weight_dropout == 0.45
    assert config.tie_word_embeddings and model.lm_head.weight is model.model.embeddings.weight
    assert convert_original_state_dict(original_state_dict(num_layers=1)).config.parse_layer == 0


def test_an_untied_decoder_stays_untied():
    state_dict = original_state_dict(tied=False)
    model = convert_original_state_dict(state_dict)
    assert not model.config.tie_word_embeddings
    assert torch.equal(model.lm_head.weight, state_dict["decoder.weight"])
    assert torch.equal(model.model.embeddings.weight, state_dict["encoder.weight"])


def test_the_state_dict_is_copied():
    state_dict = original_state_dict()
    model = convert_original_state_dict(state_dict)
    before = model(torch.tensor([[1, 2]])).logits
    for tensor in state_dict.values():
        tensor.zero_()
    assert torch.equal(model(torch.tensor([[1, 2]])).logits, before)


@pytest.mark.parametrize("name", sorted(original_state_dict()))
def test_a_missing_tensor_is_named(name):
    state_dict = original_state_dict()
    del state_dict[name]
    with pytest.raises(ValueError, match=f'of type "onlstm" of the authors\' code: missing {re.escape(name)}'):
        convert_original_state_dict(state_dict)


@pytest.mark.parametrize(
    ("state_dict", "options", "message"),
    [
        ({}, {}, "missing decoder.bias, encoder.weight"),
        ({"model.embeddings.weight": torch.ones(3, 3)}, {}, "missing decoder.bias, encoder.weight"),
        (original_state_dict() | {"rnn.cells.0.attention.weight": torch.ones(2)}, {}, "unexpected rnn.cells.0.attent"),
        (original_state_dict(), {"model_type": "lstm"}, "not 'lstm'"),
        (layers_of_different_chunk_sizes(), {}, r"should be \[36, 12\], but is \[40, 12\]"),
    ],
)
def test_a_foreign_state_dict_or_model_type_is_refused(state_dict, options, message):
    with pytest.raises(ValueError, match=message):
        convert_original_state_dict(state_dict, **options)


@pytest.mark.parametrize("name", sorted(original_state_dict(tied=False)))
@pytest.mark.parametrize("shape", [(3,), (3, 5), (55, 7), (2, 3, 4), ()])
def test_inconsistent_tensors_are_refused(name, shape):
    state_dict = original_state_dict(tied=False)
    state_dict[name] = torch.ones(shape)
    with pytest.raises(ValueError, match=r"do not fit together|must have 2 dimensions|chunk_size"):
        convert_original_state_dict(state_dict)


def test_non_finite_weights_are_refused():
    for value in (float("nan"), float("inf")):
        state_dict = original_state_dict()
        state_dict["rnn.cells.1.hh.weight"][3, 2] = value
        with pytest.raises(ValueError, match=r"rnn\.cells\.1\.hh\.weight contains NaN or infinity"):
            convert_original_state_dict(state_dict)
