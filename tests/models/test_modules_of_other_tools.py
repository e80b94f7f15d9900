"""Modules changed by other tools: hooks, offloaded and quantised weights. No change is ignored silently."""

import accelerate
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from tests.helpers.requirements import library
from tests.helpers.tiny_models import AWD_LSTMS, KINDS, MODEL_TYPES, Kind, pad, random_rows

EVERY_TYPE = pytest.mark.parametrize("kind", MODEL_TYPES.values(), ids=MODEL_TYPES)


@pytest.fixture
def inputs() -> dict[str, torch.Tensor]:
    input_ids, mask, _ = pad(random_rows(), "left")
    return {"input_ids": input_ids, "attention_mask": mask, "labels": input_ids}


def layers_of(model) -> nn.ModuleList:
    return model.model.reading_network if hasattr(model.model, "reading_network") else model.model.layers


# Gradients of hidden states


@pytest.mark.parametrize("is_padded", [False, True])
def test_hidden_states_have_the_gradients_of_later_layers(kind, inputs, is_padded):
    model, layer = kind.make().double(), 1
    if not is_padded:
        inputs = {"input_ids": inputs["input_ids"][:1], "labels": inputs["labels"][:1]}
    outputs = model(**inputs, output_hidden_states=True)
    for hidden in outputs.hidden_states:
        hidden.retain_grad()
    outputs.loss.backward()
    assert all(hidden.grad.abs().sum() > 0 for hidden in outputs.hidden_states)

    # Directional derivative with respect to the inputs of the second layer; there a PRPN's padding is at the end.
    gradient = outputs.hidden_states[layer].grad
    direction = torch.randn_like(gradient)
    moved = direction
    if kind is KINDS["prpn"] and is_padded:
        order = inputs["attention_mask"].argsort(dim=1, descending=True, stable=True)
        moved = direction.take_along_dim(order.unsqueeze(-1), dim=1)
    moved = moved if kind is KINDS["prpn"] else moved.transpose(0, 1)

    def loss(step: float) -> float:
        handle = layers_of(model)[layer].register_forward_pre_hook(lambda _, args: (args[0] + step * moved, *args[1:]))
        with torch.no_grad():
            value = model(**inputs).loss.item()
        handle.remove()
        return value

    expected = (loss(1e-5) - loss(-1e-5)) / 2e-5
    assert (gradient * direction).sum().item() == pytest.approx(expected, rel=1e-5, abs=1e-8)


def test_output_of_hidden_states_changes_nothing(kind, inputs):
    model = kind.make()
    expected, outputs = model(**inputs), model(**inputs, output_hidden_states=True)
    assert torch.equal(outputs.logits, expected.logits)
    parameters = list(model.parameters())
    gradients = (torch.autograd.grad(each.loss, parameters) for each in (outputs, expected))
    torch.testing.assert_close(*gradients)


# Hooks


def record(model) -> dict[str, list]:
    """Records inputs and outputs of every affine map by name, with hooks."""
    seen = {name: [] for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    for name, calls in seen.items():
        model.get_submodule(name).register_forward_hook(
            lambda _, args, output, calls=calls: calls.append((args[0].detach(), output.detach()))
        )
    return seen


def test_forward_hooks_see_every_step_of_every_affine_map(kind):
    model = kind.make()
    seen, input_ids = record(model), torch.randint(12, (2, 4))
    expected = kind.make()(input_ids).logits
    torch.testing.assert_close(model(input_ids).logits, expected)
    for name, calls in seen.items():
        module = model.get_submodule(name)
        num_rows = sum(inputs.numel() // module.in_features for inputs, _ in calls)
        assert num_rows == input_ids.numel(), name
        for inputs, output in calls:
            torch.testing.assert_close(output, nn.functional.linear(inputs, module.weight, module.bias))


def projections_of(model) -> dict[str, nn.Linear]:
    return {name: module for name, module in layers_of(model)[1].named_modules() if isinstance(module, nn.Linear)}


@pytest.mark.parametrize("is_before", [False, True])
def test_hooks_can_change_inputs_and_outputs_of_projections(kind, inputs, is_before):
    for name in projections_of(kind.make()):
        model, other = kind.make(), kind.make()
        hooked, changed = projections_of(model)[name], projections_of(other)[name]
        with torch.no_grad():
            if is_before:
                hooked.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
                changed.weight *= 2
            else:
                hooked.register_forward_hook(lambda module, args, output: output + 1)
                changed.bias += 1
        torch.testing.assert_close(model(**inputs).logits, other(**inputs).logits)


def test_backward_hooks_see_the_gradients_of_every_step(kind, inputs):
    model, seen = kind.make().train(), []
    projection = layers_of(model)[1].recurrent_projection
    projection.register_full_backward_hook(lambda module, given, returned: seen.append(returned[0]))
    model(**inputs).loss.backward()
    bias = torch.stack(seen).sum(dim=(0, 1))
    torch.testing.assert_close(bias, projection.bias.grad)


def test_hooked_and_parametrised_weights_train_like_plain_ones(kind, inputs):
    def change_nothing(projection):
        projection.register_forward_hook(lambda module, args, output: None)

    losses = []
    for change in (None, change_nothing, parametrizations.weight_norm):
        model = kind.make().train()
        for layer in layers_of(model) if change else ():
            change(layer.recurrent_projection)
        weights = {name: parameter.clone() for name, parameter in model.named_parameters()}
        torch.manual_seed(0)
        losses.append(model(**inputs).loss)
        losses[-1].backward()
        for name, parameter in model.named_parameters():
            assert torch.equal(parameter, weights[name]) and parameter.grad is not None, name
    torch.testing.assert_close(losses, losses[:1] * 3)


@pytest.mark.parametrize("kind", AWD_LSTMS.values(), ids=AWD_LSTMS)
def test_drop_connect_keeps_its_expectation_if_a_hook_computes_the_weight(kind, inputs):
    model = kind.make(**kind.no_dropout | {"weight_dropout": 0.4})
    for layer in layers_of(model):
        prune.identity(layer.recurrent_projection, "weight")
    expected = model(**inputs).loss
    torch.testing.assert_close(model.train()(**inputs).cross_entropy, expected)


@EVERY_TYPE
def test_hooks_on_the_head_run_without_returned_logits(kind, inputs):
    model = kind.make()
    expected, seen = model(**inputs).loss, record(model)
    outputs = model(**inputs, skip_logits=True)
    assert outputs.logits is None and len(seen["lm_head"]) == 1
    torch.testing.assert_close(outputs.loss, expected)


# Offloaded weights


def offloaded(model, way: str, folder) -> AutoModelForCausalLM:
    if way == "cpu_offload":
        return accelerate.cpu_offload(model, torch.device("cpu"))
    if way == "disk_offload":
        return accelerate.disk_offload(model, folder / "offload", torch.device("cpu"))
    model.save_pretrained(folder / "model")
    names = [name for name, module in model.named_modules() if name and not [*module.children()]]
    on_disk = next(name for name, module in model.named_modules() if module is layers_of(model)[1])
    device_map = {name: "cpu" for name in names if not name.startswith(on_disk)} | {on_disk: "disk"}
    return AutoModelForCausalLM.from_pretrained(
        folder / "model", device_map=device_map, offload_folder=folder / "offload"
    )


@EVERY_TYPE
@pytest.mark.parametrize("way", ["cpu_offload", "disk_offload", "device_map"])
def test_offloaded_weights_give_the_same_results(kind, inputs, way, tmp_path):
    model, expected_model = offloaded(kind.make(), way, tmp_path), kind.make()
    assert any(parameter.is_meta for parameter in model.parameters())
    with torch.no_grad():
        outputs, expected = model(**inputs), expected_model(**inputs)
        torch.testing.assert_close(outputs.logits, expected.logits)
        torch.testing.assert_close(model(**inputs, skip_logits=True).loss, expected.loss)
    options = {"max_new_tokens": 3, "do_sample": False}
    prompt = inputs["input_ids"][:1]
    assert torch.equal(model.generate(prompt, **options), expected_model.generate(prompt, **options))
    if model.induces_trees:
        assert model.parse([1, 2, 3, 4]).spans() == expected_model.parse([1, 2, 3, 4]).spans()


# Quantised weights


def quantized_by_pytorch(kind: Kind, folder) -> AutoModelForCausalLM:
    return torch.ao.quantization.quantize_dynamic(kind.make(**WIDE), {nn.Linear}, dtype=torch.qint8)


def quantized_by_torchao(kind: Kind, folder) -> AutoModelForCausalLM:
    quantization, model = library("torchao.quantization", kind="quantizers"), kind.make(**WIDE)
    quantization.quantize_(model, quantization.Int8WeightOnlyConfig())
    return model


def quantized_by_bitsandbytes(kind: Kind, folder, **options) -> AutoModelForCausalLM:
    library("bitsandbytes", kind="quantizers")
    kind.make(**WIDE).save_pretrained(folder)
    config = BitsAndBytesConfig(**(options or {"load_in_8bit": True}))
    return AutoModelForCausalLM.from_pretrained(folder, quantization_config=config, device_map="cpu")


def quantized_in_4_bits(kind: Kind, folder) -> AutoModelForCausalLM:
    return quantized_by_bitsandbytes(kind, folder, load_in_4bit=True, bnb_4bit_compute_dtype=torch.float32)


WIDE = {"embedding_size": 64, "hidden_size": 64}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", [AWD_LSTMS["onlstm"], AWD_LSTMS["lstm"]], ids=["onlstm", "lstm"])
@pytest.mark.parametrize(
    ("quantize", "tolerance"),
    [
        (quantized_by_pytorch, 0.1),  # it also rounds the states at every step
        (quantized_by_torchao, 0.05),
        (quantized_by_bitsandbytes, 0.05),
        (quantized_in_4_bits, 0.5),
    ],
)
def test_quantised_weights_are_used(kind, inputs, quantize, tolerance, tmp_path):
    model, expected_model = quantize(kind, tmp_path), kind.make(**WIDE)
    for module in layers_of(model)[1].children():
        assert type(module) is not nn.Linear or type(module.weight) is not nn.Parameter
    with torch.no_grad():
        logits, expected = model(**inputs).logits, expected_model(**inputs).logits
        assert 0 < (logits - expected).std() / expected.std() < tolerance
        state, steps = None, []
        for token in inputs["input_ids"][:1].split(1, dim=1):
            outputs = model(token, state=state)
            state = outputs.state
            steps.append(outputs.logits)
        whole = model(inputs["input_ids"][:1]).logits
        assert (torch.cat(steps, dim=1) - whole).std() / whole.std() < tolerance
    assert model.generate(inputs["input_ids"][:1], max_new_tokens=3, do_sample=False).shape[1] == 9
