import gzip
import random

import pytest

from tests.helpers.command_line import TEXT
from tests.helpers.requirements import library

library("datatrove")
from tests.helpers.corpus_runs import in_a_process, tables  # noqa: E402


@pytest.fixture(scope="session")
def checkpoint(checkpoint) -> str:
    return str(checkpoint)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """A folder with three files, one of them compressed."""
    folder = tmp_path_factory.mktemp("corpus")
    generator = random.Random(0)
    for name in ("a.txt", "b.txt", "c.txt.gz"):
        lines = (" ".join(generator.choices(" ".join(TEXT).split(), k=generator.randrange(12))) for _ in range(100))
        text = "".join(f"{line}\n" for line in lines).encode()
        (folder / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return folder


@pytest.fixture(scope="session")
def undisturbed(corpus, checkpoint, tmp_path_factory):
    """Tables of an undisturbed run."""
    output = tmp_path_factory.mktemp("undisturbed")
    process = in_a_process(corpus, output, checkpoint)
    process.join()
    assert process.exitcode == 0
    return tables(output)
