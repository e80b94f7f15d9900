"""Entities among the arguments of a document's events: an approximation of coreference without a model.

Noun phrases whose heads have the same lemma are one entity. The head of a name is its last word, that of a company its
first word ("Ford" of "Ford Motor Co."). A third-person pronoun refers to the nearest subject of an earlier event that
agrees with it in number and, if a title or the kind of name tells, in gender. A reflexive pronoun may also refer to
the subject of its own event. All `I` of a document are one entity; likewise `we` and `you`. Any other argument
(numbers, amounts, "this") is an entity of its own.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from eval.narrative_cloze.events import Event
from eval.narrative_cloze.penn_trees import NOUN_TAGS, Node, noun_lemma

NONE, SINGLETON = "-", "SINGLETON"
COMPANIES = frozenset({"ag", "co.", "corp.", "cos.", "inc.", "ltd.", "n.v.", "nv", "plc", "s.a.", "sa"})
TITLES = {"mr.": "he", "mrs.": "she", "ms.": "she", "miss": "she"}
# Nominative of each pronoun.
PRONOUNS = {
    form: forms.split()[0]
    for forms in (
        "i me myself",
        "we us ourselves",
        "you yourself yourselves",
        "he him himself",
        "she her herself",
        "it itself",
        "they them themselves",
    )
    for form in forms.split()
}
THIRD_PERSON = frozenset({"he", "she", "it", "they"})


class Mention(NamedTuple):
    """Entity of an argument, and the pronouns that may refer to it."""

    entity: Hashable
    pronouns: frozenset[str]


def entity_arguments(events: Sequence[Event]) -> list[tuple[str, str, str]]:
    """Returns subject, object and prepositional object of each event of a document as entities.

    Entities are `1`, `2`, ... in order of appearance, `SINGLETON` for an entity of one event only, and `-` for no
    argument.
    """
    entities = _entities(events)
    counts = Counter(entity for arguments in entities for entity in {*arguments} - {None})
    repeated = dict.fromkeys(entity for arguments in entities for entity in arguments if counts[entity] > 1)
    names = {None: NONE} | {entity: str(number) for number, entity in enumerate(repeated, start=1)}
    return [tuple(names.get(entity, SINGLETON) for entity in arguments) for arguments in entities]


def _entities(events: Sequence[Event]) -> list[list[Hashable]]:
    arguments_of_events, subjects = [], []
    for event in events:
        entities, event_subject = [], []
        for argument in (event.subject, event.object, event.prepositional_object):
            mention = None
            if argument is not None:
                is_reflexive = argument.word.lower().endswith(("self", "selves"))
                mention = _mention(argument, subjects + event_subject if is_reflexive else subjects)
                event_subject += [mention] if argument is event.subject else []
            entities.append(mention and mention.entity)
        subjects += event_subject
        arguments_of_events.append(entities)
    return arguments_of_events


def _mention(head: Node, subjects: Sequence[Mention]) -> Mention:
    word = head.word.lower()
    if head.category == "PRP" and word in PRONOUNS:
        pronoun = PRONOUNS[word]
        candidates = (subject for subject in reversed(subjects) if pronoun in subject.pronouns)
        antecedent = next(candidates, None) if pronoun in THIRD_PERSON else None
        return Mention(antecedent.entity if antecedent else pronoun, frozenset({pronoun}))
    if head.category not in NOUN_TAGS:
        return Mention(head, frozenset())
    if head.category.endswith("S"):
        return Mention(noun_lemma(head), frozenset({"they"}))
    names = [node.word.lower() for node in head.parent.children if node.category == "NNP"] if head.parent else []
    if head.category == "NNP" and word in COMPANIES:
        return Mention(names[0], frozenset({"it"}))
    title = next((TITLES[name] for name in names if name in TITLES), None)
    return Mention(noun_lemma(head), frozenset({title} if title else {"he", "she", "it"}))
