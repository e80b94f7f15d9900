"""Events of a sentence, after Pichotta & Mooney (2016): a verb, and the heads of its arguments.

Penn Treebank trees take the place of a dependency parser. Every verb that is not an auxiliary is an event,
also in infinitives and participle clauses; tense, modality and negation are left out. Empty elements say more than
most parsers do: the subject of a controlled verb, and the arguments that a relative clause lacks, are found by their
indices. The surface subject of a passive is the object of its event, the noun phrase after `by` the subject; a
participle that modifies a noun phrase has this as its surface subject.
"""

from collections.abc import Iterator
from typing import NamedTuple

from eval.narrative_cloze.heads import NOUN_TAGS, head_word, verb_lemma
from eval.narrative_cloze.penn_trees import Node

VERB_TAGS = frozenset({"VB", "VBD", "VBG", "VBN", "VBP", "VBZ"})
AUXILIARIES = frozenset({"be", "have", "do", "get"})
# Function tags of noun phrases in a verb phrase that are no objects.
NO_OBJECT = frozenset({"ADV", "BNF", "DIR", "EXT", "LGS", "LOC", "MNR", "PRP", "TMP", "VOC"})
# Function tags of prepositional phrases that the verb asks for; they come before others.
COMPLEMENT = frozenset({"BNF", "CLR", "DTV", "PUT"})
PREPOSITION_TAGS = frozenset({"IN", "TO", "VBG", "VBN"})


class Event(NamedTuple):
    """A verb and what belongs to it, each a leaf of the tree, or `None` where there is none.

    Attributes:
        verb: the verb.
        particle: of a phrasal verb (`up` of "take up").
        subject: head of the subject.
        object: head of the direct object or the predicate noun.
        prepositional_object: head of one noun phrase with a preposition: the first that the verb asks for, else the
            first of all.
        preposition: this preposition.
    """

    verb: Node
    particle: Node | None = None
    subject: Node | None = None
    object: Node | None = None
    prepositional_object: Node | None = None
    preposition: Node | None = None


def events(tree: Node) -> Iterator[Event]:
    """The events of a sentence in the order of their verbs."""
    antecedents = {node.index: node for node in tree.nodes() if node.index is not None}
    for node in tree.words():
        if node.category in VERB_TAGS and _is_main_verb(node):
            yield _event(node, antecedents)


def _is_main_verb(verb: Node) -> bool:
    if verb.parent is None or verb.parent.category not in ("VP", "SQ", "SINV"):
        return False
    if verb_lemma(verb) not in AUXILIARIES:
        return True
    for sibling in verb.siblings_after():
        if sibling.category == "VP":
            return False
        if sibling.category == "CC":
            break
    return True


def _event(verb: Node, antecedents: dict[str, Node]) -> Event:
    after = verb.siblings_after()
    subject = _head(_surface_subject(verb), antecedents)
    objects = [part for part in after if part.category == "NP" and not part.functions & NO_OBJECT]
    # The second of two objects is the direct one.
    object_ = _head(objects[-1], antecedents) if objects else None
    if _is_passive(verb):
        object_ = object_ or subject
        subject = _head(_logical_subject(after), antecedents)
    particle = next((word for part in after if part.category == "PRT" for word in part.words()), None)
    phrases = [part for part in after if part.category == "PP" and not _logical_subject([part])]
    phrases.sort(key=lambda phrase: not phrase.functions & COMPLEMENT)
    for phrase in phrases:
        preposition, head = _prepositional_object(phrase, antecedents)
        if preposition and head:
            return Event(verb, particle, subject, object_, head, preposition)
    return Event(verb, particle, subject, object_)


def _surface_subject(verb: Node) -> Node | None:
    """The subject of the verb's clause, or the noun phrase that a participle modifies."""
    below = verb
    for node in verb.ancestors():
        if node.category == "NP":
            return next((part for part in node.children if part.category == "NP" and part is not below), None)
        if node.category not in ("VP", "UCP", "RRC"):
            return next((part for part in node.children if "SBJ" in part.functions), None)
        below = node
    return None


def _is_passive(verb: Node) -> bool:
    """Returns whether a past participle follows a form of `be` or `get`, or no auxiliary."""
    if verb.category != "VBN":
        return False
    node = verb
    while node.parent is not None and node.category in ("VP", "UCP", *VERB_TAGS):
        for sibling in node.siblings_before():
            if sibling.category in VERB_TAGS and verb_lemma(sibling) in AUXILIARIES:
                return verb_lemma(sibling) in ("be", "get")
            if sibling.category == "CC":
                break
        node = node.parent
    return True


def _logical_subject(parts: list[Node]) -> Node | None:
    """The noun phrase after the `by` of a passive."""
    phrases = (part for part in parts if part.category == "PP")
    return next((node for phrase in phrases for node in phrase.children if "LGS" in node.functions), None)


def _prepositional_object(phrase: Node, antecedents: dict[str, Node]) -> tuple[Node | None, Node | None]:
    """The preposition and the head of its noun phrase; of "out of it" those of the inner phrase."""
    phrase = _antecedent(phrase, antecedents) or phrase
    preposition = next((part for part in phrase.children if part.category in PREPOSITION_TAGS), None)
    for part in phrase.children:
        if part.category in ("NP", "WHNP"):
            return preposition, _head(part, antecedents)
        if part.category == "PP":
            return _prepositional_object(part, antecedents)
    return preposition, None


def _head(node: Node | None, antecedents: dict[str, Node]) -> Node | None:
    """Returns the head of a noun phrase; that of its antecedent if it is empty or a relative pronoun."""
    seen = set()
    while node is not None and node not in seen:
        seen.add(node)
        if node.category not in ("NP", "NX", "WHNP"):
            return None
        antecedent = _antecedent(node, antecedents)
        if antecedent is not None:
            node = antecedent
            continue
        head = head_word(node)
        if node.category == "WHNP" and (head is None or head.category not in NOUN_TAGS):
            node = _modified_noun_phrase(node)
        else:
            is_expletive = head is None or head.category == "EX" or _has_extraposed_subject(node)
            return None if is_expletive else head
    return None


def _antecedent(node: Node, antecedents: dict[str, Node]) -> Node | None:
    empty = node.empty_element()
    return antecedents.get(empty.rpartition("-")[2]) if empty else None


def _modified_noun_phrase(relative: Node) -> Node | None:
    """The noun phrase beside the relative clause that a relative pronoun begins."""
    clause = next((node for node in relative.ancestors() if node.category == "SBAR"), None)
    if clause is None or clause.parent is None or clause.parent.category != "NP":
        return None
    return next((part for part in clause.siblings_before() if part.category == "NP"), None)


def _has_extraposed_subject(node: Node) -> bool:
    """Returns whether a phrase is the `it` of "it is clear that": it has a clause elsewhere."""
    return any(part.word is not None and part.word.startswith("*EXP*") for part in node.nodes())
