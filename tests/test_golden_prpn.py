"""The numbers of the authors' own code (`golden/` of the reference data)."""

import copy
import json
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


def test_float32_gives_the_same_up_to_its_rounding(golden):
    with torch.no_grad():
        outputs = golden.model(golden.input_ids, shift_labels=golden.labels, output_distances=True)
    assert_close(
        outputs.logits.transpose(0, 1), golden.tensors["eval.logits"], 1e-5 if golden.model.config.hard else 1e-4
    )
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
    outputs = model(golden.input_ids, shift_labels=golden.labels)
    outputs.loss.backward()
    # Where gates are soft, the rounding of their float32 numbers is larger than that.
    logits_tolerance, tolerance = (1e-5, 1e-4) if model.config.hard else (3e-5, 5e-4)
    assert_close(outputs.logits.transpose(0, 1), tensors["train.logits"], logits_tolerance)
    assert_close(outputs.loss, tensors["train.cross_entropy"])

    # Converting gradients as if they were weights gives them our names.
    weights = {name.removeprefix("weight."): t for name, t in tensors.items() if name.startswith("weight.")}
    gradients = {name.removeprefix("grad."): t for name, t in tensors.items() if name.startswith("grad.")}
    theirs = dict(convert_original_state_dict(weights | gradients, "prpn").named_parameters())
    for name, parameter in model.named_parameters():
        # A bias before batch normalisation has no gradient but rounding errors.
        scale = theirs[name].abs().max().clamp(min=1e-3)
        difference = (parameter.grad - theirs[name]).abs().max() / scale
        assert difference < tolerance, f"{name}: {difference:.1e}"
