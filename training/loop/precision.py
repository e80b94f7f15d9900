"""Whether a CPU gains anything by `mixed_precision: bf16`."""

import platform

import torch

SLOW_BFLOAT16 = (
    "mixed_precision is bf16, but this CPU has no instructions for products of bfloat16 numbers: the run is hardly "
    "faster than a plain float32 loop (1.15 times, where it was measured; float32 on the fast paths: 2.8 times). "
    "Pass --mixed_precision no: it is faster here, needs more memory for activations, and the weights differ from a "
    "bf16 run's by rounding."
)


def has_bfloat16_products() -> bool:
    """Whether this CPU multiplies bfloat16 numbers by instructions of its own: AVX-512 BF16, AMX, or those of Arm.

    oneDNN takes bfloat16 on every CPU with AVX-512, but without these it computes with float32 and converts.
    """
    if platform.machine().lower() in ("x86_64", "amd64"):
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
