"""Common tests of all language models of the package."""

import copy
import pickle

import pytest
import torch
from torch.nn import functional as F

from tests.helpers.tiny_models import AWD_LSTMS, KINDS, SIDES, VOCAB_SIZE, assert_same_state, pad, random_state

# A PRPN has batch normalisation, so its rows depend on each other in training.
INDEPENDENT_ROWS = pytest.mark.parametrize("kind", list(AWD_LSTMS), indirect=True)


@SIDES
@pytest.mark.parametrize("with_state", [False, True])
def test_padding_does_not_change_logits_hidden_states_or_the_final_state(model, rows, side, with_state):
    state = random_state(model, len(rows)) if with_state else None
    input_ids, mask, places = pad(rows, side)
    options = {"output_hidden_states": True}
    padded = model(input_ids, attention_mask=mask, state=state, **options)
    for index, (row, place) in enumerate(zip(rows, places, strict=True)):
        row_state = state.index_select(torch.tensor([index])) if with_state else None
        alone = model(row.unsqueeze(0), state=row_state, **options)
        torch.testing.assert_close(padded.logits[index, place], alone.logits[0])
        for layer, hidden in enumerate(alone.hidden_states):
            torch.testing.assert_close(padded.hidden_states[layer][index, place], hidden[0])
        assert_same_state(padded.state.index_select(torch.tensor([index])), alone.state)


STEPS = [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("dtype", "cuts"),
    [(torch.float32, STEPS), (torch.float32, [2, 3]), (torch.bfloat16, STEPS), (torch.float16, STEPS)],
)
def test_chunks_with_the_state_equal_the_whole_sequence(kind, input_ids, dtype, cuts):
    model = kind.make().to(dtype)
    whole = model(input_ids)
    state, logits = None, []
    for chunk in input_ids.tensor_split(cuts, dim=1):
        outputs = model(chunk, state=state)
        state = outputs.state
        logits.append(outputs.logits)
    tolerances = {} if dtype == torch.float32 else {"rtol": 0, "atol": 0.05}
    torch.testing.assert_close(torch.cat(logits, dim=1), whole.logits, **tolerances)
    assert_same_state(state, whole.state, **tolerances)


def test_the_given_state_is_not_changed(model, input_ids):
    state = random_state(model, 3)
    before = copy.deepcopy(state)
    model(input_ids, state=state)
    assert_same_state(state, before, rtol=0, atol=0)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda state: state.index_select(torch.tensor([0, 1])),
        lambda state: state.map(lambda tensor: tensor.unsqueeze(1)),
        lambda state: state.map(lambda tensor: tensor[..., 1:]),
        lambda state: KINDS["onlstm"].make(num_hidden_layers=2).model.initial_state(state.batch_size),
    ],
    ids=["rows", "dimensions", "sizes", "layers"],
)
def test_an_invalid_state_is_refused(model, input_ids, spoil):
    with pytest.raises(ValueError, match="the state does not fit the model or batch: expected shapes"):
        model(input_ids, state=spoil(random_state(model, 3)))


@pytest.mark.parametrize("use_cache", [True, False, None])
@pytest.mark.parametrize("default", [True, False])
def test_use_cache_only_controls_the_returned_state(kind, input_ids, use_cache, default):
    model = kind.make(use_cache=default)
    outputs = model(input_ids, use_cache=use_cache)
    assert (outputs.state is not None) == (default if use_cache is None else use_cache)
    assert torch.equal(outputs.logits, model(input_ids).logits)


IDS, EMBEDS = torch.ones(2, 3, dtype=torch.long), torch.ones(2, 3, 8)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "exactly one of input_ids and inputs_embeds"),
        ({"input_ids": IDS, "inputs_embeds": EMBEDS}, "exactly one of input_ids and inputs_embeds"),
        ({"input_ids": IDS[:, :0]}, "the input is empty"),
        ({"inputs_embeds": EMBEDS[:, :0]}, "the input is empty"),
        ({"input_ids": IDS[0]}, r"input_ids must be \[batch_size, sequence_length\]"),
        ({"inputs_embeds": EMBEDS[..., 1:]}, r"inputs_embeds must be \[batch, length, 8\]"),
        ({"inputs_embeds": EMBEDS[0]}, r"inputs_embeds must be \[batch, length, 8\]"),
        ({"input_ids": IDS * VOCAB_SIZE}, "input_ids hold the id 13, which is outside the vocabulary of 13"),
        ({"input_ids": -IDS}, "input_ids hold the id -1, which is outside the vocabulary of 13"),
        (
            {"input_ids": IDS, "attention_mask": IDS[:, :1]},
            r"attention_mask must have the shape of the input, \[2, 3\]",
        ),
        ({"input_ids": IDS, "labels": IDS[:, 1:]}, r"labels must be \[2, 3\]"),
        ({"input_ids": IDS, "shift_labels": IDS[:, 1:]}, r"shift_labels must be \[2, 3\]"),
        ({"input_ids": IDS, "labels": IDS * VOCAB_SIZE}, "labels hold the id 13"),
        ({"input_ids": IDS, "skip_logits": True}, "needs labels or shift_labels"),
    ],
)
def test_invalid_inputs_are_refused(model, inputs, message):
    with pytest.raises(ValueError, match=message):
        model(**inputs)


def test_only_requested_outputs_are_returned(model, input_ids):
    assert list(model(input_ids)) == ["logits", "state"]
    assert list(model.model(input_ids)) == ["last_hidden_state", "state"]


def test_all_implementations_are_equal(model, input_ids):
    expected = model(input_ids, labels=input_ids)
    model.set_implementation("reference")
    outputs = model(input_ids, labels=input_ids)
    torch.testing.assert_close((outputs.logits, outputs.loss), (expected.logits, expected.loss))
    choosing = [module for module in model.modules() if "reference" in getattr(module, "implementations", ())]
    assert {module.implementation for module in choosing} <= {"reference"}


def test_an_unknown_implementation_is_refused(model):
    with pytest.raises(ValueError, match="implementation must be one of auto, reference.*, not 'fast'"):
        model.set_implementation("fast")


def test_modules_without_the_requested_path_take_the_fastest():
    model = KINDS["prpn"].make()
    model.set_implementation("native")
    assert {layer.implementation for layer in model.model.reading_network} == {"native"}
    assert model.lm_head.implementation == "auto"


@pytest.mark.parametrize(("kept", "positions"), [(0, range(6)), (1, [5]), (2, [4, 5]), (torch.tensor([0, 3]), [0, 3])])
def test_logits_to_keep_limits_the_logits(model, input_ids, kept, positions):
    expected = model(input_ids).logits[:, list(positions)]
    torch.testing.assert_close(model(input_ids, logits_to_keep=kept).logits, expected)


@pytest.mark.parametrize("padded", [True, False])
def test_labels_of_other_positions_than_logits_to_keep_are_ignored(kind, rows, padded):
    model = kind.make(**kind.no_dropout).train()
    input_ids, mask, _ = pad(rows, "left")
    inputs = {"input_ids": input_ids, "attention_mask": mask if padded else None}
    kept = input_ids.shape[1] - 2
    ignored = torch.arange(input_ids.shape[1]) < 3  # the first kept label is not a target
    expected = model(**inputs, labels=input_ids.masked_fill(ignored, -100)).loss
    loss = model(**inputs, labels=input_ids[:, -kept:], logits_to_keep=kept).loss
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(*(torch.autograd.grad(each, list(model.parameters())) for each in (loss, expected)))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("num_softmaxes", [1, 3])
def test_the_loss_does_not_depend_on_returned_logits(kind, rows, num_softmaxes, padded, training):
    model = kind.make(**kind.no_dropout, num_softmaxes=num_softmaxes, latent_dropout=0.0).double().train(training)
    input_ids, mask, _ = pad(rows, "right")
    inputs = {"input_ids": input_ids, "attention_mask": mask if padded else None, "labels": input_ids}
    expected = model(**inputs, num_items_in_batch=9, use_cache=True)
    outputs = model(**inputs, num_items_in_batch=9, use_cache=True, skip_logits=True)
    assert outputs.logits is None
    assert set(outputs) == set(expected) - {"logits"}
    torch.testing.assert_close((outputs.loss, outputs.cross_entropy), (expected.loss, expected.cross_entropy))
    assert_same_state(outputs.state, expected.state)
    gradients = (torch.autograd.grad(each.loss, list(model.parameters())) for each in (outputs, expected))
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize(
    "unknown",
    [
        {"past_key_values": object()},
        {"position_ids": torch.arange(6)},
        {"output_hiden_states": True},
        {"attention_maks": torch.ones(3, 6)},
        {"return_distances": False},
    ],
    ids=lambda unknown: next(iter(unknown)),
)
@pytest.mark.parametrize("part", ["head", "base"])
def test_an_unknown_argument_is_refused(model, input_ids, unknown, part):
    with pytest.raises(ValueError, match=f"takes no argument {next(iter(unknown))}"):
        (model if part == "head" else model.model)(input_ids, **unknown)


def test_attentions_are_refused_by_models_without_attention(kind, model, input_ids):
    if kind is KINDS["prpn"]:
        assert model(input_ids, output_attentions=True).attentions
    else:
        with pytest.raises(ValueError, match="takes no argument output_attentions"):
            model(input_ids, output_attentions=True)


def test_unsupported_options_may_be_switched_off(model, input_ids):
    off = {"past_key_values": None, "position_ids": None, "output_attentions": False, "token_type_ids": None}
    assert torch.equal(model(input_ids, **off).logits, model(input_ids).logits)


def test_a_custom_loss_function_is_used(model, input_ids):
    seen = []

    def twice(logits, labels, vocab_size, **others):
        seen.append((labels, vocab_size, sorted(others)))
        flat = logits[:, :-1].reshape(-1, vocab_size)
        return 2 * F.cross_entropy(flat, labels[:, 1:].flatten())

    expected = model(input_ids, labels=input_ids).loss
    model.loss_function = twice
    for skip_logits in (False, True):
        outputs = model(input_ids, labels=input_ids, skip_logits=skip_logits)
        torch.testing.assert_close(outputs.loss, 2 * expected)
        assert (outputs.logits is None) == skip_logits
    assert seen[0][0] is input_ids and seen[0][1:] == (VOCAB_SIZE, ["num_items_in_batch", "shift_labels"])


def test_labels_are_shifted_and_shift_labels_are_not(model, input_ids):
    logits = model(input_ids).logits
    expected = F.cross_entropy(logits[:, :-1].flatten(0, 1), input_ids[:, 1:].flatten())
    torch.testing.assert_close(model(input_ids, labels=input_ids).loss, expected)
    next_ids = torch.cat([input_ids[:, 1:], torch.full((3, 1), -100)], dim=1)
    torch.testing.assert_close(model(input_ids, shift_labels=next_ids).loss, expected)
    torch.testing.assert_close(
        model(input_ids, shift_labels=input_ids).loss, F.cross_entropy(logits.flatten(0, 1), input_ids.flatten())
    )


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("tied", [True, False])
def test_gradients_of_the_training_loss_equal_finite_differences(kind, padded, tied):
    model = kind.make(vocab_size=5, embedding_size=4, hidden_size=8, tie_word_embeddings=tied, **kind.no_dropout)
    model.double().train()
    input_ids = torch.tensor([[1, 2, 3, 4], [0, 0, 2, 1]])
    mask = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]]) if padded else None
    names, parameters = zip(*model.named_parameters(), strict=True)

    def loss(*values):
        arguments = {"input_ids": input_ids, "attention_mask": mask, "labels": input_ids}
        return torch.func.functional_call(model, dict(zip(names, values, strict=True)), (), arguments).loss

    assert torch.autograd.gradcheck(loss, parameters, fast_mode=True)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_are_equal_and_stay_tied(model, input_ids, duplicate):
    twin = duplicate(model)
    assert torch.equal(twin(input_ids).logits, model(input_ids).logits)
    assert twin.lm_head.weight is twin.model.embeddings.weight
    assert twin.lm_head.weight is not model.lm_head.weight


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_loss_is_within_a_percent_of_float32(kind, dtype):
    torch.manual_seed(0)
    model = kind.make(embedding_size=32, hidden_size=48, vocab_size=50)
    input_ids = torch.randint(50, (4, 30))
    expected = model(input_ids, labels=input_ids).loss
    half = copy.deepcopy(model).to(dtype)
    outputs = half(input_ids, labels=input_ids)
    assert outputs.logits.dtype == dtype
    assert outputs.loss.item() == pytest.approx(expected.item(), rel=0.01)
    half.train()(input_ids, labels=input_ids).loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in half.parameters())


def test_bfloat16_autocast_loss_is_within_a_percent_of_float32(kind, input_ids):
    model = kind.make(**kind.no_dropout).train()
    expected = model(input_ids, labels=input_ids).loss
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(input_ids, labels=input_ids).loss
    assert loss.item() == pytest.approx(expected.item(), rel=0.01)
    loss.backward()
    assert all(parameter.grad.dtype == torch.float32 for parameter in model.parameters())


def test_every_dropout_of_the_configuration_acts_in_training(kind, input_ids):
    for name in kind.no_dropout:
        model = kind.make(**{**kind.no_dropout, name: 0.5}).train()
        assert not torch.equal(model(input_ids).logits, model(input_ids).logits), name


@INDEPENDENT_ROWS
def test_a_model_without_dropout_is_the_same_in_training(kind, input_ids):
    model = kind.make(**kind.no_dropout)
    assert torch.equal(model(input_ids).logits, model.train()(input_ids).logits)


@pytest.mark.parametrize(("padded", "skip_logits"), [(True, False), (False, True)])
def test_compiled_model_computes_the_same_without_graph_breaks(kind, rows, padded, skip_logits):
    torch._dynamo.reset()  # the limit of recompilations is shared by all kinds of models
    model = kind.make(num_hidden_layers=2, **kind.no_dropout).train()
    input_ids, mask, _ = pad(rows, "right")
    inputs = {"input_ids": input_ids, "attention_mask": mask if padded else None, "labels": input_ids}
    inputs |= {"skip_logits": skip_logits} | ({"output_distances": True} if model.induces_trees else {})
    expected = model(**inputs)
    expected_gradients = torch.autograd.grad(expected.loss, list(model.parameters()))
    outputs = torch.compile(model, backend="aot_eager", fullgraph=True)(**inputs)
    for name in expected.keys() - {"state"}:
        torch.testing.assert_close(outputs[name], expected[name])
    assert_same_state(outputs.state, expected.state)
    gradients = torch.autograd.grad(outputs.loss, list(model.parameters()))
    torch.testing.assert_close(gradients, expected_gradients, rtol=1e-4, atol=1e-5)
