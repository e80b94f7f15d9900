"""Entities of small documents, annotated by hand."""

import pytest

from eval.narrative_cloze.entities import entity_arguments
from eval.narrative_cloze.events import events
from tests.helpers.requirements import library

library("lemminflect")


def clause(subject: str, verb: str, object_: str = "") -> str:
    return f"(S (NP-SBJ {subject}) (VP {verb}{f' (NP {object_})' if object_ else ''}))"


BOB, MR_BOB = "(NNP Bob) (NNP Lee)", "(NNP Mr.) (NNP Lee)"
MRS_KIM, ACME = "(NNP Mrs.) (NNP Kim)", "(NNP Acme) (NNP Boat) (NNP Corp.)"
SOLD, SAID, ARE = "(VBD sold)", "(VBD said)", "(VBP are)"

# For each case, the clauses of a document, and subject, object and prepositional object of each event.
DOCUMENTS = {
    "one head is one entity, a plural as well; what is in one event is a singleton": (
        [("(DT a) (NN boat)", "(VBZ lies)"), ("(NNS men)", SOLD, "(DT the) (NNS boats)")],
        ["1 - -", "SINGLETON 1 -"],
    ),
    "numbers are in the order of first appearance, without the singletons": (
        [("(NN x)", SOLD, "(NN b)"), ("(NN a)", SOLD, "(NN b)"), ("(NN a)", SAID)],
        ["SINGLETON 1 -", "2 1 -", "2 - -"],
    ),
    "twice in one event is one event": ([("(NN a)", SOLD, "(NN a)")], ["SINGLETON SINGLETON -"]),
    "persons are known by their last name, companies by their first": (
        [(BOB, SAID), (ACME, SAID), (MR_BOB, SOLD, "(NNP Acme)")],
        ["1 - -", "2 - -", "1 2 -"],
    ),
    "companies with the same ending are not the same": (
        [(ACME, SAID), ("(NNP Kent) (NNP Corp.)", SAID)],
        ["SINGLETON - -", "SINGLETON - -"],
    ),
    "a pronoun agrees with its antecedent": (
        [(MRS_KIM, SAID), (ACME, SAID), (MR_BOB, SAID), ("(PRP she)", SAID), ("(PRP it)", SAID), ("(PRP he)", SAID)],
        ["1 - -", "2 - -", "3 - -", "1 - -", "2 - -", "3 - -"],
    ),
    "a plural pronoun is a plural noun": (
        [("(NNS men)", SAID), ("(NN man)", SAID), ("(PRP they)", SAID)],
        ["1 - -", "1 - -", "1 - -"],
    ),
    "the nearest one": (
        [("(NN cook)", SAID), ("(NN guest)", SAID), ("(PRP He)", SAID)],
        ["SINGLETON - -", "1 - -", "1 - -"],
    ),
    "an object is not the subject of its own verb, a reflexive one is": (
        [
            ("(NN cook)", SAID),
            ("(NN guest)", SOLD, "(PRP it)"),
            ("(NN thief)", SOLD, "(PRP himself)"),
            ("(NN thief)", SAID),
        ],
        ["1 - -", "SINGLETON 1 -", "2 2 -", "2 - -"],
    ),
    "speakers": (
        [("(PRP I)", SAID), ("(PRP we)", SAID), ("(NN a)", SOLD, "(PRP me)")],
        ["1 - -", "SINGLETON - -", "SINGLETON 1 -"],
    ),
    "a pronoun without an antecedent": ([("(PRP they)", SAID), ("(PRP they)", ARE)], ["1 - -", "1 - -"]),
    "amounts and this are never the same": (
        [("(CD 5) (NN b)", SAID), ("(DT this)", SOLD, "($ $) (CD 5)"), ("(DT this)", SAID)],
        ["SINGLETON - -", "SINGLETON SINGLETON -", "SINGLETON - -"],
    ),
}


@pytest.mark.parametrize(("clauses", "expected"), DOCUMENTS.values(), ids=DOCUMENTS)
def test_entities_of_annotated_documents(read_tree, clauses, expected):
    found = [event for parts in clauses for event in events(read_tree(clause(*parts)))]
    assert [" ".join(arguments) for arguments in entity_arguments(found)] == expected


def test_a_trace_has_the_entity_of_its_antecedent(read_tree):
    infinitive = "(S (NP-SBJ (-NONE- *-1)) (VP (TO to) (VP (VB fly))))"
    tree = read_tree(f"(S (NP-SBJ-1 (DT This)) (VP (VBD tried) {infinitive}))")
    assert [arguments[0] for arguments in entity_arguments(list(events(tree)))] == ["1", "1"]
