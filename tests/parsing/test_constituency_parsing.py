"""`pipeline("constituency-parsing")` gives the same records as `parse` for every kind of input."""

import json
from itertools import count, islice
from pathlib import Path

import pytest
from datasets import Dataset
from transformers import AutoConfig, pipeline
from transformers.pipelines.pt_utils import KeyDataset

from onlstm_hf import ConstituencyParsingPipeline
from tests.helpers.tiny_models import KINDS

SENTENCES = ["the old cat saw the dog", "a  bird sang ", "", "dog", "the cat and the dog sang and sat on a mat"]


@pytest.fixture(scope="module")
def parse(checkpoint):
    return pipeline("constituency-parsing", model=checkpoint, device="cpu")


def test_records_equal_those_of_parse_and_are_json_serialisable(parse, model, tokenizer):
    assert isinstance(parse, ConstituencyParsingPipeline)
    found = parse(SENTENCES)
    assert json.loads(json.dumps(found)) == found
    for text, record, tree in zip(SENTENCES, found, model.parse(SENTENCES, tokenizer), strict=True):
        assert record.pop("distances") == pytest.approx(tree.distances, abs=1e-6)
        assert record.items() <= tree.to_record(text).items()


def test_all_kinds_of_input_give_the_same_records(parse):
    expected = parse(SENTENCES)
    dataset = Dataset.from_dict({"text": SENTENCES})
    assert [parse(sentence)["brackets"] for sentence in SENTENCES] == [record["brackets"] for record in expected]
    for inputs in (tuple(SENTENCES), dataset["text"]):
        assert parse(inputs) == expected
    for inputs in ((text for text in SENTENCES), iter(SENTENCES), KeyDataset(dataset, "text")):
        found = parse(inputs)
        assert not isinstance(found, list)
        assert list(found) == expected
    assert parse([]) == []


def test_texts_are_split_into_sentences(parse):
    texts = ["The dog sang. The cat sat!", "dog", ""]
    found = parse(texts, split_sentences=True)
    split = [[record["text"] for record in records] for records in found]
    assert split == [["The dog sang.", "The cat sat!"], ["dog"], []]
    assert [record["start"] for record in found[0]] == [0, 14]
    alone, again = parse("The cat sat!"), parse(texts[0], split_sentences="en")
    for record in (alone, *again):  # the last digit may differ in another batch
        record["distances"] = pytest.approx(record["distances"])
    assert found[0][1].items() >= alone.items()
    assert found[0] == again
    (splitting,) = parse(texts[:1], split_sentences=True, punctuation="attach")
    assert splitting[0]["words"] == ["The", "dog", "sang."]


def test_a_text_of_several_sentences_gives_a_warning(parse, monkeypatch):
    warnings = []
    monkeypatch.setattr("onlstm_hf.parsing.pipeline.logger.warning", warnings.append)
    parse(["dog", "The dog sang. The cat sat!"])
    assert len(warnings) == 1
    assert '"The dog sang. The cat sat!" has 2 sentences' in warnings[0]


def test_batches_do_not_change_results(parse, checkpoint):
    expected = [record["brackets"] for record in parse(SENTENCES, batch_size=1)]
    two_at_a_time = pipeline("constituency-parsing", model=checkpoint, batch_size=2, device="cpu")
    for found in (parse(SENTENCES, batch_size=3), two_at_a_time(SENTENCES), parse(SENTENCES)):
        assert [record["brackets"] for record in found] == expected


def test_an_endless_generator_is_read_a_batch_at_a_time(parse):
    numbers = count()
    found = parse((f"the cat {number}" for number in numbers), batch_size=4)
    assert [record["words"][-1] for record in islice(found, 5)] == ["0", "1", "2", "3", "4"]
    assert next(numbers) <= 8


def test_options_of_the_call_or_the_constructor_are_used(parse, checkpoint, model, tokenizer):
    options = {"layer": 0, "branching_bias": "none"}
    expected = model.parse(SENTENCES[-1], tokenizer, **options).to_bracket()
    assert expected != parse(SENTENCES[-1])["brackets"]
    assert parse(SENTENCES[-1], **options)["brackets"] == expected
    assert parse(SENTENCES[-1], layer=1)["brackets"] == parse(SENTENCES[-1])["brackets"]
    configured = pipeline("constituency-parsing", model=checkpoint, device="cpu", **options)
    assert configured(SENTENCES[-1])["brackets"] == expected
    assert configured(SENTENCES[-1], layer=1, branching_bias="right") == parse(SENTENCES[-1])


def test_options_of_single_models_are_passed_on(tokenizer):
    model = KINDS["prpn"].make(vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id)
    parse = pipeline("constituency-parsing", model=model, tokenizer=tokenizer, device="cpu")
    text = " ".join(SENTENCES)
    hard = model.parse(text, tokenizer, hard=True).to_bracket()
    assert parse(text, hard=True)["brackets"] == hard != parse(text)["brackets"]


def test_package_code_needs_no_trust_after_saving(model, tokenizer, checkpoint, tmp_path):
    assert "constituency-parsing" in json.loads(Path(checkpoint, "config.json").read_text())["custom_pipelines"]
    assert not hasattr(AutoConfig.from_pretrained(checkpoint), "custom_pipelines")
    parse = pipeline("constituency-parsing", model=model, tokenizer=tokenizer, device="cpu")
    parse.save_pretrained(tmp_path)
    again = pipeline("constituency-parsing", model=parse.model, tokenizer=tokenizer, device="cpu")
    assert type(again) is ConstituencyParsingPipeline
    assert pipeline("constituency-parsing", model=str(tmp_path), device="cpu")("dog")["brackets"] == "(dog)"


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn", "prpn"])
def test_a_model_without_trees_is_refused(kind, tokenizer):
    without_trees = {"parsing_network": False} if kind == "prpn" else {}
    model = KINDS[kind].make(vocab_size=len(tokenizer), **without_trees)
    with pytest.raises(ValueError, match=f'type "{model.config.model_type}" induces no trees'):
        pipeline("constituency-parsing", model=model, tokenizer=tokenizer, device="cpu")


def test_inputs_other_than_text_and_unknown_options_are_refused(parse):
    for inputs in (3, None, {"text": "the cat"}, [["the", "cat"]]):
        with pytest.raises(ValueError, match="sentences must be strings, not"):
            parse(inputs)
    with pytest.raises(TypeError, match="unexpected keyword argument 'hard'"):
        parse("the cat", hard=True)
    with pytest.raises(ValueError, match="layer 7 does not exist"):
        parse("the cat", layer=7)
