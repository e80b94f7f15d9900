"""Builds the optional CPU operators of the recurrences; nearly everything else about the package is in setup.cfg."""

import platform
import re
import sys
from configparser import ConfigParser
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CompileError, LinkError

X86_FLAGS = {
    "avx512bf16": ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512bf16", "-mfma"],
    "avx512": ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma"],
    "avx2": ["-mavx2", "-mfma"],
}


OPERATORS = ("onlstm", "prpn")
FAST_PATH_IS_MISSING = (
    "onlstm_hf: {} of {} compiled CPU operators could not be built (is there a C++ compiler with OpenMP?); "
    "the package works without them, two to three times slower on CPUs"
)


def library(operator: str, instruction_set: str, flags: list[str]) -> Extension:
    """A library that ctypes loads, not a Python module; without a compiler the package installs without it."""
    return Extension(
        f"onlstm_hf.fast._{operator}_{instruction_set}",
        [f"onlstm_hf/fast/csrc/{operator}.cpp"],
        depends=["onlstm_hf/fast/csrc/native_kernels.h"],
        language="c++",
        extra_compile_args=["-std=c++17", "-O3", "-fno-math-errno", "-fopenmp", "-g0", *flags],
        extra_link_args=["-fopenmp"],
        optional=True,
    )


class BuildLibraries(build_ext):
    """Names the libraries without the Python ABI that they do not need; says in one line what could not be built."""

    def get_ext_filename(self, fullname: str) -> str:
        return str(Path(*fullname.split(".")).with_suffix(".so"))

    def run(self) -> None:
        self.missing: list[str] = []
        super().run()
        if self.missing:
            print(FAST_PATH_IS_MISSING.format(len(self.missing), len(self.extensions)), file=sys.stderr)

    def build_extension(self, extension: Extension) -> None:
        try:
            super().build_extension(extension)
        except (BaseError, CompileError, LinkError):
            self.missing.append(extension.name)


class PlatformWheel(bdist_wheel):
    """One wheel for every Python of a platform."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


def package_index_text(readme: str, repository: str | None) -> str:
    """The README as a package index can show it, where links relative to the repository lead nowhere.

    Args:
        readme: its Markdown.
        repository: the repository's address, to which links are made absolute. Without one, pictures are left out and
            of links their text stays.
    """

    def replace(match: re.Match) -> str:
        picture, text, path = match["picture"], match["text"], match["path"]
        if repository is None:
            return "" if picture else text
        return f"{picture}[{text}]({repository}/{'raw' if picture else 'blob'}/main/{path})"

    relative = r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?!https?://|#)(?P<path>[^)]+)\)"
    # Fenced blocks are code, not links.
    parts = re.split(r"(^```.*?^```$)", readme, flags=re.MULTILINE | re.DOTALL)
    parts[::2] = [re.sub(relative, replace, part) for part in parts[::2]]
    return "".join(parts)


def source_url() -> str | None:
    """The repository's address, `Source` of setup.cfg's project_urls."""
    settings = ConfigParser()
    settings.read("setup.cfg", encoding="utf-8")
    lines = settings["metadata"].get("project_urls", "").strip().splitlines()
    return dict(re.split(r"\s*=\s*", line, maxsplit=1) for line in lines).get("Source")


is_linux, is_x86 = sys.platform == "linux", platform.machine() in ("x86_64", "AMD64")
instruction_sets = {**(X86_FLAGS if is_x86 else {}), "generic": []} if is_linux else {}
setup(
    long_description=package_index_text(Path("README.md").read_text(encoding="utf-8"), source_url()),
    ext_modules=[library(operator, name, flags) for operator in OPERATORS for name, flags in instruction_sets.items()],
    cmdclass={"build_ext": BuildLibraries, "bdist_wheel": PlatformWheel},
)
