"""Affine maps that a recurrence applies at every step, and what other libraries do to them.

A compiled recurrence reads the weight of such a map and calls no module. Around the module, or in its place, there may
be an adapter, quantised weights, weights that are kept elsewhere until they are needed, or hooks. Where the weight can
be read it is; otherwise it is found by calling the module.
"""

from collections.abc import Callable

import torch
from torch import nn

from .linear import Linear, is_ordinary, linear


def affine(
    module: nn.Module, inputs: torch.Tensor, further_bias: torch.Tensor, implementation: str = "auto"
) -> torch.Tensor:
    """`module(inputs) + further_bias`, in a single operation where nothing would notice that the module is not called.

    Args:
        module: an affine map, or what stands in the place of one.
        inputs: `[..., in]`.
        further_bias: `[out]`.
        implementation: as for `linear`.
    """
    if is_plain(module):
        return linear(inputs, module.weight, module.bias + further_bias, implementation)
    outputs = _call(module, inputs)
    return outputs + further_bias.to(outputs.dtype)


def is_plain(module: nn.Module) -> bool:
    """Whether a call of the module does nothing but apply the weight and the bias that it holds."""
    return _holds_its_map(module) and "forward" not in vars(module) and not _has_hooks(module)


def weight_and_bias(module: nn.Module, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Weight `[out, in]` and bias `[out]` of an affine map that is not called but computed by other means.

    An adapter that stands in the place of the linear layer, as PEFT's do, changes what is computed and not the weight,
    and quantised weights are packed: such a map is read off its values.

    Args:
        module: an affine map, or what stands in the place of one.
        like: has the dtype and the device of its inputs.
    """
    if _holds_its_map(module):
        return parameters(module)
    size = module.in_features
    rows = torch.eye(size + 1, size, dtype=like.dtype, device=like.device).roll(1, dims=0)
    values = _call(module, rows).to(like.dtype)
    return (values[1:] - values[0]).t(), values[0]


def parameters(module: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    """Weight and bias of a module that is not called.

    Where Accelerate keeps them in the main memory or on the disk, a call would bring them: its hook does so here, too.
    """
    hook = vars(module).get("_hf_hook")
    if hook is None:
        return module.weight, module.bias
    hook.pre_forward(module)
    tensors = module.weight, module.bias
    hook.post_forward(module, None)
    return tensors


def floating_dtype(module: nn.Module) -> torch.dtype:
    """The dtype of an affine map's weight, and the default one where the weight is packed."""
    dtype = getattr(module.weight, "dtype", None)
    return dtype if dtype is not None and dtype.is_floating_point else torch.get_default_dtype()


def show(module: nn.Module, inputs: Callable[[], torch.Tensor]) -> None:
    """Calls a map whose weight was read, for the hooks that somebody put on it, with the inputs of all steps at once.

    Args:
        module: an affine map, or what stands in the place of one.
        inputs: computes what the map was applied to, `[..., in]`.

    Raises:
        ValueError: if a hook wants more than to look.
    """
    if not _has_hooks(module):
        return
    with torch.no_grad():
        steps = inputs()
        is_changed = not torch.equal(module(steps), module.forward(steps))
    if is_changed or module._backward_hooks or module._backward_pre_hooks:
        raise ValueError(
            f"hooks can only look at this {type(module).__name__}({module.in_features}, {module.out_features}), and "
            "neither change its outputs nor see gradients: the recurrence reads its weight; hook the whole layer"
        )


def previous_states(hidden: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
    """The hidden states before each step, `[T, B, H]`, of that before the first `[B, H]` and those after each."""
    return torch.cat([hidden.unsqueeze(0).to(outputs.dtype), outputs[:-1]])


def _call(module: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    try:
        return module(inputs)
    except AssertionError as error:  # bitsandbytes in 4 bits on some CPUs: outputs must come in blocks of 32
        raise ValueError(
            f"{type(module).__name__} cannot map {module.in_features} to {module.out_features} units here ({error}): "
            "leave the layer as it is, or take another way to quantise it"
        ) from error


def _holds_its_map(module: nn.Module) -> bool:
    return type(module) in (nn.Linear, Linear) and is_ordinary(module.weight)


def _has_hooks(module: nn.Module) -> bool:
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )
