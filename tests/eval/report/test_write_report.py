import importlib
import json
import re
import shlex
from pathlib import Path

import pytest

from eval import write_report as report
from eval.report.results_files import short_name
from eval.report.tasks import LANGUAGE_MODELLING, LISTOPS, NARRATIVE_CLOZE, PARSING
from eval.speed.rows import Row
from onlstm_hf.hub.cards.published import published_figures
from onlstm_hf.logic.scores import score_logic
from onlstm_hf.utils.results_file import write_results
from tests.helpers.requirements import library

COMMITTED = sorted((Path(__file__).parents[3] / "eval" / "results").glob("*.json"))


def strings(content):
    if isinstance(content, dict):
        return [text for pair in content.items() for value in pair for text in strings(value)]
    if isinstance(content, list):
        return [text for value in content for text in strings(value)]
    return [content] if isinstance(content, str) else []


def test_the_report_is_what_the_results_give(project_root, monkeypatch, tmp_path):
    monkeypatch.chdir(project_root)
    figure = ["--logic-figure", "docs/logic.svg"]
    monkeypatch.setattr(report, "draw_accuracies", lambda *_: None)
    assert report.main(["--output", str(tmp_path / "RESULTS.md"), *figure]) == 0
    written = (tmp_path / "RESULTS.md").read_text(encoding="utf-8")
    assert written == Path("RESULTS.md").read_text(encoding="utf-8"), "run python eval/write_report.py"


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_results_name_no_place_of_one_machine(path):
    places = [text for text in strings(json.loads(path.read_text())) if re.search(r"(^|[\s='\"])(/\w|~|\.\./)", text)]
    assert places == []


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_the_command_of_every_result_is_one_that_its_script_takes(project_root, path):
    results = json.loads(path.read_text())
    program, script, *arguments = shlex.split(results["command"])
    assert program == "python" and (project_root / script).is_file()
    if script.startswith("eval/"):
        module = importlib.import_module(script.removesuffix(".py").replace("/", "."))
        options = module.build_parser().parse_args(arguments)
        assert options.output == f"eval/results/{path.name}"


def test_every_measured_row_names_a_run_and_every_other_row_is_published(project_root):
    text = (project_root / "RESULTS.md").read_text(encoding="utf-8")
    tables, runs = text.split("\n## Runs\n")
    known = set(re.findall(r"^\[(\d+)\] `eval/results/", runs, flags=re.MULTILINE))
    assert len(known) == len(COMMITTED)
    numbers = set(re.findall(r"\[(\d+)\]", tables))
    assert numbers == known
    tasks = (LANGUAGE_MODELLING, PARSING, NARRATIVE_CLOZE, LISTOPS)
    sources = {row["source"] for task in tasks for row in published_figures(task)}
    for line in tables.splitlines():
        if line.startswith("|") and "(published)" in line and "| run |" not in line:
            assert not re.search(r"\[\d+\]", line) or line.startswith("| Marvin")
            if not line.startswith(("| Marvin", "| operators")):
                assert re.sub(r" \((secondary|computed)\)$", "", line.split(" | ")[-1].removesuffix(" |")) in sources


def test_the_share_of_unknown_words_stands_beside_every_perplexity_and_f1(project_root):
    text = (project_root / "RESULTS.md").read_text(encoding="utf-8")
    for section in ("Language modelling", "Unsupervised constituency parsing"):
        (table,) = re.findall(rf"^## {section}\n.*?^(\| .*?)\n\n", text, flags=re.MULTILINE | re.DOTALL)
        header, _, *rows = [line.strip("| ").split(" | ") for line in table.splitlines()]
        measured = [row for row in rows if row[1] and re.fullmatch(r"(\[\d+\] ?)+", row[-1])]
        assert measured
        for row in measured:
            assert re.fullmatch(r"\d+\.\d %", row[header.index("unknown words")].strip()), row


def test_trees_of_sentences_that_were_not_read_come_first_and_every_measured_row_says_which_they_are(project_root):
    text = (project_root / "RESULTS.md").read_text(encoding="utf-8")
    (table,) = re.findall(
        r"^## Unsupervised constituency parsing\n.*?^(\| .*?)\n\n", text, flags=re.MULTILINE | re.DOTALL
    )
    header, _, *rows = [[cell.strip() for cell in line.split("|")] for line in table.splitlines()]
    model, read = header.index("model"), header.index("read in training")
    answers = [row[read] for row in rows if row[model]]
    assert answers == sorted(answers) and set(answers) == {"no", "yes"}
    assert not any(row[read] for row in rows if not row[model])


def test_agreement_without_gold_trees_has_a_table_for_every_run_that_measured_it(project_root):
    text = (project_root / "RESULTS.md").read_text(encoding="utf-8")
    (section,) = re.findall(r"^### Agreement of models.*?(?=^##)", text, flags=re.MULTILINE | re.DOTALL)
    tables = {int(table.split("]")[0]): table for table in section.split("| run [")[1:]}
    runs = {
        int(number): json.loads((project_root / path).read_text())
        for number, path in re.findall(r"^\[(\d+)\] `(eval/results/\S+)`", text, flags=re.MULTILINE)
    }
    assert set(tables) == {number for number, results in runs.items() if "agreement" in results}
    for number, table in tables.items():
        results = runs[number]
        seeds = {model["model"]: model["seed"] for model in results["models"]}
        rows = [[cell.strip() for cell in line.split("|")] for line in table.splitlines()]
        for parser in results["agreement"]["parsers"]:
            model = f"{short_name(parser['model'])}, {seeds[parser['model']]}"
            (row,) = [row for row in rows if row[1:3] == [parser["trees"], model]]
            assert row[3] == f"{100 * parser['sentence_f1']:.1f}" and row[-2] == f"{100 * parser['all others']:.1f}"


def test_runs_with_the_same_figures_share_a_row(project_root):
    text = (project_root / "RESULTS.md").read_text(encoding="utf-8")
    for table in re.split(r"\n\n", text):
        lines = [line for line in table.splitlines() if line.startswith("| ") and "| --- |" not in line]
        figures = [re.sub(r"(\[\d+\] ?)+\|$", "", line) for line in lines]
        assert len(figures) == len(set(figures))


@pytest.fixture
def logic_results(tmp_path):
    paths = []
    for name, predictions in (("logic_onlstm", ["<", "#", "="]), ("logic_lstm", ["<", "#", "#"])):
        content = {
            "task": "logical inference",
            "name": name,
            "test": score_logic(predictions, ["<", "#", "="], [1, 7, 12]).to_dict(),
            "validation_accuracy": 0.5,
            "parameters": 1234,
            "epochs": 3,
            "recipe": {"max_train_operators": 6, "seed": 5},
        }
        paths.append(str(tmp_path / f"{name}.json"))
        write_results(paths[-1], content, "training/train_logic.py", ["--output_dir", name])
    return paths


def test_results_of_logical_inference_give_a_table_and_a_figure(tmp_path, logic_results):
    library("matplotlib")
    output, figure = tmp_path / "RESULTS.md", tmp_path / "logic.svg"
    arguments = ["--results", *logic_results, "--output", str(output), "--logic-figure", str(figure)]
    assert report.main(arguments) == 0
    text = output.read_text(encoding="utf-8")
    for line in (
        "| operators | pairs | logic_onlstm | logic_lstm | ON-LSTM (published) | LSTM (published) | RRNet (published) "
        "| Tree-LSTM (published) |",
        "| 12 | 1 | 100.0 | 0.0 | 75 | 69 | 71 | 86 |",
        "| seed |  | 5 | 5 |  |  |  |  |",
        "| run |  | [1] | [2] | published | published | published | published |",
        f"![Accuracy by number of operators]({figure})",
        "python training/train_logic.py --output_dir logic_lstm",
    ):
        assert line in text.splitlines()
    assert "logic_onlstm" in figure.read_text()


def test_results_of_the_speed_benchmark_give_a_table(tmp_path):
    rows = [
        Row("stack", "speed", [1, 2, 2.5], at_least=2.5, allocator="kept", optimizer="fused / plain"),
        Row("stack", "time", [1, 1, 1], allocator="kept"),
    ]
    path, output = tmp_path / "speed.json", tmp_path / "RESULTS.md"
    write_results(path, {"task": "speed", "rows": [row.to_dict() for row in rows]}, "eval/benchmark_speed.py", [])
    assert report.main(["--results", str(path), "--output", str(output)]) == 0
    lines = output.read_text(encoding="utf-8").splitlines()
    assert "| stack | speed | 2 (1.5 to 2.25) | at least 2.5 | missed | kept | fused / plain | [1] |" in lines
    assert "| stack | time | 1 |  |  | kept | none | [1] |" in lines
    assert not any("runs" in line for line in lines if line.startswith("| stack"))


def test_what_several_runs_of_the_speed_benchmark_measured_has_a_row_over_all_their_rounds(tmp_path):
    paths = [str(tmp_path / name) for name in ("first.json", "second.json")]
    rounds = {"plain": [1, 2], "fused": [3, 4, 5]}
    for path, (optimizer, values) in zip(paths, rounds.items(), strict=True):
        rows = [Row("step", "speed", values, at_least=2.5, allocator="kept", optimizer=optimizer).to_dict()]
        write_results(path, {"task": "speed", "rows": rows}, "eval/benchmark_speed.py", [])
    output = tmp_path / "RESULTS.md"
    assert report.main(["--results", *paths, "--output", str(output)]) == 0
    lines = output.read_text(encoding="utf-8").splitlines()
    (row,) = [line for line in lines if line.startswith("| step | speed: all 5 rounds of 2 runs | ")]
    assert row.endswith(" | 3 (2 to 4) | at least 2.5 | missed | kept | plain; fused | [1] [2] |")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no file"),
        ("{", "is not a JSON file"),
        ("[]", "holds no results of language modelling or "),
        ('{"task": "speed"}', "does not say its command"),
    ],
)
def test_other_files_are_refused(tmp_path, capsys, content, message):
    path = tmp_path / "results.json"
    if content is not None:
        path.write_text(content)
    assert report.main(["--results", str(path), "--output", str(tmp_path / "RESULTS.md")]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "RESULTS.md").exists()


def test_without_results_one_line_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert report.main([]) == 1
    assert capsys.readouterr().err.startswith("write_report.py: there are no results")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("user/onlstm", "onlstm"),
        ("runs/small/best", "small"),
        ("runs/small/last", "small"),
        ("best", "best"),
        ("results/small/seed_7.trees.jsonl.xz", "small"),
    ],
)
def test_a_model_is_named_after_its_folder_or_its_run(path, name):
    assert short_name(path) == name
