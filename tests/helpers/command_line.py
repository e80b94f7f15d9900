"""Sentences, vocabulary, entry point and small functions for the tests of subcommands."""

import sys
from io import BytesIO, TextIOWrapper

TEXT = ["The cat sat on the mat .", "it saw 2 dogs", "dogs", "the old dog that the cat saw sat on the old mat"]
WORDS = ["<eos>", "<unk>", "the", "cat", "sat", "on", "mat", ".", "it", "saw", "dogs", "old", "dog", "that", "N"]

# Script that pip writes for the entry point in setup.cfg.
CONSOLE_SCRIPT = """
import sys
from onlstm_hf.cli.main import main
if __name__ == "__main__":
    sys.exit(main())
"""


def type_in(monkeypatch, content: bytes):
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(content)))


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())
