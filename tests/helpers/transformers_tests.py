"""Common tests of Transformers for all models: base classes from the source of the installed version.

The installed package does not include them. `python -m tests.helpers.transformers_tests` downloads them to the folder
`TRANSFORMERS_TESTS` (environment variable), by default `.cache/transformers-tests/`.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType

import transformers

from tests.helpers.requirements import library, missing

PROJECT_ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("TRANSFORMERS_TESTS", PROJECT_ROOT / ".cache" / "transformers-tests"))
TESTS = FOLDER / f"transformers-{transformers.__version__}" / "tests"
# Names to stand in for modules that only the repository of Transformers has. A checkout of it needs no stand-ins.
STAND_INS = {
    "exporters.test_export": {"ExportTesterMixin": type("ExportTesterMixin", (), {})},
    "generation.test_utils": {"GenerationTesterMixin": type("GenerationTesterMixin", (), {})},
    "utils.test_configuration_utils": {"config_common_kwargs": {}},
}
PACKAGE = "tests_of_transformers"


def common_tests(name: str) -> ModuleType:
    """Imports a module of these tests; without them the calling test is skipped or fails."""
    library("parameterized")
    if not TESTS.is_dir():
        missing("common", f"{TESTS} is missing; python -m tests.helpers.transformers_tests downloads it")
    _package(PACKAGE, TESTS)
    for stand_in, contents in STAND_INS.items():
        folder, _, file = stand_in.partition(".")
        if not (TESTS / folder / f"{file}.py").is_file():
            _package(f"{PACKAGE}.{folder}", TESTS / folder)
            module = sys.modules[f"{PACKAGE}.{stand_in}"] = ModuleType(f"{PACKAGE}.{stand_in}")
            vars(module).update(contents)
    return import_module(f"{PACKAGE}.{name}")


def _package(name: str, folder: Path) -> None:
    if name not in sys.modules:
        spec = ModuleSpec(name, loader=None, is_package=True)
        spec.submodule_search_locations = [str(folder)]
        sys.modules[name] = module_from_spec(spec)


def download() -> None:
    """Downloads the tests of the installed version to their folder, unless they exist."""
    if TESTS.is_dir():
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        requirement = f"transformers=={transformers.__version__}"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "transformers"]
        subprocess.run([*command, "--dest", folder, requirement], check=True)
        (path,) = Path(folder).glob("*.tar.gz")
        with tarfile.open(path) as archive:
            wanted = [member for member in archive.getmembers() if "/tests/" in member.name]
            archive.extractall(folder, wanted, filter="data")
        tests = Path(folder, TESTS.parent.name, "tests")
        (tests / "__init__.py").touch()
        # The tests of tokenizers open this file, but do not read it.
        (tests / "fixtures").mkdir()
        (tests / "fixtures" / "sample_text.txt").touch()
        tests.parent.rename(TESTS.parent)


if __name__ == "__main__":
    download()
