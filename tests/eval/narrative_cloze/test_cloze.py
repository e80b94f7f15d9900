"""Models of events and their scores, compared with exhaustive search and explicit counts."""

import itertools
import math

import pytest
import torch

from eval.narrative_cloze import evaluate_scripts, write_events
from eval.narrative_cloze.evaluate_scripts import CountModel, score_cloze
from eval.narrative_cloze.event_files import KINDS, PARTS, read_scripts, replace_rare, split, write_scripts
from eval.narrative_cloze.language_model import ScriptLanguageModel
from eval.narrative_cloze.penn_trees import read_documents
from onlstm_hf import build_word_tokenizer
from tests.helpers import tiny_models
from tests.helpers.requirements import library


def event(text):
    return tuple(kind + word for kind, word in zip(KINDS, text.split(), strict=True))


A, B, C, D = (event(f"{verb} 1 - - -") for verb in "abcd")
TRAIN = [[A, B, A, C], [B, C], [A, B, B]]


@pytest.mark.parametrize("window", [1, 2, 5])
@pytest.mark.parametrize("prior", [0.5, 4.0])
def test_bigrams_follow_their_definition(window, prior):
    model = CountModel(TRAIN, window, prior)
    events = [one for script in TRAIN for one in script]
    for first, second in itertools.product([A, B, C, D], [A, B, C]):
        pairs = [
            (script[i], script[j])
            for script in TRAIN
            for i in range(len(script))
            for j in range(i + 1, min(len(script), i + window + 1))
        ]
        after_first = sum(one == first for one, _ in pairs)
        frequency = events.count(second) / len(events)
        expected = (pairs.count((first, second)) + prior * frequency) / (after_first + prior)
        found = model.log_conditionals(first)[model.events.index(second)]
        assert found == pytest.approx(math.log(expected))


def test_bigrams_sum_over_earlier_events_and_unigrams_ignore_them():
    model = CountModel(TRAIN, 2, 1.0)
    *_, prediction = model.predict([D, A, B, C], 2)
    totals = sum(model.log_conditionals(one) for one in (D, A, B))
    order = sorted(range(3), key=lambda number: -totals[number])
    assert prediction == [model.events[number] for number in order[:2]]
    for prediction in CountModel(TRAIN).predict([D, D, A], 3):
        assert prediction == [B, A, C]


VOCABULARY = ["v:a", "v:b", "v:?", "a:1", "a:-", "p:in", "p:-"]
KIND_WORDS = [[word for word in VOCABULARY if word.startswith(kind)] for kind in KINDS]


def language_model(cell):
    tokenizer = build_word_tokenizer([" ".join(VOCABULARY)])
    return tiny_models.KINDS[cell].make(vocab_size=len(tokenizer)), tokenizer


SCRIPTS = [
    [event("a 1 - - -"), event("b - 1 1 in"), event("? - - - in")],
    [event("b 1 1 1 in")],
    [event("b 1 - - in"), event("a 1 - - -")],
]


@pytest.mark.parametrize("cell", ["onlstm", "lstm"])
def test_beam_search_equals_exhaustive_search(cell):
    model, tokenizer = language_model(cell)
    predictions = ScriptLanguageModel(model, tokenizer, beam_size=48).predict(SCRIPTS, 25)
    assert [len(predicted) for predicted in predictions] == [2, 0, 1]
    candidates = list(itertools.product(*KIND_WORDS))
    assert len(candidates) == 48
    for script, predicted in zip(SCRIPTS, predictions, strict=True):
        for place, prediction in enumerate(predicted, start=1):
            read = [word for one in script[:place] for word in one]
            texts = [" ".join(["<eos>", *read, *candidate]) for candidate in candidates]
            ids = tokenizer(texts, return_tensors="pt").input_ids
            with torch.no_grad():
                log_probabilities = model(ids).logits.log_softmax(-1)[:, :-1]
            scores = log_probabilities.gather(2, ids[:, 1:, None])[:, -5:, 0].sum(1)
            best = scores.argsort(descending=True)[:25]
            assert prediction == [candidates[number] for number in best]


def test_a_narrow_beam_sorts_events_by_probability():
    model, tokenizer = language_model("lstm")
    ((wide, *_), *_) = ScriptLanguageModel(model, tokenizer, 48).predict(SCRIPTS, 48)
    ((narrow, *_), *_) = ScriptLanguageModel(model, tokenizer, 4).predict(SCRIPTS, 4)
    assert narrow == sorted(narrow, key=wide.index) and len(narrow) == 4


def test_a_model_without_event_words_is_refused():
    model, _ = language_model("lstm")
    with pytest.raises(ValueError, match="not one of the words of events"):
        ScriptLanguageModel(model, build_word_tokenizer(["the cat sat"]))


def test_recall_counts_events_verbs_and_events_without_rare_words():
    script = [A, event("b - - - -"), event("? 1 - - -"), event("c 1 2 - -")]
    predicted = [[event("b - - - -")], [event("a 1 - - -"), event("? - - - -")], [event("d 1 2 - -")]]
    assert score_cloze([script, [A]], [predicted, []]) == {
        "num_events": 3,
        "recall": 1 / 3,
        "verb_recall": 2 / 3,
        "num_events_without_rare": 2,
        "recall_without_rare": 1 / 2,
    }
    with pytest.raises(ValueError, match="no held-out document has two events"):
        score_cloze([[A]], [[]])


def test_every_fifth_document_is_test_and_the_next_validation():
    parts = split(range(1, 12))
    assert parts == {"train": [2, 3, 4, 7, 8, 9], "valid": [1, 6, 11], "test": [5, 10]}


def test_rare_words_of_the_training_scripts_are_replaced():
    parts = {"train": [[A, A, B]], "valid": [[D]], "test": [[B, A]]}
    rare = event("? 1 - - -")
    assert replace_rare(parts, 2) == {"train": [[A, A, rare]], "valid": [[rare]], "test": [[rare, A]]}


def test_written_scripts_can_be_read(tmp_path):
    write_scripts(tmp_path / "events", {"train": TRAIN, "valid": [[C], [B, D]], "test": [[A]]})
    assert [read_scripts(tmp_path / "events" / f"{part}.txt") for part in PARTS] == [TRAIN, [[C], [B, D]], [[A]]]
    (tmp_path / "text.txt").write_text("v:a a:1 a:- a:- p:- v:b a:1\n")
    with pytest.raises(ValueError, match="line 1: v:b a:1 is not an event"):
        read_scripts(tmp_path / "text.txt")


SENTENCE = "( (S\n    (NP-SBJ (NN {}) )\n    \n    (VP (VBD {}) )))\n"


def test_every_file_and_every_tree_after_an_empty_line_begins_a_document(tmp_path):
    sentences = [SENTENCE.format("cook", verb) for verb in ("slept", "ate", "left")]
    (tmp_path / "wsj_1.mrg").write_text("\n" + sentences[0] + sentences[1] + "\n" + sentences[2])
    (tmp_path / "wsj_2.mrg").write_text(sentences[0])
    assert list(map(len, read_documents([tmp_path]))) == [2, 1, 1]
    assert list(map(len, read_documents([tmp_path / "wsj_2.mrg"]))) == [1]
    (tmp_path / "wsj_3.mrg").write_text("(S (NN a)")
    with pytest.raises(ValueError, match=r"wsj_3\.mrg: malformed brackets"):
        read_documents([tmp_path])
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no .mrg file"):
        read_documents([tmp_path / "empty"])


def test_too_few_documents_are_refused_before_anything_is_written(tmp_path, refusal):
    library("lemminflect")
    (tmp_path / "wsj_1.mrg").write_text(SENTENCE.format("cook", "slept"))
    error = refusal(write_events, "--treebank", tmp_path, "--output-dir", tmp_path / "events")
    assert "1 documents with events; at least 5 are needed" in error
    assert not (tmp_path / "events").exists()


def test_from_trees_to_a_table(run, tmp_path, capsys):
    library("lemminflect")
    for number in range(10):
        sentences = [SENTENCE.format("cook", verb) for verb in ("slept", "ate", "slept")]
        (tmp_path / f"wsj_{number:02}.mrg").write_text("".join(sentences))
    assert write_events.main(["--treebank", str(tmp_path), "--output-dir", str(tmp_path / "events")]) == 0
    assert "entities, train          6      18" in capsys.readouterr().out
    (first, *_) = read_scripts(tmp_path / "events" / "nouns" / "test.txt")
    assert first == [event(f"{verb} cook - - -") for verb in ("sleep", "eat", "sleep")]
    assert read_scripts(tmp_path / "events" / "entities" / "valid.txt")[0][0] == event("sleep 1 - - -")

    folder, words = tmp_path / "model", (tmp_path / "events" / "nouns" / "train.txt").read_text()
    tokenizer = build_word_tokenizer([words])
    tiny_models.KINDS["lstm"].make(vocab_size=len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    results, _ = run(evaluate_scripts, folder, "--events", tmp_path / "events" / "nouns")
    assert [model["system"] for model in results["models"]] == ["unigram", "bigram", "LSTM"]
    # Only two different events are possible.
    assert all(model["scores"]["recall"] == 1 for model in results["models"])
    assert results["documents"]["test"]["num_events"] == 6 and results["arguments"] == "nouns"
