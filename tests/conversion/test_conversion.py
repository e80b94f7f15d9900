import re

import pytest
import torch

from onlstm_hf import ONLSTMForCausalLM, convert_original_state_dict
from onlstm_hf.conversion.state_dicts import original_vocabulary

VOCAB_SIZE, EMBEDDING_SIZE, CHUNK_SIZE = 17, 8, 4
LAYER_SIZES = [12, 8]


def original_state_dict(layer_sizes=LAYER_SIZES, chunk_size=CHUNK_SIZE, tied=True) -> dict[str, torch.Tensor]:
    """A state dict as the authors' `RNNModel` has it."""
    torch.manual_seed(0)
    state_dict = {
        "encoder.weight": torch.randn(VOCAB_SIZE, EMBEDDING_SIZE),
        "decoder.bias": torch.randn(VOCAB_SIZE),
    }
    if not tied:
        state_dict["decoder.weight"] = torch.randn(VOCAB_SIZE, layer_sizes[-1])
    for layer, (input_size, size) in enumerate(zip([EMBEDDING_SIZE, *layer_sizes], layer_sizes, strict=False)):
        rows = 4 * size + 2 * (size // chunk_size)
        for name, columns in (("ih.0", input_size), ("hh", size)):
            state_dict[f"rnn.cells.{layer}.{name}.weight"] = torch.randn(rows, columns)
            state_dict[f"rnn.cells.{layer}.{name}.bias"] = torch.randn(rows)
    return state_dict


def original_forward(state_dict, input_ids, layer_sizes, chunk_size, weight_dropout):
    """Logits and forget distances `[layers, B, T]` of the authors' model, as its layout of the rows defines it."""
    inputs, distances = state_dict["encoder.weight"][input_ids], []
    for layer, size in enumerate(layer_sizes):
        weights = {name: state_dict[f"rnn.cells.{layer}.{name}"] for name in ("ih.0.weight", "hh.weight")}
        bias = state_dict[f"rnn.cells.{layer}.ih.0.bias"] + state_dict[f"rnn.cells.{layer}.hh.bias"]
        num_chunks = size // chunk_size
        hidden, cell = torch.zeros(len(inputs), size), torch.zeros(len(inputs), num_chunks, chunk_size)
        outputs, layer_distances = [], []
        for step in inputs.unbind(1):
            rows = step @ weights["ih.0.weight"].t() + (1 - weight_dropout) * hidden @ weights["hh.weight"].t() + bias
            masters, gates = rows[:, : 2 * num_chunks], rows[:, 2 * num_chunks :]
            master_input, master_forget = masters.chunk(2, dim=1)
            master_input = (1 - master_input.softmax(-1).cumsum(-1)).unsqueeze(-1)
            master_forget = master_forget.softmax(-1).cumsum(-1).unsqueeze(-1)
            output, candidate, input_, forget = gates.view(-1, 4 * num_chunks, chunk_size).chunk(4, dim=1)
            overlap = master_forget * master_input
            forget = forget.sigmoid() * overlap + (master_forget - overlap)
            input_ = input_.sigmoid() * overlap + (master_input - overlap)
            cell = forget * cell + input_ * candidate.tanh()
            hidden = (output.sigmoid() * cell.tanh()).reshape(-1, size)
            outputs.append(hidden)
            layer_distances.append(1 - master_forget.mean(dim=(1, 2)))
        inputs = torch.stack(outputs, dim=1)
        distances.append(torch.stack(layer_distances, dim=1))
    decoder = state_dict.get("decoder.weight", state_dict["encoder.weight"])
    return inputs @ decoder.t() + state_dict["decoder.bias"], torch.stack(distances)


@pytest.mark.parametrize(
    ("layer_sizes", "chunk_size", "tied"),
    [(LAYER_SIZES, 4, True), ([8], 1, True), ([6, 10, 8], 2, True), ([12, 12], 4, False), ([8], 8, False)],
)
def test_converted_model_computes_what_the_original_does(layer_sizes, chunk_size, tied):
    state_dict = original_state_dict(layer_sizes, chunk_size, tied)
    model = convert_original_state_dict(state_dict, weight_dropout=0.3)
    input_ids = torch.randint(VOCAB_SIZE, (3, 6))
    outputs = model(input_ids, output_distances=True)
    logits, distances = original_forward(state_dict, input_ids, layer_sizes, chunk_size, weight_dropout=0.3)
    torch.testing.assert_close(outputs.logits, logits, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(outputs.forget_distances, distances)


def test_sizes_are_read_off_the_tensors():
    model = convert_original_state_dict(original_state_dict())
    assert isinstance(model, ONLSTMForCausalLM) and not model.training
    config = model.config
    assert (config.vocab_size, config.embedding_size, config.layer_sizes) == (VOCAB_SIZE, EMBEDDING_SIZE, LAYER_SIZES)
    assert (config.num_hidden_layers, config.hidden_size, config.chunk_size, config.parse_layer) == (2, 12, 4, 1)
    assert config.weight_dropout == 0.45
    assert config.tie_word_embeddings and model.lm_head.weight is model.model.embeddings.weight


def test_one_layer_is_parsed_by_its_only_layer():
    assert convert_original_state_dict(original_state_dict([8])).config.parse_layer == 0


def test_a_decoder_of_its_own_stays_untied():
    state_dict = original_state_dict(tied=False)
    model = convert_original_state_dict(state_dict)
    assert not model.config.tie_word_embeddings
    assert torch.equal(model.lm_head.weight, state_dict["decoder.weight"])
    assert torch.equal(model.model.embeddings.weight, state_dict["encoder.weight"])


def test_a_decoder_that_repeats_the_embedding_is_tied():
    state_dict = original_state_dict()
    state_dict["decoder.weight"] = state_dict["encoder.weight"].clone()
    model = convert_original_state_dict(state_dict)
    assert model.config.tie_word_embeddings and model.lm_head.weight is model.model.embeddings.weight


def test_options_go_to_the_configuration():
    config = convert_original_state_dict(
        original_state_dict(), input_dropout=0.2, eos_token_id=0, parse_layer=0
    ).config
    assert (config.input_dropout, config.eos_token_id, config.parse_layer) == (0.2, 0, 0)


def test_the_state_dict_is_copied():
    state_dict = original_state_dict()
    model = convert_original_state_dict(state_dict)
    before = model(torch.tensor([[1, 2]])).logits
    for tensor in state_dict.values():
        tensor.zero_()
    assert torch.equal(model(torch.tensor([[1, 2]])).logits, before)


def test_only_the_original_model_types_are_known():
    with pytest.raises(ValueError, match="not 'lstm'"):
        convert_original_state_dict(original_state_dict(), model_type="lstm")


@pytest.mark.parametrize("name", sorted(original_state_dict()))
def test_a_missing_tensor_is_named(name):
    state_dict = original_state_dict()
    del state_dict[name]
    with pytest.raises(ValueError, match=f'of type "onlstm" of the authors\' code: missing {re.escape(name)}'):
        convert_original_state_dict(state_dict)


@pytest.mark.parametrize("state_dict", [{}, {"model.embeddings.weight": torch.ones(3, 3)}])
def test_a_foreign_state_dict_is_refused(state_dict):
    with pytest.raises(ValueError, match="missing decoder.bias, encoder.weight"):
        convert_original_state_dict(state_dict)


def test_an_unknown_tensor_is_named():
    state_dict = original_state_dict() | {"rnn.cells.0.attention.weight": torch.ones(2)}
    with pytest.raises(ValueError, match="unexpected rnn.cells.0.attention.weight"):
        convert_original_state_dict(state_dict)


@pytest.mark.parametrize("name", sorted(original_state_dict(tied=False)))
@pytest.mark.parametrize("shape", [(3,), (3, 5), (55, 7), (2, 3, 4), ()])
def test_tensors_that_do_not_fit_together_are_refused(name, shape):
    state_dict = original_state_dict(tied=False)
    state_dict[name] = torch.ones(shape)
    with pytest.raises(ValueError, match=r"do not fit together|not that of an ON-LSTM layer|must have 2 dimensions"):
        convert_original_state_dict(state_dict)


def test_layers_of_different_chunk_sizes_are_refused():
    state_dict = original_state_dict([12, 8], 4) | {
        name: tensor for name, tensor in original_state_dict([12, 8], 2).items() if ".cells.1." in name
    }
    with pytest.raises(ValueError, match=r"differ in chunk size: \[2, 4\]"):
        convert_original_state_dict(state_dict)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(value):
    state_dict = original_state_dict()
    state_dict["rnn.cells.1.hh.weight"][3, 2] = value
    with pytest.raises(ValueError, match=r"rnn\.cells\.1\.hh\.weight contains NaN or infinity"):
        convert_original_state_dict(state_dict)


def test_ids_follow_the_first_appearance_of_the_words(tmp_path):
    (tmp_path / "train.txt").write_text(" the <unk> cat \n sat on the mat . \n")
    (tmp_path / "valid.txt").write_text(" it saw dogs the \n old dog that N \n")
    first_line, the_rest = ["the", "<unk>", "cat", "<eos>"], ["sat", "on", "mat", ".", "it", "saw", "dogs"]
    expected = [*first_line, *the_rest, "old", "dog", "that", "N"]
    assert original_vocabulary([tmp_path / "train.txt", tmp_path / "valid.txt"]) == expected
