"""Warnings for tokenizers that do not belong to a model."""

import json
import logging

import pytest
from transformers import AutoTokenizer, pipeline

from onlstm_hf import build_word_tokenizer
from onlstm_hf.scoring.sentences import score_sentences
from onlstm_hf.utils.checkpoints import load_checkpoint
from onlstm_hf.utils.tokenizer_check import check_tokenizer, tokenizer_fingerprint
from tests.helpers.tiny_models import MODEL_TYPES

WORDS = ["the", "old", "cat", "sat"]
SENTENCE = "the old cat sat"
MESSAGE = "is not the model's tokenizer"


@pytest.fixture
def tokenizer():
    return build_word_tokenizer(vocabulary=["<eos>", "<unk>", "<pad>", *WORDS])


@pytest.fixture
def other_tokenizer():
    """A smaller tokenizer, whose ids are all in the vocabulary of the model."""
    return build_word_tokenizer(vocabulary=["<eos>", "<unk>", "<pad>", "sat", "the", "old"])


@pytest.fixture
def make_model(tokenizer):
    def make(model_type="onlstm", **options):
        special = {"vocab_size": len(tokenizer), "eos_token_id": 0, "pad_token_id": 2}
        return MODEL_TYPES[model_type].make(**special, **options)

    return make


@pytest.fixture
def warnings(caplog):
    """Warnings of the checked module during a test."""
    logging.Logger.warning_once.cache_clear()
    caplog.set_level("WARNING", "onlstm_hf.utils.tokenizer_check")
    return caplog


@pytest.mark.parametrize("model_type", list(MODEL_TYPES))
def test_a_foreign_tokenizer_gives_one_warning_and_the_right_one_none(
    make_model, model_type, tokenizer, other_tokenizer, warnings
):
    model = make_model(model_type, tokenizer_fingerprint=tokenizer_fingerprint(tokenizer))

    def use(tokenizer):
        score_sentences(model, tokenizer, [SENTENCE])
        if model.induces_trees:
            model.parse(SENTENCE, tokenizer)
            pipeline("constituency-parsing", model=model, tokenizer=tokenizer, device="cpu")(SENTENCE)

    use(tokenizer)
    assert warnings.messages == []
    use(other_tokenizer)
    (message,) = warnings.messages
    assert MESSAGE in message
    assert tokenizer_fingerprint(other_tokenizer) in message and tokenizer_fingerprint(tokenizer) in message


def test_without_a_fingerprint_there_is_no_warning(make_model, other_tokenizer, warnings):
    make_model().parse(SENTENCE, other_tokenizer)
    assert warnings.messages == []


def test_added_tokens_and_resized_embeddings_are_accepted(make_model, tokenizer, other_tokenizer, warnings):
    model = make_model(tokenizer_fingerprint=tokenizer_fingerprint(tokenizer))
    tokenizer.add_tokens(["mat"])
    model.resize_token_embeddings(16, mean_resizing=False)
    check_tokenizer(tokenizer, model.config)
    assert warnings.messages == []
    model.config.tokenizer_fingerprint = tokenizer_fingerprint(tokenizer)
    check_tokenizer(tokenizer, model.config)
    assert warnings.messages == []
    check_tokenizer(build_word_tokenizer(vocabulary=["<eos>", "<unk>", "<pad>", *WORDS]), model.config)
    assert len(warnings.messages) == 1  # from the tokenizer without the added token


def test_a_larger_tokenizer_is_refused(make_model, tokenizer):
    config = make_model().config
    tokenizer.add_tokens(["mat"])
    with pytest.raises(ValueError, match="the tokenizer does not fit the model: it has 8 tokens"):
        check_tokenizer(tokenizer, config)


def test_the_fingerprint_depends_on_tokens_and_ids_and_is_stable(tokenizer, tmp_path):
    assert tokenizer_fingerprint(tokenizer) == "7:140c7b63c2afdb14"
    tokenizer.save_pretrained(tmp_path)
    assert tokenizer_fingerprint(AutoTokenizer.from_pretrained(tmp_path)) == tokenizer_fingerprint(tokenizer)
    swapped = build_word_tokenizer(vocabulary=["<eos>", "<unk>", "<pad>", *WORDS[::-1]])
    assert tokenizer_fingerprint(swapped) != tokenizer_fingerprint(tokenizer)


def test_a_saved_pipeline_has_the_fingerprint_and_a_foreign_tokenizer_gives_a_warning(
    make_model, tokenizer, other_tokenizer, tmp_path, warnings
):
    parse = pipeline("constituency-parsing", model=make_model(), tokenizer=tokenizer, device="cpu")
    parse.save_pretrained(tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["tokenizer_fingerprint"] == tokenizer_fingerprint(tokenizer)
    load_checkpoint(str(tmp_path / "model"))
    assert warnings.messages == []
    other_tokenizer.save_pretrained(tmp_path / "model")
    load_checkpoint(str(tmp_path / "model"))
    (message,) = warnings.messages
    assert message.startswith(f"the tokenizer of {tmp_path / 'model'} {MESSAGE}")
