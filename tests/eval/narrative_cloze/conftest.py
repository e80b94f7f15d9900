import pytest

from eval.narrative_cloze.penn_trees import Node
from onlstm_hf.trees.brackets import read_brackets


@pytest.fixture(scope="session")
def read_tree():
    """Reads one tree from brackets."""

    def read(text: str) -> Node:
        (bracket,) = read_brackets(text)
        return Node.from_bracket(bracket)

    return read
