"""What the README and the pages in docs/ show is what happens: their Python and their commands run as written."""

import importlib
import json
import math
import random
import re
import shlex
import textwrap
from functools import partial
from glob import glob
from io import BytesIO, TextIOWrapper
from itertools import groupby
from pathlib import Path
from statistics import mean, median, stdev

import pytest
import yaml
from accelerate.state import AcceleratorState, GradientState
from transformers import AutoConfig, GPT2Config, GPT2LMHeadModel

from eval import benchmark_quantization, benchmark_speed
from eval.corpus import benchmark_corpus
from eval.report.tables import markdown_table
from eval.speed import ablation_turns
from eval.speed.rows import HEADER, Row, with_rows_over_all_runs
from onlstm_hf import __version__, build_word_tokenizer, generate_logic_pairs
from onlstm_hf.cli import main as command_line
from onlstm_hf.hub.cards.language_model import main_row
from onlstm_hf.hub.cards.published import published_f1, published_figures, published_perplexity
from onlstm_hf.logic.pairs import build_logic_dataset
from onlstm_hf.utils.training_stages import training_stages
from tests.helpers.forked_processes import forked_context
from tests.helpers.pages import ROOT, figures, percent, read_json
from training import quickstart
from training.logic.pairs import split_by_operators

PAGES = ["README.md", *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").glob("*.md")))]
TREES = (
    "( (S (NP (DT the) (JJ big) (NN cat)) (VP (VBZ sees) (NP (DT a) (NN dog)))) )\n"
    "( (S (NP (NP (DT the) (NN dog)) (CC and) (NP (DT the) (NN bird))) (VP (VBZ sleeps))) )\n"
)
TINY_STACK = ["--model.embedding_size", "40", "--model.hidden_size", "40"]
# What shortens a training: further arguments, after those of the page.
LESS_WORK = {
    "training/quickstart.py": ["--max_steps", "2"],
    "training/train_lm.py": ["--max_steps", "1", "--tree_batch_size", "8", *TINY_STACK],
    "training/train_grammar.py": ["--max_steps", "2", "--model.num_nonterminals", "4"],
    "training/average_trees.py": ["--layer", "all"],  # of the one seed that is trained here
    "training/train_seeds.py": ["--seeds", "1111", "--max_steps", "1", *TINY_STACK],
    # A training and a parsing case in their processes; the tests of the ablations compare what each of them computes.
    "eval/benchmark_ablations.py": ["--rounds", "1", "--cases", "training prpn float32", "parsing prpn float32"],
    "training/train_logic.py": ["--num_epochs", "1", "--model.layer_sizes", "[20]"],
    "training/train_listops.py": [
        *["--num_epochs", "1", "--num_train", "100", "--num_validation", "20", "--num_test", "50"],
    ],
}
# What installs, copies or uploads, or is elsewhere tested as it is run here: without a browser, without the Hub, with
# all of pytest.
NOT_RUN = ("python3", "pip", ".", "pytest", "lm_eval", "cp", "mkdir", "hf", "tar", "cd", "auditwheel", "ray")
# A build takes minutes.
NOT_RUN_MODULES = ("python -m build",)
# What is only checked to be a valid command: it needs a Hub (test_hub.py runs it with one), stays up, takes minutes,
# reads the authors' files, or is run by tests of its own.
PARSERS = {
    "onlstm-hf push": command_line.build_parser,
    "onlstm-hf push-metric": command_line.build_parser,
    "onlstm-hf demo": command_line.build_parser,
    "onlstm-hf convert": command_line.build_parser,
    "onlstm-hf parse-corpus": command_line.build_parser,
    "python eval/corpus/benchmark_corpus.py": benchmark_corpus.build_parser,
    "python eval/benchmark_quantization.py": benchmark_quantization.build_parser,
    "python eval/benchmark_speed.py": benchmark_speed.build_parser,
}


def blocks(page: str, *languages: str) -> list[tuple[str, str]]:
    """Language and content of every fenced block in one of the languages."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(r"^```(\w+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [(language, content) for language, content in found if language in languages]


def commands(content: str) -> list[list[list[str]]]:
    """The commands of a block: each the words of the programs that `|` joins."""
    lines = [shlex.split(line, comments=True) for line in content.replace("\\\n", " ").splitlines()]
    return [split_at("|", command) for line in lines for command in split_at("&&", line)]


def split_at(separator: str, words: list[str]) -> list[list[str]]:
    """The stretches of words between separators."""
    stretches = groupby(words, key=lambda word: word == separator)
    return [list(stretch) for is_separator, stretch in stretches if not is_separator]


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A folder with the project's files and with what a user brings along, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    for path in ROOT.iterdir():
        if not path.name.startswith(".") and path.name != "runs":
            (tmp_path / path.name).symlink_to(path)
    generator = random.Random(0)
    words = ["the", "a", "cat", "dog", "bird", "old", "man", "sees", "likes", "sleeps", "and"]
    lines = [" ".join(generator.choices(words, k=7)) for _ in range(60)]
    for name in ("train", "valid", "test", "sentences"):
        Path(f"{name}.txt").write_text("\n".join(lines if name == "train" else lines[:12]) + "\n")
    for folder in ("wsj", "syneval", "blimp"):
        Path(folder).mkdir()
    for name in (*(f"wsj/wsj_{number:04}.mrg" for number in range(1, 6)), "trees.mrg"):
        Path(name).write_text(TREES)
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
        words = [found for word in program for found in sorted(glob(word)) or [word]]  # as a shell would
        script, *arguments = words[2:] if words[:2] == ["accelerate", "launch"] else words[1:]
        module = importlib.import_module(script.removesuffix(".py").replace("/", "."))
        assert Path(module.__file__) == ROOT / script
        status = module.main([*arguments, *LESS_WORK.get(script, [])])
    assert status == 0 or isinstance(status, dict), program


@pytest.mark.usefixtures("checkout", "fresh_metric_modules")
@pytest.mark.parametrize("page", PAGES)
def test_its_code_runs_as_written(page, monkeypatch):
    monkeypatch.setattr(ablation_turns, "get_context", lambda method: forked_context())
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
            if program[0] not in NOT_RUN and " ".join(program) not in NOT_RUN_MODULES:
                run(program)


def test_the_readme_draws_the_tree_and_the_picture_that_it_shows(project_root, monkeypatch, capsys):
    monkeypatch.chdir(project_root)
    (_, first), (_, shown) = blocks("README.md", "python", "text")[:2]
    namespace: dict = {}
    exec(first, namespace)
    tree = capsys.readouterr().out.rstrip()
    assert [line.rstrip() for line in tree.splitlines()] == shown.rstrip().splitlines()

    picture = namespace["model"].draw_distances(tree.splitlines()[-1], namespace["tokenizer"])
    expected = (project_root / "docs" / "tree.svg").read_text(encoding="utf-8")
    number = re.compile(r"\d+\.\d+")
    assert number.sub("", picture).strip() == number.sub("", expected).strip()
    values, expected_values = (list(map(float, number.findall(svg))) for svg in (picture, expected))
    assert values == pytest.approx(expected_values, abs=0.02)


def test_excerpts_are_from_the_example_as_it_is():
    code = (ROOT / "examples" / "cumax_lstm.py").read_text(encoding="utf-8")
    excerpts = [content for _, content in blocks("README.md", "py")]
    assert excerpts
    for excerpt in excerpts:
        assert textwrap.indent(excerpt, " " * 12) in code


@pytest.mark.parametrize("page", PAGES)
def test_every_file_and_page_it_names_exists(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    named = re.findall(r"(?<![\w/])(?:onlstm_hf|training|eval|docs|examples|model_cards)/[\w./*-]*\w", text)
    assert [name for name in named if not any(ROOT.glob(name))] == []
    linked = re.findall(r"\]\((?!https?://)([^)#]+)\)", text)
    assert [name for name in linked if not (ROOT / page).parent.joinpath(name).exists()] == []


def test_the_readme_links_every_model_card_and_its_table_has_the_results_of_the_language_models():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in readme.splitlines() if line[:2] == "| "]
    table = {row[0]: row[1:] for row in rows}
    for card in sorted((ROOT / "model_cards").iterdir()):
        link = f"[model_cards/{card.name}](model_cards/{card.name}/README.md)"
        assert link in readme
        results = read_json(card / "results.json")
        if "perplexity" not in results or results["data"]["text"]["language"] != "en":
            continue
        parameters, *parsing, updates = table[link]
        assert parameters == f"{results['parameters'] / 1e6:.1f} million"
        assert updates == f"{results['training']['updates']:,}"
        if "parsing" not in results:
            assert parsing == ["no trees", "no trees"]
            continue
        scores = {
            row: [f"{100 * results['parsing'][part][row]['sentence_f1']:.1f}" for part in ("all", "short")]
            for row in results["parsing"]["all"]
        }
        config = AutoConfig.from_pretrained(card)
        assert parsing == scores[main_row(config)]
        for baseline in ("left branching", "right branching", "balanced", "random (uniform trees)", "upper bound"):
            assert table[baseline][1:3] == scores[baseline]
        if config.model_type == "onlstm":
            without_bias = scores[f"{main_row(config)}, no branching bias"][0]
            assert f"falls from {parsing[0]} to {without_bias}" in readme


def test_its_table_of_perplexities_has_rows_of_the_report():
    def rows(page: str, header: str) -> list[dict[str, str]]:
        (table,) = re.findall(
            rf"^({re.escape(header)}.*?)\n\n", (ROOT / page).read_text(encoding="utf-8"), re.M | re.S
        )
        columns, _, *cells = ([cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines())
        return [dict(zip(columns, row, strict=True)) for row in cells]

    measured = {row["model"]: row for row in rows("RESULTS.md", "| model | seeds | parameters | epochs |")}
    shown = rows("README.md", "| model | parameters | epochs |")
    assert len(shown) > 5
    for row in shown:
        assert row == {column: measured[row["model"]][column] for column in row}
    released = {card.name for card in (ROOT / "model_cards").iterdir()}
    assert {name.replace("_", "-") for name in measured} & released <= {
        row["model"].replace("_", "-") for row in shown
    }


def test_its_table_of_speed_has_rows_of_the_benchmark_as_they_were_printed():
    files = sorted((ROOT / "eval" / "results").glob("speed*.json"))
    contents = {path.stem: read_json(path) for path in files}
    rows = [
        (Row.from_dict(row), name, content["machine"]["cpu"])
        for name, content in contents.items()
        for row in content["rows"]
    ]
    printed = markdown_table(HEADER, [row.cells() for row, _ in with_rows_over_all_runs(rows)]).splitlines()
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## Speed\n")[1].split("\n## ")[0]
    table = [line for line in section.splitlines() if line.startswith("|")]
    assert table[:2] == printed[:2] and len(table) > 5
    assert set(table) <= set(printed)
    # What several runs measured on one CPU is shown over all of their rounds, not by the run that suits best.
    repeated = {cells[0] for cells in (line.split(" | ") for line in printed) if " runs" in cells[1]}
    assert all(" runs" in line for line in table if line.split(" | ")[0] in repeated)


def test_figures_of_the_toy_corpus_are_those_of_the_runs():
    quickstart, cumax = (
        read_json(ROOT / "eval" / "results" / f"{name}.json") for name in ("quickstart", "cumax_lstm")
    )
    assert quickstart["machine"]["threads"] == cumax["machine"]["threads"] == 1
    seconds = f"{quickstart['cpu_seconds']:.0f}"
    assert figures("README.md", "printed on one CPU thread, after {} seconds of processor time") == (seconds,)
    assert figures("docs/training.md", "| the toy corpus: {} seconds of one CPU core") == (seconds,)
    perplexities = f"{cumax['test_perplexity']:.2f}", f"{quickstart['test_perplexity']:.2f}"
    assert figures("README.md", "it reached perplexity {} (the ON-LSTM: {})") == perplexities
    f1 = cumax["sentence_f1"]
    of_layers = percent(f1["layer 1"]), percent(f1["layer 2"])
    assert figures("README.md", "a sentence F1 of {} (those of the second: {})") == of_layers

    (shown,) = (block for _, block in blocks("README.md", "text") if block.startswith("held-out sentences"))
    scores, *drawn = re.split(r"\n\n(?=gold\n|induced\n)", shown.rstrip())
    assert scores.splitlines() == [
        f"held-out sentences: {quickstart['num_sentences']}, perplexity {quickstart['test_perplexity']:.2f}",
        "",
        "sentence F1 on held-out sentences",
        *(f"  {name:32}{percent(value):>6}" for name, value in quickstart["sentence_f1"].items()),
    ]
    drawings = [{title: f"{title}\n{text}" for title, text in trees.items()} for trees in quickstart["trees"]]
    assert drawn in [[trees["gold"], trees["induced"]] for trees in drawings]


def test_figures_of_other_runs_are_those_of_their_results():
    harness = read_json(ROOT / "eval" / "lm_evaluation_harness" / "results.json")
    task = harness["results"]["subject_verb_agreement"]
    accuracy = f"{task['acc,none']:.4f}", str(task["sample_len"])
    assert figures("docs/evaluation.md", "It printed accuracy {} (of {} pairs;") == accuracy
    blimp = read_json(ROOT / "eval" / "results" / "syntax_ptb_small.json")["models"][0]["scores"]["BLiMP"]
    pairs, right, ties = (blimp[name] for name in ("num_pairs", "num_correct", "num_ties"))
    counted = f"{pairs:,}", f"{ties:,}"
    assert (
        figures("docs/evaluation.md", "Of the {} pairs of BLiMP, spelt as Penn Treebank text, {} are ties") == counted
    )
    shares = percent((right + ties) / pairs), percent(right / pairs)
    assert figures("docs/evaluation.md", "it would be right on {} % of them in place of {} %") == shares

    results = ROOT / "eval" / "results"
    released = read_json(ROOT / "model_cards" / "onlstm-ptb-small" / "results.json")
    of_stream = read_json(results / "lm_onlstm_ptb_small_cache.json")["scores"]["$ONLSTM_SHARED/data/ptb/valid.txt"]
    validation = f"{released['perplexity']['validation']:.2f}", f"{of_stream['perplexity']:.2f}"
    assert figures("docs/evaluation.md", "perplexity {} in ten rows and {} in one stream") == validation

    for model in ("onlstm", "prpn"):
        updates = read_json(ROOT / "model_cards" / f"{model}-ptb-small" / "results.json")["training"]["updates"]
        text = "Penn Treebank" if model == "onlstm" else "the same"
        phrase = f"| the model in `model_cards/{model}-ptb-small`: {text} text, {{}} updates |"
        assert figures("docs/training.md", phrase) == (f"{updates:,}",)

    unseen = read_json(results / "parsing_onlstm_ptb_small_unseen.json")["summary"]
    f1 = tuple(percent(unseen[part]["layer 2 (--layer 1)"]["sentence_f1"]["mean"]) for part in ("all", "short"))
    assert figures("README.md", "in bfloat16 on another CPU, has {}, and {} on the short ones") == f1
    distilled, distilled_none = (
        read_json(results / f"parsing_onlstm_ptb_small_distilled{name}.json")["summary"] for name in ("", "_no_bias")
    )
    log = (results / "onlstm_ptb_small_distilled" / "seed_1111.log.jsonl").read_text(encoding="utf-8")
    by_epoch = [entry for entry in map(json.loads, log.splitlines()) if "parsing_f1" in entry]
    f1_by_epoch = tuple(f"{entry['parsing_f1']:.1f}" for entry in by_epoch)
    assert figures("docs/training.md", "average of the two, {} after one epoch and {} after two") == f1_by_epoch
    perplexities = tuple(f"{entry['validation_perplexity']:.2f}" for entry in by_epoch)
    assert figures("docs/training.md", "Validation perplexity went from 87.36 to {} and {}.") == perplexities
    by_part = distilled["all"], distilled["short"], distilled_none["all"]
    f1 = " | ".join(percent(summary["layer 2 (--layer 1)"]["sentence_f1"]["mean"]) for summary in by_part)
    f1 = f1.replace(" | ", " | | ", 1)  # no maximum of one run
    row = f"| **onlstm-ptb-small-distilled**, layer 2 | 1 | {perplexities[-1]} | {f1} |"
    assert row in (ROOT / "README.md").read_text(encoding="utf-8")

    def medians(figure: str, *runs: str) -> list[str]:
        rows = [Row.from_dict(row) for name in runs for row in read_json(results / f"speed_prpn{name}.json")["rows"]]
        return [f"{row.measured.median:.3g}" for row in rows if row.figure == figure]

    word_by_word = "float32, speed of word by word"
    speed = medians(word_by_word, "_615804c", "_b714908", "_9db0954")
    assert list(figures("docs/speed.md", "medians were {}, {} and {} times the speed of word by word")) == speed
    (newest,), (newest_bf16,) = medians(word_by_word, ""), medians("bf16, speed of word by word in float32", "")
    phrase = "a float32 step has {} times the speed of word by word, and a bf16 step {} times"
    assert figures("docs/speed.md", phrase) == (newest, newest_bf16)
    assert figures("README.md", "PRPN was measured at {} times the speed of word by word") == (newest,)


def test_published_figures_stand_in_one_file_and_pages_agree_with_it():
    def numbers(content) -> set[str]:
        if isinstance(content, dict | list):
            return {found for value in getattr(content, "values", lambda: content)() for found in numbers(value)}
        return {str(content)} if isinstance(content, float) and content >= 10 else set()

    published = yaml.safe_load((ROOT / "onlstm_hf" / "hub" / "cards" / "published.yaml").read_text(encoding="utf-8"))
    typed = re.compile(rf"(?<![\d.])(?:{'|'.join(map(re.escape, sorted(numbers(published))))})(?![\d.]*\d)")
    sources = [*(ROOT / "eval").rglob("*.py"), *(ROOT / "training").rglob("*.py"), *(ROOT / "onlstm_hf").rglob("*.py")]
    sources += [*(ROOT / "training" / "texts").iterdir(), *(ROOT / "onlstm_hf" / "hub" / "cards").glob("*.md")]
    found = {path.name: typed.findall(path.read_text(encoding="utf-8")) for path in sources if path.is_file()}
    assert {name: figures for name, figures in found.items() if figures} == {}

    def mean_and_max(system: str, part: str) -> tuple[str, str]:
        figure = published_f1(system)[part]
        return str(figure["mean"]), str(figure["max"])

    def perplexity(system: str, part: str) -> str:
        return str(published_perplexity(system, part)["perplexity"])

    for name, system, parameters in (("ON-LSTM", "ON-LSTM, layer 2", 25), ("PRPN", "PRPN-LM", 44)):
        f1 = tuple(mean_and_max(system, part)[0] for part in ("wsj", "wsj10"))
        phrase = f"| {name}, published | {parameters} million | {{}} (section 23) | {{}} (WSJ10) | |"
        assert figures("README.md", phrase) == f1
    phrase = "ON-LSTM {} (Shen et al. 2019), PRPN {} (Shen et al. 2018)"
    assert figures("eval/perplexity/README.md", phrase) == (perplexity("ON-LSTM", "test"), perplexity("PRPN", "test"))
    systems = ("ON-LSTM, layer 2", "PRPN-LM", "PRPN-UP")
    phrase = (
        "ON-LSTM (layer 2) {}, {}; PRPN-LM {}, {}; PRPN-UP {}, {}. On the sentences of at most ten words of the whole "
    )
    f1 = (figure for part in ("wsj", "wsj10") for system in systems for figure in mean_and_max(system, part))
    assert figures("eval/parsing_f1/README.md", f"{phrase} corpus: {{}}, {{}}; {{}}, {{}}; {{}}, {{}}.") == tuple(f1)
    phrase = (
        "agreement across a prepositional phrase {} and {}, across a subject relative clause {} and {}, "
        "in a sentential complement {} and {}"
    )
    cases = ("across a prepositional phrase", "across a subject relative clause", "in a sentential complement")
    models = published_figures("targeted syntactic evaluation")
    accuracies = (f"{model['accuracy'][f'agreement: {case}']:.2f}" for case in cases for model in models)
    assert figures("eval/minimal_pairs/README.md", phrase) == tuple(accuracies)


def test_the_citation_file_names_this_version_and_both_papers():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0" and citation["message"]
    assert citation["version"] == __version__
    assert citation["license"] == "Apache-2.0"
    assert citation["authors"] == [{"name": "The onlstm_hf contributors"}]
    bibtex = "".join(content for _, content in blocks("README.md", "bibtex"))
    fields = (re.findall(rf"^  {key}={{(.*)}}", bibtex, re.MULTILINE) for key in ("title", "author", "year"))
    papers = list(zip(*fields, strict=True))
    assert len(papers) == len(citation["references"]) == 2
    for (title, authors, year), paper in zip(papers, citation["references"], strict=True):
        people = " and ".join(f"{person['family-names']}, {person['given-names']}" for person in paper["authors"])
        assert [paper["title"], people, str(paper["year"])] == [title, authors, year]
        assert paper["type"] == "conference-paper" and paper["conference"]["name"]


def test_figures_of_listops_are_those_of_the_results():
    models = ("lstm", "onlstm", "tree_lstm")
    lstm, onlstm, tree_lstm = (read_json(ROOT / "eval" / "results" / f"listops_{model}.json") for model in models)
    assert {run["epochs"] for run in (lstm, onlstm, tree_lstm)} == {30}
    accuracies = "the LSTM has {} % of the test right, the ON-LSTM {} % and the Tree-LSTM {} %"
    expected = tuple(percent(run["test"]["accuracy"]) for run in (lstm, onlstm, tree_lstm))
    assert figures("docs/training.md", accuracies) == expected
    longest = tuple(percent(run["test"]["by_length"]["321-"]["accuracy"]) for run in (onlstm, lstm))
    assert figures("docs/training.md", "320 tokens the ON-LSTM has {} % right, and the LSTM {} %") == longest
    recall = tuple(percent(onlstm["trees"][row]["list_recall"]) for row in ("induced", "random (uniform trees)"))
    assert figures("docs/training.md", "it finds {} % of the lists, random trees {} %") == recall


def spread(values: list[float], digits: int) -> str:
    """Mean and, of several, standard deviation."""
    deviation = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{deviation}"


def test_the_table_of_sentences_that_were_not_read_is_that_of_the_results_of_all_seeds():
    """Every file of trees counts, so that no seed can be left out."""
    results = ROOT / "eval" / "results"
    runs = {
        kind: [read_json(path) for path in sorted((results / f"{kind}_ptb_small_unseen").glob("seed_*.json"))]
        for kind in ("onlstm", "prpn")
    }
    of_all = ("seeds", "seeds_no_bias")
    number_of_runs = sum(map(len, runs.values()))
    assert all(len(read_json(results / f"parsing_{name}.json")["models"]) == number_of_runs for name in of_all)
    rows = [
        ("small ON-LSTM, layer 2", of_all, "layer 2 (--layer 1)", runs["onlstm"]),
        ("small PRPN", of_all, "induced trees", runs["prpn"]),
        ("average of the two of seed 1111", ("unseen_own", "unseen_no_bias"), "ensemble of 2", []),
        ("average of all PRPNs", ("seeds_prpn", "seeds_prpn_no_bias"), f"ensemble of {len(runs['prpn'])}", []),
        ("average of all runs", of_all, f"ensemble of {number_of_runs}", []),
        (
            "average of all layers of all runs",
            ("seeds_layers", "seeds_layers_no_bias"),
            f"ensemble of {3 * len(runs['onlstm']) + len(runs['prpn'])}",
            [],
        ),
        ("right branching, which no rule changes", of_all, "right branching", []),
    ]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for row, files, name, trained in rows:
        by_right, by_none = (read_json(results / f"parsing_{file}.json") for file in files)
        parts = ((by_right, "all"), (by_right, "short"), (by_none, "all"))
        f1 = []
        for content, part in parts:
            of_models = [model["scores"][part][name] for model in content["models"] if name in model["scores"][part]]
            found = [100 * score["sentence_f1"] for score in of_models or [content["others"][part][name]]]
            f1.append(spread(found, 1))
            if (content, part) == parts[0]:
                f1[0] += f" | {max(found):.1f}" if len(found) > 1 else " | "
        perplexity = spread([run["validation_perplexity"] for run in trained], 2) + " " if trained else ""
        number = f"{len(trained)} " if trained else ""
        assert f"| {row} | {number}| {perplexity}| {' | '.join(f1)} |".replace("|  |", "| |") in readme


def test_what_the_readme_says_of_seed_and_text_is_what_the_results_give():
    results = ROOT / "eval" / "results"
    of_prpns = read_json(results / "parsing_seeds_prpn.json")
    best = of_prpns["summary"]["all"]["induced trees"]["sentence_f1"]["max"]
    read = {
        kind: read_json(results / f"parsing_{kind}_ptb_small.json")["summary"]["all"] for kind in ("onlstm", "prpn")
    }
    of_read = percent(read["prpn"]["induced trees"]["sentence_f1"]["mean"])
    assert figures("README.md", "which has read them, has F1 {}, those that have not at most {}") == (
        of_read,
        percent(best),
    )
    pairs = [100 * value for row in of_prpns["agreement"]["matrix"] for value in row if value < 0.999]
    shown = figures("README.md", "the trees of one against those of another have F1 {} to {}, far")
    assert shown == (f"{min(pairs):.0f}", f"{max(pairs):.0f}")
    of_three = read_json(results / "parsing_seeds_read.json")
    parsers = of_three["agreement"]["parsers"]
    shown = figures("README.md", "the released one {} and two\nother seeds {} and {}. So reading")
    assert shown == tuple(percent(parser["sentence_f1"]) for parser in parsers)
    summary = of_three["summary"]["all"]["layer 2 (--layer 1)"]["sentence_f1"]
    spread = figures("README.md", "that have read the sentences have {} ± {}: the released one")
    assert spread == (percent(summary["mean"]), percent(summary["standard_deviation"]))
    agreement = figures("README.md", "agrees less with the others, {}, than they do, {} and {}.)")
    assert agreement == tuple(percent(parsers[number]["all others"]) for number in (2, 0, 1))
    assert shown[0] == percent(read["onlstm"]["layer 2 (--layer 1)"]["sentence_f1"]["mean"])
    own, own_none, layers, layers_none = (
        read_json(results / f"parsing_seeds{name}.json") for name in ("", "_no_bias", "_layers", "_layers_no_bias")
    )
    of_onlstms = [parser for parser in own["agreement"]["parsers"] if parser["trees"] == "layer 2 (--layer 1)"]
    shown = figures("README.md", "have F1 {}, {}, {}, {}\nand {}: two good ones")
    assert shown == tuple(percent(parser["sentence_f1"]) for parser in of_onlstms)
    second = figures("README.md", "the second one has {} without these sentences and {} with them")
    assert second == tuple(percent(parser["sentence_f1"]) for parser in (of_onlstms[1], parsers[1]))
    assert "seed_2222" in of_onlstms[1]["model"] and "seed_2222" in parsers[1]["model"]
    assert max(parser["sentence_f1"] for parser in of_onlstms) > max(parser["sentence_f1"] for parser in parsers)
    right_branching = own["others"]["all"]["right branching"]["sentence_f1"]
    above = {parser["model"] for parser in of_onlstms if parser["sentence_f1"] > right_branching}
    by_agreement = sorted(of_onlstms, key=lambda parser: parser["all others"], reverse=True)
    assert len(above) == 2  # "two good ones, and three below right branching"
    assert {parser["model"] for parser in by_agreement[:2]} == above  # "the two good ones come first"
    assert "seed_1111" in by_agreement[0]["model"]  # "the ON-LSTM that agrees most"
    correlation = own["agreement"]["rank_correlation"]["all others"]["layer 2 (--layer 1)"]
    assert figures("README.md", "ON-LSTMs are put in order, too ({})") == (f"{correlation:.2f}",)
    onlstms = read_json(results / "parsing_seeds_onlstm.json")
    correlation = onlstms["agreement"]["rank_correlation"]["all others"]["all"]
    assert figures("README.md", "ON-LSTMs alone tell nothing ({})") == (f"{correlation:.2f}",)
    correlations = (
        f"{content['agreement']['rank_correlation']['all others']['all']:.2f}"
        for content in (own, layers, own_none, layers_none)
    )
    phrase = (
        "by F1 (rank correlation {}), and so do all layers of all runs ({}; "
        "`--agreement`; by the unbiased rule {} and {})"
    )
    assert figures("README.md", phrase) == tuple(correlations)


def test_what_the_readme_says_of_averages_is_what_the_results_give():
    def averages(name: str) -> tuple[float, float, float]:
        """F1 of the average, of the one by agreement, and of the best single run, in per cent."""
        content = read_json(ROOT / "eval" / "results" / f"parsing_seeds{name}.json")
        f1 = {row: 100 * scores["sentence_f1"] for row, scores in content["others"]["all"].items()}
        plain, weighted = (value for row, value in f1.items() if row.startswith("ensemble of"))
        return plain, weighted, max(100 * parser["sentence_f1"] for parser in content["agreement"]["parsers"])

    names = [f"{kind}{rule}" for kind in ("", "_layers", "_onlstm", "_prpn") for rule in ("", "_no_bias")]
    of_names = {name: averages(name) for name in names}
    prpns, onlstms = of_names["_prpn"], of_names["_onlstm"]
    shown = figures("README.md", "PRPNs have F1 {} then, and ON-LSTMs\n{}, less than the best of them")
    assert shown == (f"{prpns[0]:.1f}", f"{onlstms[0]:.1f}") and onlstms[0] < onlstms[2]
    assert round(of_names[""][0] - of_names[""][2]) == 6  # "better than any one of them by six points"
    (best_unbiased,) = figures("README.md", "the average is behind the best single run, which has {}, and")
    assert best_unbiased == f"{of_names['_no_bias'][2]:.1f}" and of_names["_no_bias"][0] < of_names["_no_bias"][2]
    gains = [weighted - plain for plain, weighted, _ in of_names.values()]
    shown = figures("README.md", "weighting by agreement adds at most {} points and costs up to\n{}.")
    assert shown == (f"{max(gains):.1f}", f"{-min(gains):.1f}")


def test_what_is_said_of_the_seeds_after_two_epochs_is_what_their_logs_have():
    expected = []
    for seed in (1111, 2222, 3333, 4444, 5555):
        log = ROOT / "eval" / "results" / "onlstm_ptb_small_unseen" / f"seed_{seed}.log.jsonl"
        entries = map(json.loads, log.read_text(encoding="utf-8").splitlines())
        by_epoch = [entry["parsing_f1_layer_2"] for entry in entries if "parsing_f1_layer_2" in entry]
        expected += [f"{by_epoch[1]:.1f}", f"{by_epoch[-1]:.1f}"]
    phrase = (
        "of seed 1111 has F1 {} after two epochs and {} in the end, that of seed 2222 {} and {}, "
        "that of seed 3333 {} and {}, that of seed 4444 {} and {}, that of seed 5555 {} and {}."
    )
    assert figures("docs/training.md", phrase) == tuple(expected)


def logged(log: Path, name: str) -> list[float]:
    """The values of one name in a run's log, in its order."""
    entries = map(json.loads, log.read_text(encoding="utf-8").splitlines())
    return [entry[name] for entry in entries if name in entry]


def logged_validations(log: Path) -> list[str]:
    return [f"{perplexity:.2f}" for perplexity in logged(log, "validation_perplexity")]


def logged_stages(card: dict, logs: Path) -> list[list[str]]:
    """Number, hours, perplexities after the epochs and test perplexity of the stages that have a log."""
    return [
        [str(number), f"{stage['seconds'] / 3600:.1f}", ", ".join(logged_validations(log)), f"{stage['test']:.2f}"]
        for number, stage in enumerate(training_stages(card), start=1)
        if (log := logs / f"stage_{number}.log.jsonl").exists()
    ]


def rows_of_the_guide(pattern: str, heading: str) -> list[tuple[str, ...]]:
    """The groups of each table row of that form in a section of docs/training.md."""
    page = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    section = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(rf"^\| {pattern} \|$", section, re.MULTILINE)


def shown_stages(heading: str) -> list[list[str]]:
    """The rows of the table of stages of a section of docs/training.md."""
    return [list(row) for row in rows_of_the_guide(r"(\d+) \| ([\d.]+) \| ([\d., ]+) \| ([\d.]+)", heading)]


def test_what_is_said_of_a_small_model_that_was_trained_for_longer_is_what_its_logs_have():
    logs = ROOT / "eval" / "results" / "onlstm_ptb_small_long"
    card = read_json(ROOT / "model_cards" / "onlstm-ptb-small-long" / "results.json")
    stages = logged_stages(card, logs)
    assert [number for number, *_ in stages] == ["2", "3"]
    assert shown_stages("A small model, trained for longer") == stages
    released = read_json(ROOT / "model_cards" / "onlstm-ptb-small" / "results.json")["perplexity"]["test"]
    shown = figures("docs/training.md", "come to a test perplexity of {}, from the {} of stage 1")
    assert shown == (f"{card['perplexity']['test']:.2f}", f"{released:.2f}")
    both = (read_json(ROOT / "model_cards" / f"onlstm-ptb-small{name}" / "results.json") for name in ("-long", ""))
    f1 = tuple(percent(results["parsing"]["all"]["layer 2"]["sentence_f1"]) for results in both)
    shown = figures("docs/training.md", "their F1 is {}, and that of stage 1 {}, on sentences that both have read")
    assert shown == f1
    rows = rows_of_the_guide(r"(AdamW, cosine|SGD, constant)[^|]* \| ([\d., ]+)", "A small model, trained for longer")
    cosine, constant = (logged_validations(logs / f"{name}.log.jsonl") for name in ("stage_2", "trials/sgd"))
    assert rows == [("AdamW, cosine", ", ".join(cosine)), ("SGD, constant", ", ".join(constant))]
    reached = next(epoch for epoch, value in enumerate(constant, start=1) if float(value) < float(cosine[-1]))
    shown = figures("docs/training.md", "what AdamW has after all of its {} epochs after {}")
    assert shown == (str(len(cosine)), str(reached))
    speeds = [median(logged(logs / f"{name}.log.jsonl", "tokens_per_s")) for name in ("stage_2", "trials/sgd")]
    shown = figures("docs/training.md", "an epoch takes about as long ({} and {} words a second, medians)")
    assert shown == tuple(f"{speed:,.0f}" for speed in speeds)


def grown_log(name: str) -> Path:
    """The log of a stage, or of a trial, of the model that was grown."""
    return ROOT / "eval" / "results" / "onlstm_ptb_cpu" / f"{name}.log.jsonl"


def grown_validations(name: str) -> list[str]:
    return logged_validations(grown_log(name))


def test_the_speed_of_batches_of_the_full_size_is_that_of_their_logs():
    logs = [grown_log(f"trials/batch_{rows}") for rows in (10, 20, 40, 80)]
    speeds = [median(logged(log, "tokens_per_s")) for log in logs]
    shown = figures("docs/training.md", "With 10, 20, 40 and 80 rows training reads {}, {}, {} and {} words a second")
    assert shown == tuple(f"{speed:,.0f}" for speed in speeds)
    _, of_20, _, of_80 = speeds
    shown = figures("docs/training.md", "four times as many rows would make an epoch {} % shorter")
    assert shown == (f"{100 * (1 - of_20 / of_80):.0f}",)


def test_trials_with_a_grown_model_have_the_figures_of_their_logs():
    shown = figures("docs/training.md", "and the validation perplexity {} and {}: above")
    assert list(shown) == grown_validations("trials/sgd")
    shown = figures("docs/training.md", "lost: validation perplexity {} and {} after two epochs.")
    assert list(shown) == grown_validations("trials/adamw_average")
    stage_6 = grown_validations("stage_6")
    five_before, *_, of_mean, forgetting = stage_6[6:13]
    shown = figures("docs/training.md", "gained more in one epoch ({} to {}) than in the five before")
    assert shown == (of_mean, forgetting)
    assert float(of_mean) - float(forgetting) > float(five_before) - float(of_mean)
    shown = figures("docs/training.md", "at the paper's rate of 30: {} became {} in one epoch")
    assert shown == (of_mean, *grown_validations("trials/sgd_rate_30"))


def test_trials_after_the_last_stage_of_a_grown_model_have_the_figures_of_their_logs():
    stage_6 = grown_validations("stage_6")
    shown = figures("docs/training.md", "From its {} epochs and their {}, stage 6 gains less and less.")
    assert shown == (str(len(stage_6)), stage_6[-1])
    logs = {
        "lower rate": "sgd_rate_5",
        "the paper's rate": "sgd_rate_30_forgetting",
        "stronger dropouts": "sgd_stronger_dropouts",
        "more weight decay": "sgd_weight_decay",
    }
    trials = {trial: grown_validations(f"trials/{log}") for trial, log in logs.items()}
    rows = rows_of_the_guide(r"([\w' ]+) \| `--.*` \| ([\d., ]+)", "A large model from a small one")
    assert rows == [(trial, ", ".join(reached)) for trial, reached in trials.items()]
    best = min(float(value) for reached in trials.values() for value in reached)
    shown = figures("docs/training.md", "The other trials gain at most {}, nearly all")
    assert shown == (f"{float(stage_6[-1]) - best:.2f}",)
    before, after = (
        f"{math.exp(mean(logged(grown_log(name), 'loss')[-650 // 50 :])):.1f}"
        for name in ("stage_6", "trials/sgd_rate_5")
    )
    shown = figures("docs/training.md", "with dropout, fell from {} to {} (the last 650 updates of each)")
    assert shown == (before, after)
    recipe = yaml.safe_load((ROOT / "training" / "recipes" / "onlstm_ptb.yaml").read_text(encoding="utf-8"))
    assert figures("docs/training.md", "The paper's recipe, `onlstm_ptb`, has {},") == (str(recipe["num_epochs"]),)


def test_what_is_said_of_a_grown_model_is_what_its_results_have():
    results = ROOT / "eval" / "results"
    small = read_json(results / "onlstm_ptb_small_read" / "seed_2222.json")
    shown = figures("docs/training.md", "whose validation perplexity is {} and whose test perplexity is {}. By stages")
    assert shown == tuple(f"{small[text]:.2f}" for text in ("validation_perplexity", "test_perplexity"))
    card = read_json(ROOT / "model_cards" / "onlstm-ptb" / "results.json")
    assert shown_stages("A large model from a small one") == logged_stages(card, results / "onlstm_ptb_cpu")
    *_, released = (score["perplexity"] for score in read_json(results / "lm_onlstm_ptb.json")["scores"].values())
    assert figures("docs/training.md", "as released, in bf16, it has {} on the test text") == (f"{released:.2f}",)
    f1 = card["parsing"]["all"]["layer 2"]["sentence_f1"]
    of_small = small["sentence_f1_by_layer"]["layer 2"]["right"]
    shown = figures("docs/training.md", "its second layer is {}, and the small model's {}, on")
    assert shown == (percent(f1), percent(of_small))


def test_the_shares_of_unknown_words_in_the_sample_are_those_of_the_results():
    names = ("unseen_own", "onlstm_ptb_small")
    not_read, read = (read_json(ROOT / "eval" / "results" / f"parsing_{name}.json")["models"] for name in names)
    expected = [{percent(model["unknown_words"]) for model in models} for models in (not_read, read)]
    shown = figures("README.md", "do not know {} % of the sample's words, and those that have read them {} %")
    assert [{share} for share in shown] == expected


def test_figures_of_the_mixture_of_softmaxes_are_those_of_the_results():
    rows = re.findall(
        r"^\| `(onlstm[-_]ptb[-_]small\w*)` \|(.*)\|$", (ROOT / "docs" / "models.md").read_text(), re.MULTILINE
    )
    assert [name for name, _ in rows] == ["onlstm-ptb-small", "onlstm_ptb_small_mixture"]
    for name, cells in rows:
        file = f"{name.replace('-', '_')}.json"
        lm, trees = (read_json(ROOT / "eval" / "results" / f"{task}_{file}") for task in ("lm", "parsing"))
        perplexities = [f"{score['perplexity']:.2f}" for score in lm["scores"].values()]
        (model,) = trees["models"]
        f1 = [percent(score["sentence_f1"]) for layer, score in model["scores"]["all"].items()]
        shown = [cell.strip() for cell in cells.split("|")]
        assert shown[1:] == [f"{lm['num_parameters']:,}", *perplexities, ", ".join(f1)]
    recipes = (ROOT / "training" / "recipes" / f"onlstm_ptb_small{kind}.yaml" for kind in ("", "_mixture"))
    epochs, mixture_epochs = (str(yaml.safe_load(recipe.read_text())["num_epochs"]) for recipe in recipes)
    assert figures("docs/models.md", "use up in {} epochs instead of {}") == (mixture_epochs, epochs)
