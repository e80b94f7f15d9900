"""The regularised stack: penalties, layer sizes and hidden states for every kind of layer."""

import pytest
import torch

from tests.helpers.tiny_models import AWD_LSTMS, SIDES, VOCAB_SIZE, pad

pytestmark = pytest.mark.parametrize("kind", list(AWD_LSTMS), indirect=True)


@SIDES
def test_padding_does_not_change_loss_penalties_or_gradients(kind, rows, side):
    """The expected loss of a batch in training is the weighted sum over single sentences."""
    model = kind.make(**kind.no_dropout).train()
    input_ids, mask, _ = pad(rows, side)
    labels = input_ids.masked_fill(mask == 0, -100)
    outputs = model(input_ids, attention_mask=mask, labels=labels)
    gradients = torch.autograd.grad(outputs.loss, list(model.parameters()))

    totals = dict.fromkeys(("cross_entropy", "activation_penalty", "temporal_activation_penalty"), 0.0)
    for row in rows:
        alone = model(row.unsqueeze(0), labels=row.unsqueeze(0))
        for name in totals:
            if len(row) > 1:  # a sentence of one token has no next token, so its mean is undefined
                totals[name] = totals[name] + getattr(alone, name) * (len(row) - 1)
    totals = {name: total / sum(len(row) - 1 for row in rows) for name, total in totals.items()}
    for name, expected in totals.items():
        torch.testing.assert_close(getattr(outputs, name), expected)
    expected = torch.autograd.grad(sum(totals.values()), list(model.parameters()))
    torch.testing.assert_close(gradients, expected, rtol=1e-4, atol=1e-5)


def test_penalties_follow_their_definition_in_training(kind, input_ids):
    """AR uses outputs after dropout, TAR before dropout; both use tokens that predict another."""
    model = kind.make(activation_regularization=3.0, temporal_activation_regularization=5.0).train()
    seen = {}
    model.model.output_dropout.register_forward_hook(lambda _, inputs, output: seen.update(raw=inputs[0], out=output))
    outputs = model(input_ids, labels=input_ids)
    assert not torch.equal(seen["raw"], seen["out"])
    torch.testing.assert_close(outputs.activation_penalty, 3 * seen["out"][:-1].pow(2).mean())
    torch.testing.assert_close(outputs.temporal_activation_penalty, 5 * seen["raw"].diff(dim=0).pow(2).mean())
    torch.testing.assert_close(
        outputs.loss, outputs.cross_entropy + outputs.activation_penalty + outputs.temporal_activation_penalty
    )


def test_evaluation_has_no_penalties(model, input_ids):
    outputs = model(input_ids, labels=input_ids)
    assert outputs.activation_penalty is None and outputs.temporal_activation_penalty is None
    assert torch.equal(outputs.loss, outputs.cross_entropy)


def test_a_single_token_has_no_temporal_penalty(kind):
    model = kind.make().train()
    outputs = model(torch.tensor([[3]]), shift_labels=torch.tensor([[4]]))
    assert outputs.temporal_activation_penalty.item() == 0
    assert outputs.loss.isfinite()


@pytest.mark.parametrize("shifted", [False, True])
def test_gradients_accumulate_over_batches_of_different_lengths(kind, shifted):
    torch.manual_seed(0)
    rows = [torch.randint(VOCAB_SIZE - 1, (length,)) for length in (9, 3, 6, 2)]
    model = kind.make(**kind.no_dropout).train()
    num_items = sum(len(row) - (not shifted) for row in rows)

    def loss(input_ids, mask):
        labels = {"shift_labels" if shifted else "labels": input_ids.masked_fill(mask == 0, -100)}
        return model(input_ids, attention_mask=mask, num_items_in_batch=num_items, **labels).loss

    input_ids, mask, _ = pad(rows, "right")
    alone = sum(loss(row.unsqueeze(0), torch.ones(1, len(row), dtype=torch.long)) for row in rows)
    gradients = (torch.autograd.grad(value, list(model.parameters())) for value in (alone, loss(input_ids, mask)))
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {"num_hidden_layers": 2},
        {"num_hidden_layers": 4},
        {"hidden_size": 16, "layer_sizes": [16, 12, 8]},
        {"hidden_size": 16, "layer_sizes": [16, 20, 12], "tie_word_embeddings": False},
        {"tie_word_embeddings": False},
    ],
    ids=str,
)
def test_every_parameter_of_every_configuration_has_a_gradient(kind, options, input_ids):
    """Distributed data parallel training requires gradients of all weights."""
    model = kind.make(**options).train()
    outputs = model(input_ids, labels=input_ids)
    assert len(outputs.state.layers) == model.config.num_hidden_layers
    assert outputs.logits.shape == (3, 6, VOCAB_SIZE)
    outputs.loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


def test_hidden_states_are_the_embedded_input_and_the_output_of_every_layer(model, input_ids):
    outputs = model(input_ids, output_hidden_states=True)
    assert [tuple(hidden.shape) for hidden in outputs.hidden_states] == [(3, 6, size) for size in (8, 12, 12, 8)]
    assert torch.equal(outputs.hidden_states[0], model.get_input_embeddings()(input_ids))
    torch.testing.assert_close(model.lm_head(outputs.hidden_states[-1]), outputs.logits)
    for (hidden, *_), layer_output in zip(outputs.state.layers, outputs.hidden_states[1:], strict=True):
        assert torch.equal(hidden, layer_output[:, -1])


def test_gradients_flow_through_the_state_unless_it_is_detached(model, input_ids):
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


def test_options_of_the_configuration_are_the_defaults(kind, input_ids):
    model = kind.make(output_hidden_states=True, return_dict=False)
    logits, state, hidden_states = model(input_ids)
    assert logits.shape == (3, 6, VOCAB_SIZE) and len(hidden_states) == 4
    assert model(input_ids, output_hidden_states=False, return_dict=True).hidden_states is None
