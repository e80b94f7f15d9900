import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from onlstm_hf import ONLSTMConfig, ONLSTMForCausalLM, ONLSTMModel
from onlstm_hf.modeling_onlstm import ONLSTMCausalLMOutput, ONLSTMModelOutput
from onlstm_hf.recurrent_state import RecurrentState

VOCAB_SIZE, PAD = 13, 12
LENGTHS = [6, 4, 1]
NO_DROPOUT = dict.fromkeys(
    ("embedding_dropout", "input_dropout", "hidden_dropout", "output_dropout", "weight_dropout"), 0.0
)
SIDES = pytest.mark.parametrize("side", ["left", "right"])


def make_model(model_class=ONLSTMForCausalLM, **options) -> ONLSTMForCausalLM | ONLSTMModel:
    """A tiny model in evaluation mode whose weights are large enough for its outputs to differ."""
    torch.manual_seed(0)
    defaults = {"vocab_size": VOCAB_SIZE, "embedding_size": 8, "hidden_size": 12, "chunk_size": 4}
    model = model_class(ONLSTMConfig(**{**defaults, **options}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-1, 1)
    return model.eval()


@pytest.fixture
def model() -> ONLSTMForCausalLM:
    return make_model()


@pytest.fixture
def rows() -> list[torch.Tensor]:
    torch.manual_seed(1)
    return [torch.randint(PAD, (length,)) for length in LENGTHS]


@pytest.fixture
def input_ids() -> torch.Tensor:
    torch.manual_seed(2)
    return torch.randint(VOCAB_SIZE, (3, 6))


def random_state(model: ONLSTMForCausalLM, batch_size: int) -> RecurrentState:
    torch.manual_seed(3)
    return RecurrentState(
        tuple(
            (torch.rand(batch_size, size), torch.rand(batch_size, size // 4, 4)) for size in model.config.layer_sizes
        )
    )


def pad(rows: list[torch.Tensor], side: str) -> tuple[torch.Tensor, torch.Tensor, list[slice]]:
    """Padded ids, their mask, and where in each row the real tokens stand."""
    longest = max(map(len, rows))
    places = [slice(longest - len(row), longest) if side == "left" else slice(0, len(row)) for row in rows]
    input_ids = torch.full((len(rows), longest), PAD)
    mask = torch.zeros(len(rows), longest, dtype=torch.long)
    for index, (row, place) in enumerate(zip(rows, places, strict=True)):
        input_ids[index, place] = row
        mask[index, place] = 1
    return input_ids, mask, places


def assert_same_state(state: RecurrentState, expected: RecurrentState, **tolerances):
    for ours, theirs in zip(state.layers, expected.layers, strict=True):
        for tensor, wanted in zip(ours, theirs, strict=True):
            torch.testing.assert_close(tensor, wanted, **tolerances)


@SIDES
@pytest.mark.parametrize("with_state", [False, True])
def test_padding_does_not_change_logits_distances_hidden_states_or_the_final_state(model, rows, side, with_state):
    state = random_state(model, len(rows)) if with_state else None
    input_ids, mask, places = pad(rows, side)
    options = {"output_distances": True, "output_hidden_states": True}
    padded = model(input_ids, attention_mask=mask, state=state, **options)
    for index, (row, place) in enumerate(zip(rows, places, strict=True)):
        row_state = state.index_select(torch.tensor([index])) if with_state else None
        alone = model(row.unsqueeze(0), state=row_state, **options)
        torch.testing.assert_close(padded.logits[index, place], alone.logits[0])
        for name in ("forget_distances", "input_distances"):
            torch.testing.assert_close(getattr(padded, name)[:, index, place], getattr(alone, name)[:, 0])
        for layer, hidden in enumerate(alone.hidden_states):
            torch.testing.assert_close(padded.hidden_states[layer][index, place], hidden[0])
        assert_same_state(padded.state.index_select(torch.tensor([index])), alone.state)


@SIDES
def test_distances_are_zero_at_padding(model, rows, side):
    input_ids, mask, _ = pad(rows, side)
    outputs = model(input_ids, attention_mask=mask, output_distances=True)
    for distances in (outputs.forget_distances, outputs.input_distances):
        assert (distances[:, mask == 0] == 0).all()
        assert (distances[:, mask == 1] > 0).all()


@SIDES
def test_what_stands_at_padding_does_not_matter(model, rows, side):
    input_ids, mask, _ = pad(rows, side)
    real = mask.bool()
    first = model(input_ids, attention_mask=mask)
    second = model(input_ids.where(real, 3), attention_mask=mask.bool())
    assert torch.equal(first.logits[real], second.logits[real])
    assert_same_state(first.state, second.state, rtol=0, atol=0)


@SIDES
def test_padding_does_not_change_loss_penalties_or_gradients(rows, side):
    """A batch of sentences in training: the sums over the sentences alone, put together by their counts."""
    model = make_model(**NO_DROPOUT).train()
    input_ids, mask, _ = pad(rows, side)
    labels = input_ids.masked_fill(mask == 0, -100)
    outputs = model(input_ids, attention_mask=mask, labels=labels)
    gradients = torch.autograd.grad(outputs.loss, list(model.parameters()))

    totals = dict.fromkeys(("cross_entropy", "activation_penalty", "temporal_activation_penalty"), 0.0)
    for row in rows:
        alone = model(row.unsqueeze(0), labels=row.unsqueeze(0))
        counts = {"cross_entropy": len(row) - 1, "activation_penalty": len(row)}
        for name in totals:
            totals[name] = totals[name] + getattr(alone, name) * counts.get(name, len(row) - 1)
    totals["activation_penalty"] = totals["activation_penalty"] / sum(map(len, rows))
    for name in ("cross_entropy", "temporal_activation_penalty"):
        totals[name] = totals[name] / sum(len(row) - 1 for row in rows)
    for name, expected in totals.items():
        torch.testing.assert_close(getattr(outputs, name), expected)
    for ours, theirs in zip(
        gradients, torch.autograd.grad(sum(totals.values()), list(model.parameters())), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@settings(max_examples=10, deadline=None)
@given(cuts=st.sets(st.integers(1, 7)))
def test_chunks_with_the_state_equal_the_whole_sequence(cuts):
    model = make_model()
    input_ids = torch.randint(VOCAB_SIZE, (2, 8))
    whole = model(input_ids, output_distances=True)
    state, logits, distances = None, [], []
    for chunk in input_ids.tensor_split(sorted(cuts), dim=1):
        outputs = model(chunk, state=state, output_distances=True)
        state = outputs.state
        logits.append(outputs.logits)
        distances.append(outputs.forget_distances)
    torch.testing.assert_close(torch.cat(logits, dim=1), whole.logits)
    torch.testing.assert_close(torch.cat(distances, dim=2), whole.forget_distances)
    assert_same_state(state, whole.state)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_one_token_at_a_time_equals_the_whole_sequence(input_ids, dtype):
    model = make_model().to(dtype)
    whole = model(input_ids)
    state, logits = None, []
    for token in input_ids.unbind(1):
        outputs = model(token.unsqueeze(1), state=state)
        state = outputs.state
        logits.append(outputs.logits)
    tolerances = {} if dtype == torch.float32 else {"rtol": 0, "atol": 0.05}
    torch.testing.assert_close(torch.cat(logits, dim=1), whole.logits, **tolerances)
    assert_same_state(state, whole.state, **tolerances)


def test_gradients_flow_through_the_state_and_stop_where_it_is_detached(model, input_ids):
    first = model(input_ids[:, :3])
    model(input_ids[:, 3:], state=first.state.detach()).logits.sum().backward(retain_graph=True)
    cut = model.model.layers[0].recurrent_projection.weight.grad.clone()
    model.zero_grad()
    model(input_ids[:, 3:], state=first.state).logits.sum().backward()
    through = model.model.layers[0].recurrent_projection.weight.grad.clone()
    model.zero_grad()
    model(input_ids).logits[:, 3:].sum().backward()
    torch.testing.assert_close(through, model.model.layers[0].recurrent_projection.weight.grad)
    assert not torch.allclose(cut, through)


def test_the_given_state_is_not_changed(model, input_ids):
    state = random_state(model, 3)
    before = copy.deepcopy(state)
    model(input_ids, state=state)
    assert_same_state(state, before, rtol=0, atol=0)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda state: state.index_select(torch.tensor([0, 1])),
        lambda state: RecurrentState(state.layers[:2]),
        lambda state: RecurrentState(tuple(layer[:1] for layer in state.layers)),
        lambda state: RecurrentState((state.layers[2], *state.layers[1:])),
        lambda state: state.map(lambda tensor: tensor.flatten(1)),
    ],
    ids=["rows", "layers", "tensors", "sizes", "chunks"],
)
def test_a_state_that_does_not_fit_is_refused(model, input_ids, spoil):
    with pytest.raises(ValueError, match="the state does not fit this model and batch: expected tensors of shapes"):
        model(input_ids, state=spoil(random_state(model, 3)))


@pytest.mark.parametrize("use_cache", [True, False, None])
@pytest.mark.parametrize("default", [True, False])
def test_use_cache_says_whether_the_state_is_returned_and_nothing_else(input_ids, use_cache, default):
    model = make_model(use_cache=default)
    outputs = model(input_ids, use_cache=use_cache)
    assert (outputs.state is not None) == (default if use_cache is None else use_cache)
    assert torch.equal(outputs.logits, model(input_ids).logits)


def test_inputs_embeds_take_the_place_of_input_ids(model, input_ids):
    embedded = model.get_input_embeddings()(input_ids)
    assert torch.equal(model(inputs_embeds=embedded).logits, model(input_ids).logits)
    assert torch.equal(model.model(inputs_embeds=embedded).last_hidden_state, model.model(input_ids).last_hidden_state)


@pytest.mark.parametrize("inputs", [{}, {"input_ids": torch.ones(1, 2).long(), "inputs_embeds": torch.ones(1, 2, 8)}])
def test_exactly_one_kind_of_input_is_needed(model, inputs):
    with pytest.raises(ValueError, match="exactly one of input_ids and inputs_embeds"):
        model(**inputs)


@pytest.mark.parametrize(
    "inputs", [{"input_ids": torch.ones(2, 0).long()}, {"inputs_embeds": torch.ones(2, 0, 8)}], ids=["ids", "embeds"]
)
def test_an_empty_sequence_is_refused(model, inputs):
    with pytest.raises(ValueError, match="the input is empty"):
        model(**inputs)


@pytest.mark.parametrize("shape", [(5,), (0,), (1, 2, 3)])
def test_input_ids_that_are_not_a_batch_of_sequences_are_refused(model, shape):
    with pytest.raises(ValueError, match=r"input_ids must be \[batch_size, sequence_length\]"):
        model(torch.ones(shape, dtype=torch.long))


@pytest.mark.parametrize("shape", [(2, 8), (2, 3, 7)])
def test_inputs_embeds_of_another_size_are_refused(model, shape):
    with pytest.raises(ValueError, match=r"inputs_embeds must be \[batch_size, sequence_length, 8\]"):
        model(inputs_embeds=torch.ones(shape))


@pytest.mark.parametrize("token", [VOCAB_SIZE, -1, 10**6])
def test_ids_outside_the_vocabulary_are_refused(model, input_ids, token):
    input_ids[1, 2] = token
    with pytest.raises(ValueError, match=f"input_ids hold the id {token}, which is outside the vocabulary of 13"):
        model(input_ids)


@pytest.mark.parametrize("shape", [(3, 5), (6, 3), (6,), (3, 1)])
def test_a_mask_of_another_shape_is_refused(model, input_ids, shape):
    with pytest.raises(ValueError, match=r"attention_mask must have the shape of the input, \[3, 6\]"):
        model(input_ids, attention_mask=torch.ones(shape))


def test_labels_of_another_shape_are_refused(model, input_ids):
    with pytest.raises(ValueError, match=r"labels must be \[3, 6\]"):
        model(input_ids, labels=input_ids[:, 1:])


def test_labels_outside_the_vocabulary_are_refused(model, input_ids):
    labels = input_ids.clone()
    labels[1, 2] = VOCAB_SIZE
    with pytest.raises(ValueError, match="labels hold the id 13"):
        model(input_ids, labels=labels)


def test_hidden_states_are_the_embedded_input_and_the_output_of_every_layer(model, input_ids):
    outputs = model(input_ids, output_hidden_states=True)
    assert [tuple(hidden.shape) for hidden in outputs.hidden_states] == [(3, 6, size) for size in (8, 12, 12, 8)]
    assert torch.equal(outputs.hidden_states[0], model.get_input_embeddings()(input_ids))
    torch.testing.assert_close(model.lm_head(outputs.hidden_states[-1]), outputs.logits)
    for (hidden, _), layer_output in zip(outputs.state.layers, outputs.hidden_states[1:], strict=True):
        assert torch.equal(hidden, layer_output[:, -1])


def test_shapes_of_what_is_returned(model, input_ids):
    outputs = model(input_ids, labels=input_ids, output_distances=True)
    assert isinstance(outputs, ONLSTMCausalLMOutput)
    assert outputs.loss.shape == ()
    assert outputs.logits.shape == (3, 6, VOCAB_SIZE)
    assert outputs.forget_distances.shape == outputs.input_distances.shape == (3, 3, 6)
    assert [[tuple(t.shape) for t in layer] for layer in outputs.state.layers] == [
        [(3, 12), (3, 3, 4)],
        [(3, 12), (3, 3, 4)],
        [(3, 8), (3, 2, 4)],
    ]
    base = model.model(input_ids)
    assert isinstance(base, ONLSTMModelOutput)
    assert base.last_hidden_state.shape == (3, 6, 8)


def test_what_was_not_asked_for_is_not_returned(model, input_ids):
    assert list(model(input_ids)) == ["logits", "state"]
    assert list(model.model(input_ids)) == ["last_hidden_state", "state"]


@pytest.mark.parametrize("part", ["head", "base"])
def test_return_dict_false_gives_the_same_as_a_tuple(model, input_ids, part):
    module = model if part == "head" else model.model
    options = {"output_hidden_states": True, "output_distances": True}
    if part == "head":
        options["labels"] = input_ids
    expected = module(input_ids, **options)
    values = module(input_ids, return_dict=False, **options)
    assert isinstance(values, tuple) and len(values) == len(expected)
    for name, value in zip(expected, values, strict=True):
        if name == "state":
            assert_same_state(value, expected.state, rtol=0, atol=0)
        else:
            torch.testing.assert_close(value, expected[name], rtol=0, atol=0)


def test_options_of_the_configuration_are_the_defaults(input_ids):
    model = make_model(output_hidden_states=True, return_dict=False)
    logits, state, hidden_states = model(input_ids)
    assert logits.shape == (3, 6, VOCAB_SIZE) and len(hidden_states) == 4
    assert model(input_ids, output_hidden_states=False, return_dict=True).hidden_states is None


@pytest.mark.parametrize(("kept", "positions"), [(0, range(6)), (1, [5]), (2, [4, 5]), (torch.tensor([0, 3]), [0, 3])])
def test_logits_to_keep_computes_only_those(model, input_ids, kept, positions):
    expected = model(input_ids).logits[:, list(positions)]
    torch.testing.assert_close(model(input_ids, logits_to_keep=kept).logits, expected)


def test_model_and_head_agree(model, input_ids):
    base = model.model(input_ids)
    torch.testing.assert_close(model.lm_head(base.last_hidden_state), model(input_ids).logits)


def test_syntactic_distances_are_the_forget_distances_of_the_parse_layer(model, input_ids):
    outputs = model(input_ids, output_distances=True)
    for layer in (None, 0, 1, 2):
        distances, state = model.syntactic_distances(input_ids, layer=layer)
        assert torch.equal(distances, outputs.forget_distances[1 if layer is None else layer])
        assert_same_state(state, outputs.state, rtol=0, atol=0)


@pytest.mark.parametrize("layer", [3, -1])
def test_distances_of_a_layer_that_does_not_exist_are_refused(model, input_ids, layer):
    with pytest.raises(ValueError, match=f"layer {layer} does not exist: this model's layers are 0 to 2"):
        model.syntactic_distances(input_ids, layer=layer)


def test_labels_are_shifted_and_shift_labels_are_not(model, input_ids):
    logits = model(input_ids).logits
    expected = F.cross_entropy(logits[:, :-1].flatten(0, 1), input_ids[:, 1:].flatten())
    torch.testing.assert_close(model(input_ids, labels=input_ids).loss, expected)
    next_ids = torch.cat([input_ids[:, 1:], torch.full((3, 1), -100)], dim=1)
    torch.testing.assert_close(model(input_ids, shift_labels=next_ids).loss, expected)
    torch.testing.assert_close(
        model(input_ids, shift_labels=input_ids).loss, F.cross_entropy(logits.flatten(0, 1), input_ids.flatten())
    )


def test_penalties_follow_their_definition_in_training(input_ids):
    """AR looks at the dropped output, TAR at the output before dropout."""
    model = make_model(activation_regularization=3.0, temporal_activation_regularization=5.0).train()
    seen = {}
    model.model.output_dropout.register_forward_hook(lambda _, inputs, output: seen.update(raw=inputs[0], out=output))
    outputs = model(input_ids, labels=input_ids)
    assert not torch.equal(seen["raw"], seen["out"])
    torch.testing.assert_close(outputs.activation_penalty, 3 * seen["out"].pow(2).mean())
    torch.testing.assert_close(outputs.temporal_activation_penalty, 5 * seen["raw"].diff(dim=0).pow(2).mean())
    torch.testing.assert_close(
        outputs.loss, outputs.cross_entropy + outputs.activation_penalty + outputs.temporal_activation_penalty
    )


def test_evaluation_has_no_penalties(model, input_ids):
    outputs = model(input_ids, labels=input_ids)
    assert outputs.activation_penalty is None and outputs.temporal_activation_penalty is None
    assert torch.equal(outputs.loss, outputs.cross_entropy)


def test_a_single_token_has_no_temporal_penalty():
    model = make_model().train()
    outputs = model(torch.tensor([[3]]), shift_labels=torch.tensor([[4]]))
    assert outputs.temporal_activation_penalty.item() == 0
    assert outputs.loss.isfinite()


@SIDES
def test_penalties_leave_padding_out(rows, side):
    model = make_model().train()
    seen = {}
    model.model.output_dropout.register_forward_hook(lambda _, inputs, output: seen.update(raw=inputs[0], out=output))
    input_ids, mask, places = pad(rows, side)
    outputs = model(input_ids, attention_mask=mask, labels=input_ids)
    real = [(seen["raw"][place, index], seen["out"][place, index]) for index, place in enumerate(places)]
    squares = torch.cat([out.pow(2) for _, out in real])
    changes = torch.cat([raw.diff(dim=0).pow(2) for raw, _ in real])
    torch.testing.assert_close(outputs.activation_penalty, 2 * squares.mean())
    torch.testing.assert_close(outputs.temporal_activation_penalty, changes.mean())


def test_accumulated_gradients_equal_those_of_the_whole_batch(input_ids):
    """With `num_items_in_batch` as `Trainer` gives it, halves of a batch add up to the batch, penalties included."""
    model = make_model(**NO_DROPOUT).train()
    input_ids = torch.cat([input_ids, input_ids.flip(0)])[:4]
    expected = model(input_ids, labels=input_ids).loss
    num_items = torch.tensor(4 * 5)
    halves = [model(half, labels=half, num_items_in_batch=num_items).loss for half in input_ids.split(2)]
    torch.testing.assert_close(sum(halves), expected)
    for ours, theirs in zip(
        *(torch.autograd.grad(loss, list(model.parameters())) for loss in (sum(halves), expected)), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"num_hidden_layers": 1, "parse_layer": 0},
        {"num_hidden_layers": 2},
        {"num_hidden_layers": 4},
        {"layer_sizes": [16, 12, 8]},
        {"layer_sizes": [16, 20, 12], "tie_word_embeddings": False},
        {"tie_word_embeddings": False},
        {"chunk_size": 1},
    ],
    ids=str,
)
def test_every_parameter_of_every_shape_of_model_learns(options, input_ids):
    """Which is also what makes it safe for distributed data parallel training."""
    model = make_model(**options).train()
    outputs = model(input_ids, labels=input_ids, output_distances=True)
    assert outputs.forget_distances.shape == (model.config.num_hidden_layers, 3, 6)
    assert outputs.logits.shape == (3, 6, VOCAB_SIZE)
    outputs.loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("tied", [True, False])
def test_every_gradient_of_the_training_loss_is_that_of_finite_differences(padded, tied):
    model = make_model(
        vocab_size=5, embedding_size=4, hidden_size=6, chunk_size=2, tie_word_embeddings=tied, **NO_DROPOUT
    )
    model.double().train()
    input_ids = torch.tensor([[1, 2, 3, 4], [0, 0, 2, 1]])
    mask = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]]) if padded else None
    names, parameters = zip(*model.named_parameters(), strict=True)

    def loss(*values):
        arguments = {"input_ids": input_ids, "attention_mask": mask, "labels": input_ids}
        return torch.func.functional_call(model, dict(zip(names, values, strict=True)), (), arguments).loss

    assert torch.autograd.gradcheck(loss, parameters, fast_mode=True)


def test_a_layer_of_a_single_chunk_runs_but_never_writes_its_cell(input_ids):
    """With one chunk the equations give a master input gate of 0 and a master forget gate of 1."""
    model = make_model(layer_sizes=[8, 8], num_hidden_layers=2, chunk_size=8)
    state = RecurrentState(tuple((torch.rand(3, 8), torch.rand(3, 1, 8)) for _ in range(2)))
    outputs = model(input_ids, state=state, output_distances=True, labels=input_ids)
    outputs.loss.backward()
    for (_, before), (_, after) in zip(state.layers, outputs.state.layers, strict=True):
        torch.testing.assert_close(after, before)
    torch.testing.assert_close(outputs.forget_distances, torch.zeros(2, 3, 6), rtol=0, atol=1e-6)


def test_the_paper_s_model_has_twenty_five_million_parameters():
    with torch.device("meta"):
        model = ONLSTMForCausalLM(ONLSTMConfig())
    assert round(sum(parameter.numel() for parameter in model.parameters()) / 1e6) == 25


def test_embeddings_are_tied_unless_told_otherwise():
    tied, untied = make_model(), make_model(tie_word_embeddings=False)
    assert tied.lm_head.weight is tied.model.embeddings.weight
    assert untied.lm_head.weight is not untied.model.embeddings.weight


def test_weights_are_initialised_as_in_the_paper():
    torch.manual_seed(0)
    model = ONLSTMForCausalLM(ONLSTMConfig(vocab_size=500, embedding_size=20, hidden_size=40))
    embeddings = model.get_input_embeddings().weight
    assert 0.099 < embeddings.abs().max() <= 0.1
    assert embeddings.mean().abs() < 0.01
    assert not model.lm_head.bias.any()
    untied = ONLSTMForCausalLM(
        ONLSTMConfig(vocab_size=500, embedding_size=20, hidden_size=40, tie_word_embeddings=False)
    )
    assert 0.099 < untied.lm_head.weight.abs().max() <= 0.1
    for layer in model.model.layers:
        for projection in (layer.input_projection, layer.recurrent_projection):
            bound = projection.in_features**-0.5
            for parameter in projection.parameters():
                assert 0.9 * bound < parameter.abs().max() <= bound


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("size", [VOCAB_SIZE + 4, VOCAB_SIZE - 4])
def test_the_vocabulary_can_be_resized(tied, size):
    model = make_model(tie_word_embeddings=tied)
    kept = min(size, VOCAB_SIZE)
    input_ids = torch.randint(kept, (2, 5))
    with torch.no_grad():
        before = model(input_ids).logits
    model.resize_token_embeddings(size)
    assert model.config.vocab_size == size
    assert (model.lm_head.weight is model.model.embeddings.weight) == tied
    outputs = model(input_ids, labels=input_ids)
    assert outputs.logits.shape == (2, 5, size)
    torch.testing.assert_close(outputs.logits[..., :kept], before[..., :kept])
    model.train()(input_ids, labels=input_ids).loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_compute_the_same_and_stay_tied(model, input_ids, duplicate):
    twin = duplicate(model)
    assert torch.equal(twin(input_ids).logits, model(input_ids).logits)
    assert twin.lm_head.weight is twin.model.embeddings.weight
    assert twin.lm_head.weight is not model.lm_head.weight


@pytest.mark.parametrize("tied", [True, False])
def test_saving_and_loading_keeps_the_outputs(input_ids, tmp_path, tied):
    model = make_model(tie_word_embeddings=tied)
    model.save_pretrained(tmp_path)
    loaded, report = ONLSTMForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())
    assert torch.equal(loaded(input_ids).logits, model(input_ids).logits)
    assert (loaded.lm_head.weight is loaded.model.embeddings.weight) == tied


def test_a_head_can_be_put_on_a_saved_model_without_one(input_ids, tmp_path):
    base = make_model(ONLSTMModel)
    base.save_pretrained(tmp_path)
    model = ONLSTMForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(model.model(input_ids).last_hidden_state, base(input_ids).last_hidden_state)
    assert model.lm_head.weight is model.model.embeddings.weight
    assert not model.lm_head.bias.any()


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_gradient_checkpointing_is_refused(model):
    with pytest.raises(ValueError, match="ONLSTMForCausalLM does not support"):
        model.gradient_checkpointing_enable()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_loss_is_within_a_percent_of_float32(dtype):
    torch.manual_seed(0)
    model = make_model(embedding_size=32, hidden_size=48, vocab_size=50)
    input_ids = torch.randint(50, (4, 30))
    expected = model(input_ids, labels=input_ids).loss
    half = copy.deepcopy(model).to(dtype)
    outputs = half(input_ids, labels=input_ids, output_distances=True)
    assert outputs.logits.dtype == dtype
    assert outputs.forget_distances.isfinite().all()
    assert outputs.loss.item() == pytest.approx(expected.item(), rel=0.01)
    half.train()(input_ids, labels=input_ids).loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in half.parameters())


def test_bfloat16_autocast_loss_is_within_a_percent_of_float32(input_ids):
    model = make_model(**NO_DROPOUT).train()
    expected = model(input_ids, labels=input_ids).loss
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(input_ids, labels=input_ids).loss
    assert loss.item() == pytest.approx(expected.item(), rel=0.01)
    loss.backward()
    assert all(parameter.grad.dtype == torch.float32 for parameter in model.parameters())


def test_dropout_is_random_in_training_and_absent_in_evaluation(model, input_ids):
    assert torch.equal(model(input_ids).logits, model(input_ids).logits)
    model.train()
    assert not torch.equal(model(input_ids).logits, model(input_ids).logits)


@pytest.mark.parametrize("name", list(NO_DROPOUT))
def test_every_dropout_of_the_configuration_acts_in_training(input_ids, name):
    model = make_model(**{**NO_DROPOUT, name: 0.5}).train()
    assert not torch.equal(model(input_ids).logits, model(input_ids).logits)


def test_a_model_without_dropout_computes_the_same_in_training(input_ids):
    model = make_model(**NO_DROPOUT)
    assert torch.equal(model(input_ids).logits, model.train()(input_ids).logits)


@pytest.mark.parametrize("padded", [False, True])
def test_compiled_model_computes_the_same_without_graph_breaks(rows, padded):
    model = make_model(**NO_DROPOUT).train()
    input_ids, mask, _ = pad(rows, "right")
    inputs = {"input_ids": input_ids, "attention_mask": mask if padded else None, "labels": input_ids}
    expected = model(**inputs)
    expected_gradients = torch.autograd.grad(expected.loss, list(model.parameters()))
    outputs = torch.compile(model, backend="aot_eager", fullgraph=True)(**inputs)
    torch.testing.assert_close(outputs.logits, expected.logits)
    gradients = torch.autograd.grad(outputs.loss, list(model.parameters()))
    for ours, theirs in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
