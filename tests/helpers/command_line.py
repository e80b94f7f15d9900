"""Sentences, gold trees, vocabulary, entry point and small functions for the tests of commands."""

import sys
from io import BytesIO, TextIOWrapper

TEXT = ["The cat sat on the mat .", "it saw 2 dogs", "dogs", "the old dog that the cat saw sat on the old mat"]
TREES = """\
( (S (NP-SBJ (DT The) (NN cat)) (VP (VBD sat) (PP (IN on) (NP (DT the) (NN mat)))) (. .)) )
( (S (NP-SBJ (PRP It)) (VP (VBD saw) (NP (CD 2) (NNS dogs))) (. .)) )
( (S (NP-SBJ (NP (DT The) (JJ old) (NN dog)) (SBAR (WHNP (WDT that)) (S (NP-SBJ (DT the) (NN cat)) (VP (VBD saw)))))
     (VP (VBD sat) (PP (IN on) (NP (DT the) (JJ old) (NN mat)))) (. .)) )
"""
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
