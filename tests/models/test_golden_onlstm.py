"""Golden numbers of the authors' code (`golden/` of the reference data)."""

import copy

import pytest
import torch
from torch.nn import functional as F

from onlstm_hf import convert_original_state_dict, tree_from_distances
from onlstm_hf.models.dropout import LockedDropout
from onlstm_hf.models.modeling_onlstm import ONLSTMLayer
from onlstm_hf.models.state import RecurrentState
from tests.helpers.golden_files import Golden, load_golden


@pytest.fixture(scope="module", params=["onlstm_small", "onlstm_chunk1"])
def golden(request, shared_dir) -> Golden:
    return load_golden(shared_dir / "golden" / request.param, "onlstm", weight_dropout="wdrop")


@pytest.fixture(scope="module")
def state(golden) -> RecurrentState:
    layers, tensors = range(golden.model.config.num_hidden_layers), golden.tensors
    return RecurrentState(tuple((tensors[f"initial.{i}.hidden"], tensors[f"initial.{i}.cell"]) for i in layers))


@pytest.fixture(scope="module")
def evaluated(golden, state):
    with torch.no_grad():
        return golden.model(golden.input_ids, shift_labels=golden.labels, state=state, output_distances=True)


def assert_close(ours: torch.Tensor, theirs: torch.Tensor):
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_logits_and_loss(golden, evaluated):
    assert_close(evaluated.logits.transpose(0, 1), golden.tensors["eval.logits"])
    assert_close(evaluated.loss, golden.tensors["eval.loss"])


def test_distances_of_every_layer(golden, evaluated):
    assert_close(evaluated.forget_distances.transpose(1, 2), golden.tensors["eval.distance_forget"])
    assert_close(evaluated.input_distances.transpose(1, 2), golden.tensors["eval.distance_input"])


def test_final_states_of_every_layer(golden, evaluated):
    for layer, (hidden, cell) in enumerate(evaluated.state.layers):
        assert_close(hidden, golden.tensors[f"eval.final.{layer}.hidden"])
        assert_close(cell, golden.tensors[f"eval.final.{layer}.cell"])


def test_trees_are_equal(golden, evaluated):
    words = [f"w{index}" for index in range(golden.input_ids.shape[1])]
    assert golden.description["trees"]
    for case in golden.description["trees"]:
        distances = evaluated.forget_distances[case["layer"], case["batch"]]
        assert tree_from_distances(distances.tolist(), words).to_nested() == case["tree"]


def test_training_losses_and_every_gradient(golden, state):
    model, tensors = copy.deepcopy(golden.model).train(), golden.tensors
    for module in model.modules():
        if isinstance(module, LockedDropout):
            module.probability = 0.0
        elif isinstance(module, ONLSTMLayer):
            module.weight_dropout = 0.0
    model.config.activation_regularization = 2.0
    model.config.temporal_activation_regularization = 1.0
    # The authors use padding_idx=-1, so PyTorch gives the last row of the embedding no gradient except from the tied
    # decoder. Embedding the words here also skips word dropout.
    weight = model.model.embeddings.weight
    inputs_embeds = F.embedding(golden.input_ids, weight, padding_idx=len(weight) - 1)
    outputs = model(inputs_embeds=inputs_embeds, shift_labels=golden.labels, state=state)
    outputs.loss.backward()

    assert_close(outputs.cross_entropy, tensors["train.cross_entropy"])
    assert_close(outputs.activation_penalty, tensors["train.activation_regularization_alpha2"])
    assert_close(outputs.temporal_activation_penalty, tensors["train.temporal_activation_regularization_beta1"])

    # Converting gradients like weights puts the authors' rows in our order.
    theirs = convert_original_state_dict(
        {name.removeprefix("grad."): tensor for name, tensor in tensors.items() if name.startswith("grad.")}
    )
    for (name, parameter), gradient in zip(model.named_parameters(), theirs.parameters(), strict=True):
        difference = (parameter.grad - gradient).abs().max() / gradient.abs().max()
        assert difference < 1e-4, f"{name}: {difference:.1e}"
