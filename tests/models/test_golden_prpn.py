"""The numbers of the authors' own code (`golden/` of the reference data)."""

import copy
from collections.abc import Iterable
from typing import NamedTuple

import pytest
import torch
from torch.nn import functional as F

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


def computed_by(implementation: str, model: PRPNForCausalLM) -> PRPNForCausalLM:
    model.set_implementation(implementation)
    return model


@pytest.fixture(scope="module", params=["reference", "fused"])
def exact(golden, request) -> PRPNForCausalLM:
    """The model in float64, by one path."""
    return computed_by(request.param, copy.deepcopy(golden.model).double())


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


class Learned(NamedTuple):
    """The results of a training step: logits `[B, T, V]`, loss, and gradients by the parameters' names."""

    logits: torch.Tensor
    loss: torch.Tensor
    gradients: dict[str, torch.Tensor]


def learned_by_the_authors(golden: Golden) -> Learned:
    weights, gradients = (
        {name.removeprefix(prefix): t for name, t in golden.tensors.items() if name.startswith(prefix)}
        for prefix in ("weight.", "grad.")
    )
    # Converting gradients as if they were weights gives them our names.
    gradients = dict(convert_original_state_dict(weights | gradients, "prpn").named_parameters())
    return Learned(golden.tensors["train.logits"].transpose(0, 1), golden.tensors["train.cross_entropy"], gradients)


def learned(model: PRPNForCausalLM, golden: Golden) -> Learned:
    names, parameters = zip(*in_training_without_dropout(model).named_parameters(), strict=True)
    outputs = model(golden.input_ids, shift_labels=golden.labels)
    gradients = torch.autograd.grad(outputs.loss, parameters)
    return Learned(outputs.logits, outputs.loss, dict(zip(names, gradients, strict=True)))


def in_training_without_dropout(model: PRPNForCausalLM) -> PRPNForCausalLM:
    """The model in training mode: with the statistics of the batch."""
    for module in model.train().modules():
        if isinstance(module, ElementDropout):
            module.probability = 0.0
    return model


def assert_equal(ours: Learned, theirs: Learned):
    """Logits and loss within 1e-5, gradients within 1e-4 of their largest entry."""
    assert_close(ours.logits, theirs.logits)
    assert_close(ours.loss, theirs.loss)
    assert ours.gradients.keys() == theirs.gradients.keys()
    for name, gradient in theirs.gradients.items():
        difference = (ours.gradients[name] - gradient).abs().max() / largest_entry(theirs.gradients, name)
        assert difference < 1e-4, f"{name}: {difference:.1e}"


def largest_entry(gradients: dict[str, torch.Tensor], name: str) -> torch.Tensor:
    """The largest entry of a parameter's gradient, or of its weight's for a bias before batch normalisation."""
    largest = gradients[name].abs().max()
    return largest if largest > 1e-6 else gradients[name.removesuffix("bias") + "weight"].abs().max()


def with_weights_behind(logits: torch.Tensor, model: PRPNForCausalLM, input_ids: torch.Tensor) -> PRPNForCausalLM:
    """The model with its weights moved, in one direction and by one step, so that its logits come nearest to these."""
    moved = copy.deepcopy(model)
    parameters = list(moved.parameters())
    outputs = moved(input_ids).logits
    missing = (logits - outputs).detach()
    gradients = torch.autograd.grad((outputs * missing).sum(), parameters)
    with torch.no_grad():
        directions = [gradient * weight.square() for gradient, weight in zip(gradients, parameters, strict=True)]
        probe = 1e-9 / largest_movement(parameters, directions)
        torch._foreach_add_(parameters, directions, alpha=probe)
        slope = (moved(input_ids).logits - outputs) / probe
        step = (missing * slope).sum() / slope.square().sum()
        torch._foreach_add_(parameters, directions, alpha=(step - probe).item())
    return moved


def largest_movement(weights: Iterable[torch.Tensor], movements: Iterable[torch.Tensor]) -> float:
    """The largest movement of any weight, as a part of it."""
    return max(
        (movement / weight).nan_to_num(0).abs().max().item()
        for weight, movement in zip(weights, movements, strict=True)
    )


@pytest.mark.parametrize("computation", ["authors", "reference", "fused", pytest.param("native", marks=built)])
def test_a_training_step_in_float32_is_exact_for_weights_within_their_rounding(golden, computation):
    """With soft gates the recurrence magnifies the rounding of single operations to some 1e-4 in the logits, the
    authors' as ours. The result in float32 is still exact for weights that it can hardly tell from the
    given ones: one number, the length of the step towards them, explains all the differences. Gradients are not
    looked at to find it."""
    if computation == "authors":
        computed = learned_by_the_authors(golden)
    else:
        computed = learned(computed_by(computation, copy.deepcopy(golden.model)), golden)
    exact = in_training_without_dropout(computed_by("reference", copy.deepcopy(golden.model).double()))
    if not golden.model.config.hard:
        given = [weight.detach().clone() for weight in exact.parameters()]
        exact = with_weights_behind(computed.logits, exact, golden.input_ids)
        movements = [moved.detach() - weight for moved, weight in zip(exact.parameters(), given, strict=True)]
        assert largest_movement(given, movements) < 2**-23  # one unit in the last place
    assert_equal(learned(exact, golden), computed)


# `sums_of_products` with MKL on an Intel CPU with AVX-512, as on the machine of the golden files.
SUMS_OF_PRODUCTS = [490.3087968826294, 649.9801042079926, 1067.3149633407593, 1218.3194937705994]


def sums_of_products() -> list[float]:
    """Tells apart in what order CPUs add up the matrix products of a layer, by what rounding leaves of some."""

    def matrix(num_rows: int, num_columns: int) -> torch.Tensor:
        return (torch.arange(num_rows * num_columns) * 37 % 101).float().div(101).view(num_rows, num_columns)

    operands = [(matrix(3, size), matrix(56, size)) for size in (10, 14, 24, 28)]
    return [F.linear(inputs, weight, weight[:, 0]).double().sum().item() for inputs, weight in operands]


def test_the_reference_in_float32_repeats_the_authors_training_step(golden):
    """Without any allowance: with hard gates, where rounding stays small, anywhere; with soft gates where matrix
    products add up as on the golden files' CPU."""
    if not golden.model.config.hard and sums_of_products() != SUMS_OF_PRODUCTS:
        pytest.skip("this CPU's matrix products add up in another order than those of the golden files")
    model = computed_by("reference", copy.deepcopy(golden.model))
    assert_equal(learned(model, golden), learned_by_the_authors(golden))


@pytest.mark.parametrize("implementation", ["reference", "fused", pytest.param("native", marks=built)])
def test_distances_in_float32(golden, implementation):
    model = computed_by(implementation, copy.deepcopy(golden.model))
    with torch.no_grad():
        outputs = model(golden.input_ids, shift_labels=golden.labels, output_distances=True)
    assert_close(outputs.distances, golden.tensors["eval.gates"])
    assert_close(outputs.loss, golden.tensors["eval.loss"])
