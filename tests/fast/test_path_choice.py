"""The choice among fast paths, also by released recipes; a wrong choice would only be slow, not fail."""

from pathlib import Path

import pytest
import torch
import yaml

from onlstm_hf import ONLSTMConfig, ONLSTMForCausalLM, PRPNConfig, PRPNForCausalLM
from onlstm_hf.fast.onlstm import native as onlstm_native
from onlstm_hf.fast.onlstm.operator import RECURRENCE as ORDERED_NEURONS
from onlstm_hf.fast.prpn import native as prpn_native
from onlstm_hf.fast.prpn.operator import RECURRENCE as MEMORY_READING
from onlstm_hf.fast.recurrence.native_library import MIN_LENGTH
from tests.helpers.fast_paths import record_paths
from tests.helpers.native_operators import needs_operator

RECIPES = Path(__file__).resolve().parents[2] / "training" / "recipes"
MODELS = {
    "onlstm_ptb_small": (ONLSTMConfig, ONLSTMForCausalLM, ORDERED_NEURONS),
    "prpn_ptb_small": (PRPNConfig, PRPNForCausalLM, MEMORY_READING),
}
pytestmark = [needs_operator(onlstm_native.OPERATOR), needs_operator(prpn_native.OPERATOR)]


@pytest.fixture(params=list(MODELS))
def released(request, monkeypatch):
    """Returns a released recipe, its model with a small vocabulary, and the list of the paths that run."""
    recipe = yaml.safe_load((RECIPES / f"{request.param}.yaml").read_text(encoding="utf-8"))
    config_class, model_class, recurrence = MODELS[request.param]
    model = model_class(config_class(vocab_size=50, **recipe["model"]))
    return recipe, model, record_paths(monkeypatch, recurrence)


@pytest.mark.slow
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_training_takes_the_compiled_operator(released, precision):
    recipe, model, ran = released
    model.train()
    ids = torch.randint(50, (recipe["batch_size"], recipe["bptt_length"]))
    with torch.autocast("cpu", precision, enabled=precision != torch.float32):
        loss = model(ids, labels=ids).loss
    loss.backward()
    layers = model.config.num_hidden_layers
    assert ran == [("native", "forward")] * layers + [("native", "backward")] * layers


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("batch_size", ["eval_batch_size", "test_batch_size"])
def test_reading_without_gradients_takes_the_compiled_operator(released, precision, batch_size):
    recipe, model, ran = released
    ids = torch.randint(50, (recipe[batch_size], recipe["bptt_length"]))
    mask = torch.ones_like(ids)
    mask[0, -2:] = 0
    with torch.no_grad(), torch.autocast("cpu", precision, enabled=precision != torch.float32):
        model.eval()(ids, attention_mask=mask)
    assert ran == [("native", "forward")] * model.config.num_hidden_layers


def test_a_compiled_model_takes_the_compiled_operator(released):
    _, model, ran = released
    torch._dynamo.reset()
    ids = torch.randint(50, (2, 6))
    torch.compile(model.train(), backend="aot_eager")(ids, labels=ids).loss.backward()
    assert set(ran) == {("native", "forward"), ("native", "backward")}


# Inputs of a layer with a number of steps.
RECURRENCES = pytest.mark.parametrize(
    ("recurrence", "operator", "sequence"),
    [
        (ORDERED_NEURONS, onlstm_native.OPERATOR, lambda length: torch.zeros(length, 2, 54)),
        (MEMORY_READING, prpn_native.OPERATOR, lambda length: torch.zeros(2, length, 12)),
    ],
    ids=["onlstm", "prpn"],
)


@RECURRENCES
def test_auto_takes_the_compiled_operator_from_a_few_steps(recurrence, operator, sequence):
    assert recurrence.choose("auto", sequence(MIN_LENGTH)) == "native"
    for other in (sequence(MIN_LENGTH - 1), sequence(MIN_LENGTH)[..., :0], sequence(MIN_LENGTH).double()):
        assert recurrence.choose("auto", other) is None


@RECURRENCES
def test_a_path_that_cannot_run_is_refused_with_the_reason(recurrence, operator, sequence, monkeypatch):
    refused = "{} implementation cannot run here: {}"
    with pytest.raises(ValueError, match=refused.format("native", "it computes in float32, not in float64")):
        recurrence.choose("native", sequence(9).double())
    with pytest.raises(ValueError, match=refused.format("triton", "it needs tensors on a GPU, not on cpu")):
        recurrence.choose("triton", sequence(9))
    monkeypatch.setitem(vars(operator), "instruction_set", lambda: None)
    with pytest.raises(ValueError, match=refused.format("native", "its compiled operator is not installed")):
        recurrence.choose("native", sequence(9))
    assert recurrence.choose("auto", sequence(9)) is None
