"""Whether a CPU is known to multiply bfloat16 numbers."""

import platform

import pytest
import torch

from training.loop.precision import has_bfloat16_products


@pytest.mark.parametrize(
    ("avx512_bf16", "amx", "expected"), [(False, False, False), (True, False, True), (False, True, True)]
)
def test_an_x86_cpu_needs_avx512_bf16_or_amx(monkeypatch, avx512_bf16, amx, expected):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512_bf16)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    assert has_bfloat16_products() is expected


@pytest.mark.parametrize("available", [False, True])
def test_another_cpu_is_asked_through_onednn(monkeypatch, available):
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: available)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    assert has_bfloat16_products() is available


def test_this_cpu_says_the_same_as_its_flags():
    flags = _cpu_flags()
    if not flags:
        pytest.skip("no /proc/cpuinfo with flags")
    assert has_bfloat16_products() == bool({"avx512_bf16", "amx_bf16"} & flags)


def _cpu_flags() -> set[str]:
    try:
        with open("/proc/cpuinfo") as file:
            return next(set(line.split()) for line in file if line.startswith("flags"))
    except (OSError, StopIteration):
        return set()
