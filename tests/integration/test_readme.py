"""Python code and commands in the README and docs/ run as written."""

import importlib
import json
import math
import random
import re
import shlex
import subprocess
import sys
import textwrap
from functools import partial
from glob import glob
from io import BytesIO, TextIOWrapper
from itertools import groupby
from pathlib import Path

import pytest
import yaml
from accelerate.state import AcceleratorState, GradientState
from pyarrow import parquet
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel

from eval import benchmark_speed, check_gpu, compare_page, time_page
from onlstm_hf import __version__, build_word_tokenizer, generate_logic_pairs
from onlstm_hf.cli import main as command_line
from onlstm_hf.hub.export import export_checkpoint
from onlstm_hf.logic.pairs import build_logic_dataset
from onlstm_hf.scoring.sentences import score_sentences
from tests.helpers.requirements import library
from tests.helpers.training_runs import GOLD_TREES
from training import quickstart, record_growth, train_parser
from training.train_logic import split_by_operators

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").glob("*.md")))]
# Tree of the README's sentence.
GOLD_TREE = (
    "(S (NP (NP the president) (PP of (NP the company))) (VP said (SBAR (S he (VP will (VP sell (NP his shares)))))))"
)
TINY_STACK = ["--model.embedding_size", "40", "--model.hidden_size", "40"]
# Additional arguments that shorten training.
LESS_WORK = {
    "training/quickstart.py": ["--max_steps", "2"],
    "training/train_lm.py": ["--max_steps", "1", "--tree_batch_size", "8", *TINY_STACK],
    "training/train_grammar.py": ["--max_steps", "2", "--model.num_nonterminals", "4"],
    "examples/trainer.py": ["--max_steps", "2"],
    "training/train_seeds.py": ["--seeds", "1111", "2222", "--max_steps", "1", *TINY_STACK],
    "training/train_logic.py": ["--num_epochs", "1", "--model.layer_sizes", "[20]"],
    "training/write_data.py": ["--num", "60"],
    "training/train_listops.py": ["--num_epochs=1", "--num_train=100", "--num_validation=20", "--num_test=50"],
}
# Programs that install, copy or upload, or are tested elsewhere.
NOT_RUN = ("python3", "pip", ".", "pytest", "lm_eval", "cp", "mkdir", "hf", "tar", "cd", "auditwheel", "ray")
# Commands whose arguments alone are checked: they need a Hub (test_hub.py runs them), stay up, take minutes,
# reads the authors' files, or is run by tests of its own.
PARSERS = {
    "onlstm-hf push": command_line.build_parser,
    "onlstm-hf demo": command_line.build_parser,
    "onlstm-hf page": command_line.build_parser,
    "python eval/compare_page.py": compare_page.build_parser,
    "python eval/time_page.py": time_page.build_parser,
    "python training/record_growth.py": record_growth.build_parser,
    "python training/train_parser.py": train_parser.build_parser,
    "onlstm-hf convert": command_line.build_parser,
    "onlstm-hf parse-corpus": command_line.build_parser,
    "python eval/benchmark_speed.py": benchmark_speed.build_parser,
    "python eval/check_gpu.py": check_gpu.build_parser,
}


def blocks(page: str, *languages: str) -> list[tuple[str, str]]:
    """Yields language and content of every fenced block in one of the languages."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(r"^```(\w+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [(language, content) for language, content in found if language in languages]


def commands(content: str) -> list[list[list[str]]]:
    """Returns the commands of a block, each a list of piped programs with their words."""
    lines = [shlex.split(line, comments=True) for line in content.replace("\\\n", " ").splitlines()]
    return [split_at("|", command) for line in lines for command in split_at("&&", line)]


def split_at(separator: str, words: list[str]) -> list[list[str]]:
    """Splits words at separators."""
    stretches = groupby(words, key=lambda word: word == separator)
    return [list(stretch) for is_separator, stretch in stretches if not is_separator]


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Returns the working directory, which has the project's files and a user's data."""
    monkeypatch.chdir(tmp_path)
    for path in ROOT.iterdir():
        if not path.name.startswith(".") and path.name != "runs":
            (tmp_path / path.name).symlink_to(path)
    generator = random.Random(0)
    words = ["the", "a", "cat", "dog", "bird", "old", "man", "sees", "likes", "sleeps", "and"]
    lines = [" ".join(generator.choices(words, k=7)) for _ in range(60)]
    for name in ("train", "valid", "test", "sentences"):
        Path(f"{name}.txt").write_text("\n".join(lines if name == "train" else lines[:12]) + "\n")
    for folder in ("wsj", "syneval", "blimp", "es"):
        Path(folder).mkdir()
    files = (f"wsj/wsj_{number:04}.mrg" for number in range(1, 6))
    for name in (*files, "trees.mrg", "wsj_0001-0199.mrg", "es/valid.mrg"):
        Path(name).write_text(GOLD_TREES)
    Path("syneval/simple_agrmt.tsv").write_text("sing_MS_MV\tthe cat sleeps\tthe cat sleep\n")
    pair = {"sentence_good": "the cat sleeps", "sentence_bad": "the cat sleep"}
    kind = {"UID": "agreement", "linguistics_term": "agreement", "field": "morphology"}
    Path("blimp/agreement.jsonl").write_text(json.dumps(kind | pair) + "\n")
    build_logic_dataset(split_by_operators(generate_logic_pairs(200))).save_to_disk("propositionallogic")
    tokenizer = build_word_tokenizer(lines)
    sizes = {"n_embd": 8, "n_layer": 1, "n_head": 1, "n_positions": 32}
    config = GPT2Config(vocab_size=len(tokenizer), bos_token_id=0, eos_token_id=0, **sizes)
    GPT2LMHeadModel(config).save_pretrained("gpt2")
    tokenizer.save_pretrained("gpt2")


def run(program: list[str]) -> None:
    """Runs a program of the project in this process."""
    if " ".join(program[:2]) in PARSERS:
        skipped = 1 if program[0] == "onlstm-hf" else 2
        PARSERS[" ".join(program[:2])]().parse_args(program[skipped:])
        return
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    if program[0] == "onlstm-hf":
        status = command_line.main(program[1:])
    else:
        words = [found for word in program for found in sorted(glob(word)) or [word]]  # as in a shell
        script, *arguments = words[2:] if words[:2] == ["accelerate", "launch"] else words[1:]
        module = importlib.import_module(script.removesuffix(".py").replace("/", "."))
        assert Path(module.__file__) == ROOT / script
        status = module.main([*arguments, *LESS_WORK.get(script, [])])
    assert status == 0 or isinstance(status, dict), program


@pytest.mark.usefixtures("checkout", "fresh_metric_modules")
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.slow) if page == "docs/training.md" else page for page in PAGES]
)
def test_code_runs_as_written(page, monkeypatch):
    sizes = {"num_train": 60, "num_validation": 60, "num_test": 60}
    monkeypatch.setattr(quickstart, "write_toy_corpus", partial(quickstart.write_toy_corpus, **sizes))
    namespace: dict = {}
    for language, content in blocks(page, "python", "bash"):
        if language == "python":
            exec(content, namespace)
            continue
        for command in commands(content):
            *feeding, program = command
            if feeding:
                ((cat, file),) = feeding
                assert cat == "cat"
                monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(Path(file).read_bytes())))
            if program[0] not in NOT_RUN and program[1:] != ["-m", "build"]:  # a build takes minutes
                run(program)


def test_the_readme_shows_the_tree_and_picture_that_it_draws(project_root, monkeypatch, capsys):
    monkeypatch.chdir(project_root)
    (_, first), (_, shown) = blocks("README.md", "python", "text")[:2]
    namespace: dict = {}
    exec(first, namespace)
    tree = capsys.readouterr().out.rstrip()
    assert [line.rstrip() for line in tree.splitlines()] == shown.rstrip().splitlines()

    sentence = " ".join(tree.splitlines()[-1].split())
    assert namespace["model"].parse(sentence, namespace["tokenizer"]).compare(GOLD_TREE).f1 == 1
    picture = namespace["model"].draw_distances(sentence, namespace["tokenizer"])
    expected = (project_root / "docs" / "tree.svg").read_text(encoding="utf-8")
    # Ids are checksums of rounded distances.
    picture, expected = (re.sub(r"onlstm-[0-9a-f]{8}", "onlstm", svg) for svg in (picture, expected))
    number = re.compile(r"\d+\.\d+")
    assert number.sub("", picture).strip() == number.sub("", expected).strip()
    values, expected_values = (list(map(float, number.findall(svg))) for svg in (picture, expected))
    assert values == pytest.approx(expected_values, abs=0.11)


def test_excerpts_match_the_example():
    code = (ROOT / "examples" / "minimal_cell.py").read_text(encoding="utf-8")
    excerpts = [content for _, content in blocks("docs/new-cell.md", "py")]
    assert excerpts
    for excerpt in excerpts:
        assert textwrap.indent(excerpt, " " * 8) in code


@pytest.mark.parametrize("page", PAGES)
def test_every_named_file_and_page_exists(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"(?<![\w/])(?:onlstm_hf|training|eval|docs|examples|model_cards)/[\w./*-]*\w", text)
    assert [name for name in named if not any(ROOT.glob(name))] == []
    linked = re.findall(r"\]\((?!https?://)([^)#]+)\)", text)
    assert [name for name in linked if not (ROOT / page).parent.joinpath(name).exists()] == []


def test_the_citation_file_names_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0" and citation["version"] == __version__


@pytest.mark.slow
@pytest.mark.usefixtures("checkout")
def test_a_step_of_a_pipeline_runs_as_a_script():
    """Workers import the script again, which must not start the work a second time."""
    (script,) = [code for _, code in blocks("docs/corpus.md", "py") if "__main__" in code]
    Path("articles").mkdir()
    article = {"id": "1", "text": "The company said it expects to report a loss. He will sell his shares. " * 3}
    Path("articles/a.jsonl").write_text(json.dumps(article) + "\n")
    Path("step.py").write_text(script)
    process = subprocess.run([sys.executable, "step.py"], capture_output=True, text=True, timeout=600)
    assert process.returncode == 0, process.stderr
    rows = [row for path in sorted(Path("trees").glob("*.parquet")) for row in parquet.read_table(path).to_pylist()]
    assert [row["position"] for row in rows] == list(range(6)) and all(row["spans"] for row in rows)
    dataset = next(code for _, code in blocks("docs/corpus.md", "py") if "load_dataset" in code)
    namespace: dict = {}
    exec(dataset, namespace)
    assert len(namespace["trees"]) == 6


@pytest.mark.slow
@pytest.mark.usefixtures("checkout")
def test_the_trainer_example_runs_as_a_script_and_reads_sentences_as_parse_does():
    arguments = ["train.txt", "valid.txt", "runs/trainer", "--max_steps", "2"]
    command = [sys.executable, "examples/trainer.py", *arguments]
    process = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert process.returncode == 0, process.stderr
    (loss,) = re.findall(r"validation perplexity ([\d.]+)", process.stdout)
    model = AutoModelForCausalLM.from_pretrained("runs/trainer/exported")
    tokenizer = AutoTokenizer.from_pretrained("runs/trainer/exported")
    lines = Path("valid.txt").read_text().splitlines()
    scores = score_sentences(model, tokenizer, lines)
    total = sum(score.total().total_log_likelihood for score in scores), sum(len(score.tokens) for score in scores)
    assert float(loss) == pytest.approx(math.exp(-total[0] / total[1]), rel=1e-3)
    assert export_checkpoint("runs/trainer/best", "again")  # beside training_args.bin


@pytest.mark.slow
def test_the_site_builds_without_warnings_and_has_every_page(tmp_path):
    library("mkdocs", reason='the site needs pip install -e ".[docs]"')
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert process.returncode == 0, process.stderr
    pages = {path.parent.name for path in (tmp_path / "site").rglob("index.html")}
    assert {Path(page).stem for page in PAGES} - {"README"} <= pages
    assert "score_parses" in (tmp_path / "site" / "reference" / "scoring" / "index.html").read_text(encoding="utf-8")
    navigation = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    assert {Path(page).name for page in PAGES} <= {Path(name).name for name in navigation}
