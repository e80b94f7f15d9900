"""Golden numbers of the authors' code (`golden/` of the reference data)."""

import copy

import pytest
import torch

from onlstm_hf import PRPNForCausalLM, convert_original_state_dict, tree_from_distances
from onlstm_hf.fast.prpn import native as native
from onlstm_hf.models.modeling_prpn import ElementDropout
from tests.helpers.golden_files import Golden, load_golden
from tests.helpers.native_operators import needs_operator

built = needs_operator(native.OPERATOR)


@pytest.fixture(scope="module", params=["prpn_hard", "prpn_soft_residual"])
def golden(request, shared_dir) -> Golden:
    options = {"num_slots": "nslots", "resolution": "resolution", "hard": "hard"}
    return load_golden(shared_dir / "golden" / request.param, "prpn", **options)


@pytest.fixture(scope="module")
def exact(golden) -> PRPNForCausalLM:
    """Returns the model in float64."""
    return copy.deepcopy(golden.model).double()


@pytest.fixture(scope="module")
def evaluated(golden, exact):
    with torch.no_grad():
        return exact(golden.input_ids, shift_labels=golden.labels, output_distances=True, output_attentions=True)


def assert_close(ours: torch.Tensor, theirs: torch.Tensor, tolerance: float = 1e-5):
    torch.testing.assert_close(ours, theirs.to(ours.dtype), rtol=0, atol=tolerance)


def test_logits_and_loss(golden, evaluated):
    assert_close(evaluated.logits.transpose(0, 1), golden.tensors["eval.logits"])
    assert_close(evaluated.loss, golden.tensors["eval.loss"])


def test_distances_gates_and_attentions(golden, evaluated):
    assert_close(evaluated.distances, golden.tensors["eval.gates"])
    *reading, predicting = evaluated.attentions
    ours = torch.stack([evaluated.memory_gates[0], *reading, evaluated.memory_gates[1], predicting], dim=2)
    assert_close(ours.transpose(0, 1), golden.tensors["eval.attentions"])


def test_the_returned_state_can_be_continued(golden, exact, evaluated):
    with torch.no_grad():
        outputs = exact(golden.tensors["continuation.input_ids"].t(), state=evaluated.state, output_distances=True)
    assert_close(outputs.logits.transpose(0, 1), golden.tensors["continuation.logits"])
    assert_close(outputs.distances, golden.tensors["continuation.gates"])


def test_trees_are_equal(golden, evaluated):
    words = [f"w{index}" for index in range(golden.input_ids.shape[1])]
    assert golden.description["trees"]
    for case in golden.description["trees"]:
        assert tree_from_distances(evaluated.distances[case["batch"]], words).to_nested() == case["tree"]


def train(golden, model: PRPNForCausalLM, implementation: str = "reference"):
    """Returns the outputs and the gradients of a training step without dropout."""
    model = copy.deepcopy(model).train()
    model.set_implementation(implementation)
    for module in model.modules():
        if isinstance(module, ElementDropout):
            module.probability = 0.0
    outputs = model(golden.input_ids, shift_labels=golden.labels)
    outputs.loss.backward()
    return outputs, {name: parameter.grad.double() for name, parameter in model.named_parameters()}


@pytest.fixture(scope="module")
def rounding(golden, exact) -> dict[str, torch.Tensor]:
    """Returns how far each gradient moves, in float64, when the weights move by at most float32's last bit."""
    exact_gradients, changes = train(golden, exact)[1], []
    for seed in range(3):
        model, generator = copy.deepcopy(exact), torch.Generator().manual_seed(seed)
        for weight in model.parameters():
            noise = torch.rand(weight.shape, generator=generator, dtype=weight.dtype) * 2 - 1
            weight.data.mul_(1 + torch.finfo(torch.float32).eps * noise)
        moved = train(golden, model)[1]
        changes.append({name: (moved[name] - gradient).abs().max() for name, gradient in exact_gradients.items()})
    return {name: max(change[name] for change in changes) for name in exact_gradients}


@pytest.mark.parametrize("computation", ["float64", "reference", pytest.param("native", marks=built)])
def test_a_training_step(golden, exact, rounding, computation):
    """With soft gates the recurrence amplifies rounding errors, in the authors' code and in ours."""
    tolerance = 1e-5 if exact.config.hard else 2e-4
    is_double = computation == "float64"
    outputs, gradients = train(golden, exact) if is_double else train(golden, golden.model, computation)
    assert_close(outputs.logits.transpose(0, 1), golden.tensors["train.logits"], tolerance)
    assert_close(outputs.loss, golden.tensors["train.cross_entropy"])

    weights, their_gradients = (
        {name.removeprefix(prefix): t for name, t in golden.tensors.items() if name.startswith(prefix)}
        for prefix in ("weight.", "grad.")
    )
    # Converting gradients like weights gives them our names.
    theirs = dict(convert_original_state_dict(weights | their_gradients, "prpn").named_parameters())
    for name, gradient in gradients.items():
        largest = theirs[name].abs().max()
        if largest < 1e-6:  # a bias before batch normalisation has gradient 0: use the scale of the weight's gradient
            largest = theirs[name.removesuffix("bias") + "weight"].abs().max()
        difference = (gradient - theirs[name]).abs().max()
        allowed = 10 * tolerance * largest
        if not is_double and not exact.config.hard:
            allowed = max(allowed, 4 * rounding[name])
        assert difference < allowed, f"{name}: {difference / largest:.1e}"


@pytest.mark.parametrize("implementation", ["reference", pytest.param("native", marks=built)])
def test_distances_in_float32(golden, implementation):
    model = copy.deepcopy(golden.model)
    model.set_implementation(implementation)
    with torch.no_grad():
        outputs = model(golden.input_ids, shift_labels=golden.labels, output_distances=True)
    assert_close(outputs.distances, golden.tensors["eval.gates"])
    assert_close(outputs.loss, golden.tensors["eval.loss"])
