"""Events of a sentence after Pichotta & Mooney (2016): a verb and the heads of its arguments.

Penn Treebank trees replace a dependency parser. Every main verb is an event, also in infinitives and participle
clauses. Tense, modality and negation are ignored. The indices of empty elements give the subject of a controlled verb
and the missing arguments of a relative clause. In the passive, the surface subject is the object of the event, and the
noun phrase after `by` is its subject. The surface subject of a participle is the noun phrase that it modifies.
"""

from collections.abc import Iterator
from typing import NamedTuple

from eval.narrative_cloze.penn_trees import NOUN_TAGS, Node, head_word, verb_lemma

VERB_TAGS = frozenset({"VB", "VBD", "VBG", "VBN", "VBP", "VBZ"})
AUXILIARIES = frozenset({"be", "have", "do", "get"})
# Function tags of noun phrases in a verb phrase that are not objects.
NO_OBJECT = frozenset({"ADV", "BNF", "DIR", "EXT", "LGS", "LOC", "MNR", "PRP", "TMP", "VOC"})
# Function tags of prepositional complements, which are preferred to adjuncts.
COMPLEMENT = frozenset({"BNF", "CLR", "DTV", "PUT"})
PREPOSITION_TAGS = frozenset({"IN", "TO", "VBG", "VBN"})


class Event(NamedTuple):
    """A verb and the heads of its arguments, each a leaf of the tree or `None`."""

    verb: Node
    particle: Node | None = None  # `up` of "take up"
    subject: Node | None = None
    object: Node | None = None  # head of the direct object or the predicate noun
    prepositional_object: Node | None = None  # in the first prepositional complement, else in the first adjunct
    preposition: Node | None = None


def events(tree: Node) -> Iterator[Event]:
    """Yields the events of a sentence in the order of their verbs."""
    antecedents = {node.index: node for node in tree.nodes() if node.index is not None}
    for node in tree.words():
        if node.category in VERB_TAGS and _is_main_verb(node):
            yield _event(node, antecedents)


def _is_main_verb(verb: Node) -> bool:
    if verb.parent is None or verb.parent.category not in ("VP", "SQ", "SINV"):
        return False
    if verb_lemma(verb) not in AUXILIARIES:
        return True
    for sibling in verb.siblings()[1]:
        if sibling.category == "VP":
            return False
        if sibling.category == "CC":
            break
    return True


def _event(verb: Node, antecedents: dict[str, Node]) -> Event:
    _, after = verb.siblings()
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
    """Returns the subject of the verb's clause, or the noun phrase that a participle modifies."""
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
        for sibling in node.siblings()[0]:
            if sibling.category in VERB_TAGS and verb_lemma(sibling) in AUXILIARIES:
                return verb_lemma(sibling) in ("be", "get")
            if sibling.category == "CC":
                break
        node = node.parent
    return True


def _logical_subject(parts: list[Node]) -> Node | None:
    """Returns the noun phrase after the `by` of a passive."""
    phrases = (part for part in parts if part.category == "PP")
    return next((node for phrase in phrases for node in phrase.children if "LGS" in node.functions), None)


def _prepositional_object(phrase: Node, antecedents: dict[str, Node]) -> tuple[Node | None, Node | None]:
    """Returns the preposition and the head of its noun phrase; for "out of it" those of the inner phrase."""
    phrase = _antecedent(phrase, antecedents) or phrase
    preposition = next((part for part in phrase.children if part.category in PREPOSITION_TAGS), None)
    for part in phrase.children:
        if part.category in ("NP", "WHNP"):
            return preposition, _head(part, antecedents)
        if part.category == "PP":
            return _prepositional_object(part, antecedents)
    return preposition, None


def _head(node: Node | None, antecedents: dict[str, Node]) -> Node | None:
    """Returns the head of a noun phrase, or the head of its antecedent for an empty element or relative pronoun."""
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
    """Returns the noun phrase that the relative clause of a relative pronoun modifies."""
    clause = next((node for node in relative.ancestors() if node.category == "SBAR"), None)
    if clause is None or clause.parent is None or clause.parent.category != "NP":
        return None
    return next((part for part in clause.siblings()[0] if part.category == "NP"), None)


def _has_extraposed_subject(node: Node) -> bool:
    """Returns whether a phrase is the `it` of "it is clear that", whose clause is elsewhere."""
    return any(part.word is not None and part.word.startswith("*EXP*") for part in node.nodes())
