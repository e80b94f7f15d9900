import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from onlstm_hf import PRPNConfig, PRPNForCausalLM
from onlstm_hf.models.modeling_prpn import MaskedBatchNorm, memory_gates
from tests.helpers.tiny_models import PRPN, SIDES, VOCAB_SIZE, pad, random_rows

DISTANCES = st.lists(st.integers(0, 6).map(lambda number: number / 7), min_size=1, max_size=12)


def make_model(**options) -> PRPNForCausalLM:
    """Returns a tiny float64 model with updated running statistics."""
    model = PRPN.make(**options).double()
    for name, buffer in model.named_buffers():
        if "running" in name:
            buffer.uniform_(0.5, 1.5)
    return model


def dependency_range_starts(distances: list[float]) -> list[int]:
    """Returns the start of each word's dependency range: the last earlier word of a larger distance, else word 0."""
    return [
        max((other for other in range(word) if distances[other] > distances[word]), default=0)
        for word in range(len(distances))
    ]


@given(DISTANCES)
def test_gates_at_infinite_temperature_are_the_dependency_ranges(distances):
    num_words = len(distances)
    starts = dependency_range_starts(distances)
    infinite = [float("inf")] * num_words
    own = torch.tensor([distances])
    past = torch.tensor([infinite + distances]).unfold(1, num_words, 1)[:, 1:].flip(-1)
    gates = memory_gates(own, past, resolution=1e-12, hard=True)[0]
    for word in range(num_words):
        # Slot s holds the memory of word `word - 1 - s`; beyond the text there is the memory of nothing.
        opened = [gates[word, slot].item() for slot in range(word)]
        assert opened == [float(word - 1 - slot >= starts[word]) for slot in range(word)]


def test_hard_parsing_gives_the_constituents_of_the_dependency_ranges():
    model = make_model(eos_token_id=0)
    torch.manual_seed(0)
    sentences = [torch.randint(1, 12, (length,)).tolist() for length in (1, 2, 5, 9, 12)] + [[3] * 8]
    for tree in model.parse(sentences, hard=True):
        starts = dependency_range_starts(list(tree.distances))
        spans = set(tree.spans()) | {(word, word + 1) for word in range(len(tree.words))}
        assert {(start, word) for word, start in enumerate(starts) if start < word} <= spans


def test_hard_parsing_and_branching_bias_exclude_each_other():
    model = make_model(eos_token_id=0)
    assert model.parse([1, 2, 3, 2], hard=True) == model.parse([1, 2, 3, 2], branching_bias="ranges")
    with pytest.raises(ValueError, match="""hard=True is branching_bias "ranges", not 'right'"""):
        model.parse([1, 2, 3], hard=True, branching_bias="right")


@SIDES
def test_padding_does_not_change_statistics_or_gradients(side):
    model = make_model(**PRPN.no_dropout, num_residual_blocks=1).train()
    rows = random_rows()
    input_ids, mask, _ = pad(rows, side)
    other_ids = input_ids.where(mask.bool(), 3)
    labels = input_ids.masked_fill(mask == 0, -100)
    outputs = [model(ids, attention_mask=mask, labels=labels) for ids in (input_ids, other_ids)]
    assert torch.equal(outputs[0].loss, outputs[1].loss)
    gradients = [torch.autograd.grad(output.loss, list(model.parameters())) for output in outputs]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize(
    "options",
    [
        {"parsing_network": False},
        {"reading_attention": False},
        {"prediction_attention": False},
        {"parsing_network": False, "reading_attention": False, "prediction_attention": False},
        {"num_residual_blocks": 2},
        {"tie_word_embeddings": False},
        {"lookback": 10, "num_slots": 20},
        {"lookback": 0},
    ],
    ids=str,
)
def test_every_parameter_of_every_configuration_has_a_gradient(options):
    """Distributed data parallel training requires gradients of all weights."""
    model = make_model(**options).train()
    input_ids = torch.randint(VOCAB_SIZE, (3, 6))
    outputs = model(input_ids, labels=input_ids, output_attentions=True)
    outputs.loss.backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())
    config = model.config
    assert len(outputs.attentions) == 2 * config.reading_attention + config.prediction_attention


def test_recurrent_dropout_has_one_mask_for_all_rows_and_steps():
    model = PRPN.make(recurrent_dropout=0.5, input_dropout=0.0, output_dropout=0.0).train()
    layer, row = model.model.reading_network[0], torch.randint(VOCAB_SIZE, (1, 6))
    inputs = model.model.embeddings(row.expand(3, -1))
    state = model.model.initial_state(3)
    memories = tuple(torch.randn_like(memory[:1]).expand_as(memory) for memory in state.memories[0])
    gates = torch.ones(3, 6, model.config.num_slots)
    first, second = (layer(inputs, *memories, gates)[0] for _ in range(2))
    torch.testing.assert_close(first, first[:1].expand_as(first))
    assert not torch.allclose(first, second)
    layer.eval()
    assert not torch.allclose(layer(inputs, *memories, gates)[0], first)


def test_keys_have_dropout_after_their_projection():
    """If all of a key is dropped, including its bias, only the gates distinguish memories."""
    model = PRPN.make(input_dropout=1 - 1e-9, recurrent_dropout=0.0, output_dropout=0.0).train()
    layer, network, slots = model.model.reading_network[0], model.model.predict_network, model.config.num_slots
    for projection in (layer.key_projection, network.key_projection):
        torch.nn.init.ones_(projection.bias)
    row = torch.randint(VOCAB_SIZE, (1, 5))
    memories = tuple(torch.randn_like(memory[:1]) for memory in model.model.initial_state(1).memories[0])
    gates = torch.rand(1, 5, slots)
    tape, _, attention = layer(model.model.embeddings(row), *memories, gates)
    expected = gates / gates.sum(-1, keepdim=True)
    torch.testing.assert_close(attention, expected)
    _, attention = network(tape[:, slots:], tape, gates, None)
    torch.testing.assert_close(attention, expected)


def test_without_a_parsing_network_all_gates_are_open_and_parsing_is_refused():
    model = make_model(parsing_network=False, num_slots=4)
    gates = model(torch.randint(VOCAB_SIZE, (1, 6)), output_distances=True).memory_gates
    expected = torch.ones(6, 4).tril().double()
    assert torch.equal(gates, expected.expand(2, 1, 6, 4))
    assert not model.induces_trees
    with pytest.raises(ValueError, match="this PRPN induces no trees"):
        model.parse([1, 2, 3])


def test_without_reading_attention_a_layer_continues_from_its_newest_memory():
    """The number of slots then only affects the predict network, which does not attend here either."""
    options = {"parsing_network": False, "reading_attention": False, "prediction_attention": False}
    input_ids = torch.randint(VOCAB_SIZE, (2, 6))
    few, many = make_model(**options, num_slots=1), make_model(**options, num_slots=5)
    torch.testing.assert_close(few(input_ids).logits, many(input_ids).logits)


@SIDES
def test_distances_do_not_need_the_reading_network(side):
    model = make_model()
    input_ids, mask, _ = pad(random_rows(), side)
    outputs = model(input_ids, attention_mask=mask, output_distances=True)
    distances, state = model.syntactic_distances(input_ids, mask)
    torch.testing.assert_close(distances, outputs.distances)
    torch.testing.assert_close(state.lookback, outputs.state.lookback)
    more = model(input_ids, state=outputs.state, output_distances=True).distances
    for before in (state, outputs.state):
        torch.testing.assert_close(model.syntactic_distances(input_ids, state=before)[0], more)


def test_distances_refuse_the_state_of_another_batch_size():
    model, ids = make_model(), torch.tensor([[1, 2, 3]])
    _, state = model.syntactic_distances(ids.expand(2, -1))
    with pytest.raises(ValueError, match="the state does not fit the model or batch"):
        model.syntactic_distances(ids, state=state)


def test_layers_have_no_distances_of_their_own():
    model = make_model(eos_token_id=0)
    with pytest.raises(ValueError, match="layer 0 has no distances of its own"):
        model.parse([1, 2, 3], layer=0)
    assert "syntactic distances" in model.draw_distances([1, 2, 3])


def test_weights_are_initialised_as_by_the_authors():
    torch.manual_seed(0)
    model = PRPNForCausalLM(PRPNConfig(vocab_size=500, embedding_size=20, hidden_size=40))
    assert 0.0099 < model.get_input_embeddings().weight.abs().max() <= 0.01
    assert not model.lm_head.bias.any()
    bound = (20 * 6) ** -0.5
    assert 0.9 * bound < model.model.parsing_network.convolution.weight.abs().max() <= bound
    for module in model.modules():
        if isinstance(module, MaskedBatchNorm):
            assert (module.weight == 1).all() and (module.running_var == 1).all() and not module.running_mean.any()
