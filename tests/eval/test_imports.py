"""Imports between the files of eval/."""

import ast
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "eval"
SCRIPTS = {f"eval.{path.stem}" for path in FOLDER.glob("*.py") if "__main__" in path.read_text(encoding="utf-8")}


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: str(path.relative_to(FOLDER)))
def test_no_file_imports_a_script(path):
    assert "eval.evaluate_lm" in SCRIPTS
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            imported |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    assert not imported & SCRIPTS
