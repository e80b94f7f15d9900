import pytest

from onlstm_hf import build_word_tokenizer
from tests.helpers.command_line import WORDS
from tests.helpers.requirements import library
from tests.helpers.tiny_models import MODEL_TYPES

library("datatrove")


@pytest.fixture(scope="session")
def tokenizer():
    return build_word_tokenizer(vocabulary=WORDS, lowercase=True, digits_to_n=True, pad_token="<eos>")


@pytest.fixture(scope="session")
def model(tokenizer):
    return MODEL_TYPES["onlstm"].make(vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory, model, tokenizer):
    folder = tmp_path_factory.mktemp("checkpoint")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
