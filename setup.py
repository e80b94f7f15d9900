"""Builds the optional CPU operators of the recurrences; everything else about the package is in setup.cfg."""

import platform
import sys

from setuptools import Extension, setup

X86_FLAGS = {
    "avx512bf16": ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512bf16", "-mfma"],
    "avx512": ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma"],
    "avx2": ["-mavx2", "-mfma"],
}


OPERATORS = ("ordered_neurons", "memory_reading")


def library(operator: str, instruction_set: str, flags: list[str]) -> Extension:
    """A library that ctypes loads, not a Python module; without a compiler the package installs without it."""
    return Extension(
        f"onlstm_hf.ops._{operator}_{instruction_set}",
        [f"onlstm_hf/ops/csrc/{operator}.cpp"],
        depends=["onlstm_hf/ops/csrc/native_kernels.h"],
        language="c++",
        extra_compile_args=["-std=c++17", "-O3", "-fno-math-errno", "-fopenmp", "-g0", *flags],
        extra_link_args=["-fopenmp"],
        optional=True,
    )


is_linux, is_x86 = sys.platform == "linux", platform.machine() in ("x86_64", "AMD64")
instruction_sets = {**(X86_FLAGS if is_x86 else {}), "generic": []} if is_linux else {}
setup(
    ext_modules=[library(operator, name, flags) for operator in OPERATORS for name, flags in instruction_sets.items()]
)
