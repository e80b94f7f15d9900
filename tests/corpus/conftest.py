import gzip
import random

import pytest

from onlstm_hf import build_word_tokenizer
from tests.helpers.command_line import TEXT, WORDS
from tests.helpers.requirements import library
from tests.helpers.tiny_models import MODEL_TYPES

library("datatrove")
from tests.helpers.corpus_runs import in_a_process, tables  # noqa: E402


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


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """Three files, one of them compressed."""
    folder = tmp_path_factory.mktemp("corpus")
    generator = random.Random(0)
    for name in ("a.txt", "b.txt", "c.txt.gz"):
        lines = (" ".join(generator.choices(" ".join(TEXT).split(), k=generator.randrange(12))) for _ in range(100))
        text = "".join(f"{line}\n" for line in lines).encode()
        (folder / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return folder


@pytest.fixture(scope="session")
def undisturbed(corpus, checkpoint, tmp_path_factory):
    """The tables of a run that nothing disturbed."""
    output = tmp_path_factory.mktemp("undisturbed")
    process = in_a_process(corpus, output, checkpoint)
    process.join()
    assert process.exitcode == 0
    return tables(output)
