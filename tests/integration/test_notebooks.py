import os
from pathlib import Path

import pytest

from tests.helpers.requirements import library

nbformat = library("nbformat", reason='the notebooks need pip install -e ".[notebooks]"')
nbclient = library("nbclient", reason='the notebooks need pip install -e ".[notebooks]"')
library("ipykernel", reason='the notebooks need pip install -e ".[notebooks]"')
FOLDER = Path(__file__).resolve().parents[2] / "examples" / "notebooks"
NOTEBOOKS = sorted(path.name for path in FOLDER.glob("*.ipynb"))


def cells(notebook, kind: str) -> list:
    return [cell for cell in notebook.cells if cell.cell_type == kind]


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_from_a_fresh_kernel(name, monkeypatch, tmp_path):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FOLDER.parents[1]), os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(FOLDER / name, as_version=4)
    kept = [bool(cell.outputs) for cell in cells(notebook, "code")]
    client = nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(FOLDER)}})
    client.execute()
    shown = [any(output.get("name") != "stderr" for output in cell.outputs) for cell in cells(notebook, "code")]
    assert shown == kept  # the stored outputs belong to these cells


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_stored_notebooks_are_complete(name):
    notebook = nbformat.read(FOLDER / name, as_version=4)
    nbformat.validate(notebook)
    code = cells(notebook, "code")
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert not [output for cell in code for output in cell.outputs if output.output_type == "error"]
    assert "/tmp/" not in (FOLDER / name).read_text(encoding="utf-8")


def test_the_readme_lists_every_notebook():
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert NOTEBOOKS and all(name in text for name in NOTEBOOKS)
