"""The numbers of the authors' own code (`golden/` of the reference data)."""

import copy
import json
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from safetensors.torch import load_file

from onlstm_hf import PRPNForCausalLM, convert_original_state_dict, tree_from_distances
from onlstm_hf.dropout import ElementDropout


class Golden(NamedTuple):
    """A golden file: its tensors (time first), its description, and what goes into our model (batch first)."""

    tensors: dict[str, torch.Tensor]
    description: dict
    model: PRPNForCausalLM
    input_ids: torch.Tensor
    labels: torch.Tensor


@pytest.fixture(scope="module", params=["prpn_hard", "prpn_soft_residual"])
def golden(request, shared_dir) -> Golden:
    path = shared_dir / "golden" / request.param
    tensors = load_file(path.with_suffix(".safetensors"))
    description = json.loads(path.with_suffix(".json").read_text())
    weights = {name.removeprefix("weight."): t for name, t in tensors.items() if name.startswith("weight.")}
    theirs = description["config"]
    model = convert_original_state_dict(
        weights, "prpn", num_slots=theirs["nslots"], resolution=theirs["resolution"], hard=theirs["hard"]
    )
    return Golden(tensors, description, model, tensors["input_ids"].t(), tensors["labels"].t())


@pytest.fixture(scope="module", params=["reference", "fused"])
def exact(golden, request) -> PRPNForCausalLM:
    """The model in float64, by one path. In float32 soft gates divide distances by a small resolution, and the layer
    normalisation of small cells grows the rounding of weights by one half of a unit in their last place to 1e-5."""
    model = copy.deepcopy(golden.model).double()
    for layer in model.model.reading_network:
        layer.implementation = request.param
    return model


@pytest.fixture(scope="module")
def evaluated(golden, exact):
    with torch.no_grad():
        return exact(golden.input_ids, shift_labels=golden.labels, output_distances=True, output_attentions=True)


def rounding_errors(model: PRPNForCausalLM, compute: Callable[[PRPNForCausalLM], list[torch.Tensor]]) -> list[float]:
    """How far what a model computes moves at most when its weights move by half a unit of float32's last place.

    The golden files were computed in float32. Nothing but the same operations in the same order can be closer to them.
    """
    expected, errors = compute(model), []
    for seed in range(8):
        generator, moved = torch.Generator().manual_seed(seed), copy.deepcopy(model)
        with torch.no_grad():
            for parameter in moved.parameters():
                signs = torch.rand(parameter.shape, generator=generator, dtype=parameter.dtype) * 2 - 1
                parameter.mul_(1 + signs * 2**-24)
        pairs = zip(compute(moved), expected, strict=True)
        errors.append([(actual - value).abs().max().item() for actual, value in pairs])
    return [max(values) for values in zip(*errors, strict=True)]


def assert_close(ours: torch.Tensor, theirs: torch.Tensor, tolerance: float = 1e-5):
    torch.testing.assert_close(ours, theirs.to(ours.dtype), rtol=0, atol=tolerance)


def test_configuration_is_read_off_the_weights(golden):
    theirs, ours = golden.description["config"], golden.model.config
    names = {
        "ntoken": "vocab_size",
        "ninp": "embedding_size",
        "nhid": "hidden_size",
        "nlayers": "num_hidden_layers",
        "nlookback": "lookback",
        "res": "num_residual_blocks",
        "tied": "tie_word_embeddings",
    }
    assert {name: getattr(ours, our_name) for name, our_name in names.items()} == {
        name: theirs[name] for name in names
    }


def test_logits_and_loss(golden, evaluated):
    assert_close(evaluated.logits.transpose(0, 1), golden.tensors["eval.logits"])
    assert_close(evaluated.loss, golden.tensors["eval.loss"])


def test_float32_gives_the_same_up_to_its_rounding(golden, exact):
    with torch.no_grad():
        outputs = golden.model(golden.input_ids, shift_labels=golden.labels, output_distances=True)
        (rounding,) = rounding_errors(exact, lambda model: [model(golden.input_ids).logits])
    # Every operation rounds, not the weights alone.
    assert_close(outputs.logits.transpose(0, 1), golden.tensors["eval.logits"], max(1e-5, 4 * rounding))
    assert_close(outputs.loss, golden.tensors["eval.loss"])
    assert_close(outputs.distances, golden.tensors["eval.gates"])


def test_distances_gates_and_attentions(golden, evaluated):
    assert_close(evaluated.distances, golden.tensors["eval.gates"])
    *reading, predicting = evaluated.attentions
    ours = torch.stack([evaluated.memory_gates[0], *reading, evaluated.memory_gates[1], predicting], dim=2)
    assert_close(ours.transpose(0, 1), golden.tensors["eval.attentions"])


def test_the_returned_state_goes_on(golden, exact, evaluated):
    with torch.no_grad():
        outputs = exact(golden.tensors["continuation.input_ids"].t(), state=evaluated.state, output_distances=True)
    assert_close(outputs.logits.transpose(0, 1), golden.tensors["continuation.logits"])
    assert_close(outputs.distances, golden.tensors["continuation.gates"])


def test_trees_are_equal(golden, evaluated):
    words = [f"w{index}" for index in range(golden.input_ids.shape[1])]
    assert golden.description["trees"]
    for case in golden.description["trees"]:
        assert tree_from_distances(evaluated.distances[case["batch"]], words).to_nested() == case["tree"]


def test_training_with_statistics_of_the_batch(golden, exact):
    model, tensors = copy.deepcopy(exact).train(), golden.tensors
    for module in model.modules():
        if isinstance(module, ElementDropout):
            module.probability = 0.0

    def learn(model: PRPNForCausalLM) -> list[torch.Tensor]:
        """Loss, logits, and the gradients, each divided by its largest entry."""
        outputs = model(golden.input_ids, shift_labels=golden.labels)
        gradients = torch.autograd.grad(outputs.loss, list(model.parameters()))
        return [outputs.loss, outputs.logits, *(gradient / scale(gradient) for gradient in gradients)]

    def scale(gradient: torch.Tensor) -> torch.Tensor:
        # A bias before batch normalisation has no gradient but rounding errors.
        return gradient.abs().max().clamp(min=1e-3)

    loss, logits, *gradients = learn(model)
    _, logits_rounding, *gradients_rounding = rounding_errors(model, learn)
    if model.config.hard:
        assert logits_rounding < 1e-5 and max(gradients_rounding) < 1e-4
    assert_close(loss, tensors["train.cross_entropy"])
    assert_close(logits.transpose(0, 1), tensors["train.logits"], max(1e-5, logits_rounding))

    # Converting gradients as if they were weights gives them our names.
    weights = {name.removeprefix("weight."): t for name, t in tensors.items() if name.startswith("weight.")}
    theirs = {name.removeprefix("grad."): t for name, t in tensors.items() if name.startswith("grad.")}
    theirs = dict(convert_original_state_dict(weights | theirs, "prpn").named_parameters())
    for (name, _), ours, rounding in zip(model.named_parameters(), gradients, gradients_rounding, strict=True):
        difference = (ours - theirs[name] / scale(theirs[name])).abs().max()
        assert difference < max(1e-4, rounding), f"{name}: {difference:.1e}"
