"""Import layering: imports between folders go one way, and folders are small and documented."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT_ROOT = Path(__file__).resolve().parents[2]
PACKAGE = PROJECT_ROOT / "onlstm_hf"
# A folder may only import from the folders after it.
ORDER = (
    *("cli", "page", "hub", "corpus", "conversion", "scoring", "logic", "models", "parsing", "fast", "trees"),
    *("text", "utils"),
)
FOLDERS = sorted(path.parent for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE)
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE)
# The two files of a model count as one.
MAX_FILES_PER_FOLDER = 12


def imported_folders(path: Path) -> Iterator[str]:
    """Returns the folders of the package that a module imports from, also inside functions."""
    here = path.relative_to(PROJECT_ROOT).with_suffix("").parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level] if node.level else ()
            parts = (*base, *(node.module or "").split("."))
            names = [parts] if node.module else [(*base, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [tuple(alias.name.split(".")) for alias in node.names]
        else:
            continue
        for name in names:
            if name[0] == "onlstm_hf" and len(name) > 1 and (PACKAGE / name[1]).is_dir():
                yield name[1]


def test_every_folder_is_in_the_import_order():
    assert {path.relative_to(PACKAGE).parts[0] for path in FOLDERS} <= set(ORDER)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_imports_between_folders_go_one_way(path):
    own = ORDER.index(path.relative_to(PACKAGE).parts[0])
    upwards = [folder for folder in imported_folders(path) if ORDER.index(folder) < own]
    assert upwards == [], f"{path.name} imports from folders that may import from its own"


@pytest.mark.parametrize("folder", [PACKAGE, *FOLDERS], ids=lambda path: path.relative_to(PROJECT_ROOT).as_posix())
def test_a_folder_is_documented_and_has_few_files(folder):
    docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))
    assert docstring and docstring.splitlines()[0].endswith(".")
    names = {path.stem.removeprefix("configuration_").removeprefix("modeling_") for path in folder.glob("*.py")}
    assert len(names - {"__init__"}) <= MAX_FILES_PER_FOLDER


def test_scripts_do_not_import_the_command_line():
    for folder in ("training", "eval", "examples"):
        for path in (PROJECT_ROOT / folder).rglob("*.py"):
            assert "cli" not in set(imported_folders(path)), path


def test_tests_mirror_the_folders_of_the_code():
    code = {path.name for path in [*PACKAGE.iterdir(), PROJECT_ROOT / "training", PROJECT_ROOT / "eval"]}
    folders = {path.parent.name for path in (PROJECT_ROOT / "tests").glob("*/test_*.py")}
    assert folders <= code | {"integration"}
    assert not list((PROJECT_ROOT / "tests").glob("test_*.py"))
