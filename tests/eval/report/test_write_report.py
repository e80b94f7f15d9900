"""RESULTS.md and the tables of other pages match the results files."""

import importlib
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import yaml

from eval import write_report as report
from eval.report import sections
from eval.report.published import TABLES, published_tables
from onlstm_hf.hub.cards import published

ROOT = Path(__file__).parents[3]
COMMITTED = sorted((ROOT / "eval" / "results").glob("*.json"))
PAGES = ["RESULTS.md", "README.md", *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").glob("*.md")))]


def test_committed_tables_are_up_to_date(tmp_path, monkeypatch):
    (tmp_path / "docs").mkdir()
    for folder in ("eval", "model_cards"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    for page in PAGES:
        shutil.copy(ROOT / page, tmp_path / page)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(report, "draw_accuracies", lambda *_: None)
    assert report.main([]) == 0
    for page in PAGES:
        assert Path(page).read_text("utf-8") == (ROOT / page).read_text("utf-8"), "run python eval/write_report.py"


def test_the_page_of_published_figures_has_every_system_and_every_source():
    tables = published_tables()
    content = yaml.safe_load(Path(published.__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    # The first table of a task has all its systems.
    shown = {task: name for name, (task, _) in reversed(TABLES.items())}
    assert set(shown) | {"targeted syntactic evaluation"} == set(content) - {"sources"}
    for task, name in shown.items():
        header, rows = tables[f"published-{name}"]
        assert [row[0] for row in rows] == [figure["system"] for figure in content[task]]
        assert all(len(row) == len(header) and row[-2] for row in rows)
    assert len(tables["published-sources"][1]) == len(content["sources"])


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_results_have_no_local_paths(path):
    assert not re.findall(r"(?:\\n|[\s='\"])(?:/\w|~|\.\./).*", path.read_text())


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_the_script_accepts_the_command_of_every_result(path):
    results = json.loads(path.read_text())
    program, script, *arguments = shlex.split(results["command"])
    assert program == "python" and (ROOT / script).is_file()
    # Removed since: a case of the benchmark, and the option for the spelling of the treebank.
    gone = {"speed_training": ["memory"], "syntax_ptb_small": ["--spelling", "treebank"]}
    arguments = [argument for argument in arguments if argument not in gone.get(path.stem, [])]
    if script.startswith("eval/"):
        module = importlib.import_module(script.removesuffix(".py").replace("/", "."))
        options = module.build_parser().parse_args(arguments)
        assert options.output == f"eval/results/{path.name}"


def test_tables_are_filled_in_and_unknown_names_are_refused():
    page = "a\n<!-- report: speed -->\nold\n<!-- /report -->\nb\n"
    filled = report.fill_markers(page, {"speed": "| new |"})
    assert filled == "a\n<!-- report: speed -->\n| new |\n<!-- /report -->\nb\n"
    assert report.fill_markers(filled, {"speed": "| new |"}) == filled
    with pytest.raises(ValueError, match="there is no table speed; the tables are other"):
        report.fill_markers(page, {"other": ""})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there are no results"),
        ("{", "is not a JSON file"),
        ("[]", "holds no results of language modelling or "),
    ],
)
def test_other_files_are_refused(tmp_path, refusal, content, message):
    (tmp_path / "eval" / "results").mkdir(parents=True)
    if content is not None:
        (tmp_path / "eval" / "results" / "speed.json").write_text(content)
    assert message in refusal(report, "--folder", tmp_path)
    assert not (tmp_path / "RESULTS.md").exists()


def test_tasks_without_measured_figures_have_no_rows():
    trained = {"small": [], "languages/nl": []}
    tables = [sections.ablations(trained), *(sections.training_runs(trained, name) for name in sections.RUN_TABLES)]
    assert [rows for _, rows in tables] == [[]] * 3
