"""Heads of noun phrases, and lemmas."""

from eval.narrative_cloze.penn_trees import Node
from eval.task import import_extra
from onlstm_hf.trees.treebank import PUNCTUATION_TAGS, Preprocessing

NOUN_TAGS = frozenset({"NN", "NNS", "NNP", "NNPS"})
# Rules for noun phrases in order: direction of the search among the parts, and categories to find.
_NOUN_RULES = (
    (reversed, NOUN_TAGS | {"NX", "POS", "JJR"}),
    (iter, frozenset({"NP", "WHNP"})),
    (reversed, frozenset({"$", "ADJP", "PRN"})),
    (reversed, frozenset({"CD"})),
    (reversed, frozenset({"JJ", "JJS", "RB", "QP"})),
)
_AMOUNT_RULES = ((iter, frozenset({"$"})),)
_WRITTEN = Preprocessing(digits="numbers")


def head_word(node: Node) -> Node | None:
    """Returns the head of a noun phrase as a leaf, by the rules of Collins (1999, appendix A).

    The head of a phrase without a rule, such as the `ADJP` of "the rich", is its last part. Punctuation and empty
    elements are ignored. A phrase without words has the head `None`.
    """
    while node.word is None:
        parts = [child for child in node.children if _is_overt(child)]
        if not parts:
            return None
        rules = _AMOUNT_RULES if node.category == "QP" else _NOUN_RULES
        if node.category not in ("NP", "NX", "WHNP", "NAC", "QP"):
            rules = ()
        matches = (part for direction, categories in rules for part in direction(parts) if part.category in categories)
        node = next(matches, parts[-1])
    return node


def _is_overt(node: Node) -> bool:
    return any(word.category not in PUNCTUATION_TAGS for word in node.words())


def verb_lemma(verb: Node) -> str:
    return _lemma(verb.word, "VERB")


def noun_lemma(head: Node) -> str:
    """Returns the lemma of a plural noun; any other head in lower case, with `N` for a number in digits."""
    return _lemma(head.word, "NOUN") if head.category == "NNS" else _WRITTEN.word(head.word)


def _lemma(word: str, part_of_speech: str) -> str:
    lemminflect = import_extra("lemminflect", "lemmas")
    return lemminflect.getLemma(word.lower(), part_of_speech)[0]
