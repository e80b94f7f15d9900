import gzip
import json

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from eval import evaluate_syntax
from eval.data.syntactic_tests import MARVIN_LINZEN_SETS, Item, load_blimp, load_marvin_linzen
from eval.report.by_task.syntax import PUBLISHED, syntax_table
from onlstm_hf import build_word_tokenizer
from onlstm_hf.scoring.sentences import score_sentences
from onlstm_hf.text.unknown_words import differ_in_unknown_word, tokenize_sentences
from tests.helpers.log_probabilities import sequence_log_probability
from tests.helpers.requirements import library
from tests.helpers.tiny_models import KINDS

library("datasets")
library("evaluate")
pytestmark = pytest.mark.usefixtures("fresh_metric_modules")

SIMPLE = """\
sing_MS_MV	the author laughs	the author laugh
plur_MS_MV	the authors laugh	the authors laughs
plur_MS_MV	the authors smirk	the authors smirks
plur_MS_MV	the pilots laugh	the pilots smirk
"""
NPI = "past	no authors have ever laughed	the authors have ever laughed	most authors have ever laughed\n"
BLIMP = {"UID": "wh_island", "linguistics_term": "island_effects", "field": "syntax"}
KNOWN = ["the author authors laugh laughs have ever laughed no most who has n't left"]


@pytest.fixture(scope="module")
def tokenizer():
    return build_word_tokenizer(KNOWN, split="treebank", lowercase=True, digits_to_n=True, drop_punctuation=True)


@pytest.fixture(scope="module")
def models(tokenizer):
    onlstm = KINDS["onlstm"].make(vocab_size=len(tokenizer), eos_token_id=0)
    torch.manual_seed(0)
    sizes = {"n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 32, "initializer_range": 1.0}
    config = GPT2Config(vocab_size=len(tokenizer), bos_token_id=0, eos_token_id=0, **sizes)
    return {"our-model": onlstm, "gpt-model": GPT2LMHeadModel(config).eval()}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory, tokenizer, models):
    folders = []
    for name, model in models.items():
        folders.append(tmp_path_factory.mktemp("checkpoints") / name)
        model.save_pretrained(folders[-1])
        tokenizer.save_pretrained(folders[-1])
    return [str(folder) for folder in folders]


@pytest.fixture
def marvin_linzen(tmp_path):
    folder = tmp_path / "syneval"
    folder.mkdir()
    (folder / "simple_agrmt.tsv").write_text(SIMPLE, encoding="utf-8")
    with gzip.open(folder / "simple_npi_anim.tsv.gz", "wt", encoding="utf-8") as file:
        file.write(NPI)
    return str(folder)


@pytest.fixture
def blimp(tmp_path):
    folder = tmp_path / "blimp"
    folder.mkdir()
    pair = {"sentence_good": "Who hasn't left?", "sentence_bad": "Who hasn't laughed?"}
    (folder / "wh_island.jsonl").write_text(json.dumps(BLIMP | pair) + "\n", encoding="utf-8")
    return str(folder)


@pytest.mark.parametrize("name", ["our-model", "gpt-model"])
@pytest.mark.parametrize("end_counts", [True, False])
def test_the_more_probable_sentence_wins(models, tokenizer, marvin_linzen, name, end_counts):
    model = models[name]
    items = load_marvin_linzen(marvin_linzen)
    scores = evaluate_syntax.score_items(model, tokenizer, items, end_counts, batch_size=3)

    def total(sentence):
        ids = [0, *tokenizer(sentence)["input_ids"], *([0] if end_counts else [])]
        return sequence_log_probability(model, ids)

    right = [total(item.sentences[0]) > total(item.sentences[-1]) for item in items if len(item.sentences) == 2]
    simple = scores["by_group"]["agreement: simple"]
    assert (simple["num_correct"], simple["num_pairs"]) == (sum(right), 4)
    grammatical, intrusive, ungrammatical = map(total, items[-1].sentences)
    for name, expected in {
        "grammatical vs. intrusive": grammatical > intrusive,
        "intrusive vs. ungrammatical": intrusive > ungrammatical,
        "grammatical vs. ungrammatical": grammatical > ungrammatical,
    }.items():
        assert scores["by_group"][f"NPIs: simple ({name})"]["num_correct"] == expected


def test_scores_equal_those_of_the_command_line(models, tokenizer, monkeypatch):
    onlstm, scored = models["our-model"], {}

    def record(model, sequences, batch_size):
        scored.update(dict.fromkeys(map(tuple, sequences)))
        return original(model, sequences, batch_size)

    original = evaluate_syntax.sequence_log_probabilities
    monkeypatch.setattr(evaluate_syntax, "sequence_log_probabilities", record)
    sentences = ["the authors laugh", "the authors smirk"]
    evaluate_syntax.score_items(onlstm, tokenizer, [Item("condition", "group", tuple(sentences))])
    totals = [score.total().total_log_likelihood for score in score_sentences(onlstm, tokenizer, sentences)]
    assert original(onlstm, list(scored)) == pytest.approx(totals, abs=1e-4)


def test_pairs_of_unknown_words_are_counted_as_ties(models, tokenizer, marvin_linzen):
    scores = evaluate_syntax.score_items(models["our-model"], tokenizer, load_marvin_linzen(marvin_linzen))
    simple = scores["by_group"]["agreement: simple"]
    assert simple["num_ties"] == 1  # smirk and smirks
    assert simple["num_out_of_vocabulary"] == 2  # and the last pair, not for its "pilots"


@pytest.mark.parametrize(
    "first, second, expected",
    [
        ("the authors laugh", "the authors laughs", False),
        ("the pilots laugh", "the pilots laughs", False),
        ("the pilots laugh", "the authors laugh", True),
        ("the pilots laugh", "the surgeons laugh", True),
        ("the authors that no pilots have", "no authors that the pilots have", False),
        ("the authors laugh", "the authors who smirk laugh", True),
        ("the pilots", "the pilots", False),
    ],
)
def test_only_unknown_words_that_differ_matter(tokenizer, first, second, expected):
    assert differ_in_unknown_word(*tokenize_sentences(tokenizer, [first, second])) is expected


def test_every_set_has_a_test_case_and_every_test_case_published_figures():
    groups = [group for section in MARVIN_LINZEN_SETS.values() for group in section]
    sets = [name for section in MARVIN_LINZEN_SETS.values() for names in section.values() for name in names]
    assert len(sets) == len(set(sets)) == 22
    assert [model["system"] for model in PUBLISHED] == ["ON-LSTM", "LSTM"]
    for model in PUBLISHED:
        published = model["accuracy"]
        assert {name.partition(" (grammatical")[0].partition(" (intrusive")[0] for name in published} == set(groups)
        assert len(published) == 19


def test_table_and_results_of_several_models(run, checkpoints, marvin_linzen, blimp):
    results, table = run(evaluate_syntax, *checkpoints, "--marvin-linzen", marvin_linzen, "--blimp", blimp)
    assert [row["model"] for row in results["models"]] == checkpoints
    scores = [row["scores"]["Marvin & Linzen"] for row in results["models"]]
    simple = [score["by_group"]["agreement: simple"] for score in scores]
    (line,) = [line for line in table.splitlines() if line.startswith("agreement: simple")]
    cells = [f"{score['accuracy']:.2f} ({score['in_vocabulary_accuracy']:.2f} of 50%)" for score in simple]
    assert line.split() == f"agreement: simple {' '.join(cells)} 0.99 1.00".split()
    assert "our-model" in table and "gpt-model" in table and "ON-LSTM (published)" in table
    assert "NPIs: simple (intrusive vs. ungrammatical)" in table and "BLiMP: wh_island" in table
    assert f"{checkpoints[0]}, Marvin & Linzen: {scores[0]['num_ties']} ties" in table
    blimp_scores = results["models"][0]["scores"]["BLiMP"]
    assert blimp_scores["by_group"]["island_effects"]["num_out_of_vocabulary"] == 0
    assert results["command"].startswith("python eval/evaluate_syntax.py ")


def test_checkpoints_of_runs_have_distinct_names_in_the_table():
    models = [{"model": f"runs/{name}/best", "scores": {}} for name in ("onlstm", "lstm")]
    header, _ = syntax_table({"syntax": {"models": models}})
    assert header[1:3] == ["onlstm", "lstm"]


def test_a_dataset_has_one_configuration_per_paradigm(monkeypatch):
    datasets = library("datasets")
    rows = {name: BLIMP | {"UID": name, "sentence_good": name, "sentence_bad": "b"} for name in ("one", "two")}

    def load(source, name, split):
        assert (source, split) == ("owner/blimp", "train")
        return datasets.Dataset.from_list([rows[name]])

    monkeypatch.setattr(datasets, "get_dataset_config_names", lambda source: list(rows))
    monkeypatch.setattr(datasets, "load_dataset", load)
    expected = [Item(name, "island_effects", (name, "b")) for name in rows]
    assert load_blimp("owner/blimp") == expected
    with pytest.raises(ValueError, match="one of owner/blimp has no column 'condition'"):
        load_marvin_linzen("owner/blimp")


@pytest.mark.parametrize(
    ("test", "name", "content", "message"),
    [
        ("--marvin-linzen", "simple_agrmt.tsv", b"sing\tthe author laughs\n", "the file has 2 columns"),
        ("--marvin-linzen", "agreement.tsv", SIMPLE.encode(), "agreement is not one of Marvin & Linzen"),
        ("--marvin-linzen", "simple_agrmt.txt", SIMPLE.encode(), "has no files that end in .tsv or .tsv.gz"),
        ("--marvin-linzen", "simple_agrmt.tsv.gz", gzip.compress(SIMPLE.encode(), mtime=0)[:-9], "agrmt.tsv.gz: "),
        ("--blimp", "wh_island.jsonl", json.dumps(BLIMP).encode(), "has no column 'sentence_good'"),
    ],
)
def test_bad_sets_are_refused_before_a_model_is_loaded(refusal, tmp_path, test, name, content, message):
    (tmp_path / name).write_bytes(content)
    assert message in refusal(evaluate_syntax, "no-such-model", test, tmp_path)


@pytest.mark.parametrize("opener", [open, gzip.open])
def test_byte_order_marks_are_ignored_and_only_line_feeds_end_lines(tmp_path, opener):
    name = "simple_agrmt.tsv" + (".gz" if opener is gzip.open else "")
    sentences = ("the\x85author laughs", "the\u2028author laugh")
    with opener(tmp_path / name, "wb") as file:
        file.write("\t".join(("\ufeffsing", *sentences)).encode() + b"\r\n")
    (item,) = load_marvin_linzen(str(tmp_path))
    assert item.condition == "simple_agrmt/sing" and item.sentences == sentences


def test_without_data_there_is_a_one_line_error(refusal):
    assert refusal(evaluate_syntax, "no-such-model").startswith("nothing to evaluate")


def test_the_reference_sets_are_read_whole(shared_dir):
    items = load_marvin_linzen(str(shared_dir / "data/syneval"))
    assert len(items) == 163_124
    assert {item.group for item in items} == {group for section in MARVIN_LINZEN_SETS.values() for group in section}
    items = load_blimp(str(shared_dir / "data/blimp"))
    assert len(items) == 67_000
    assert len({item.condition for item in items}) == 67 and len({item.group for item in items}) == 12
