"""Events of hand-annotated sentences, whose trees have the format of the Penn Treebank."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.narrative_cloze.events import VERB_TAGS, events
from eval.narrative_cloze.penn_trees import verb_lemma
from tests.helpers.requirements import library

library("lemminflect")

# For each case, a tree, and its events as verb, subject, object, prepositional object, preposition.
SENTENCES = {
    "objects, and the phrase that the verb asks for": (
        """( (S (NP-SBJ (DT The) (NN cook)) (VP (VBD put) (NP (DT the) (NN soup)) (PP-TMP (IN at) (NP (NN noon)))
        (PP-PUT (IN on) (NP (DT the) (JJ big) (NN table)))) (. .)) )""",
        ["put cook soup table on"],
    ),
    "no objects: times and amounts": (
        "( (S (NP-SBJ (NNS Prices)) (VP (VBD rose) (NP-EXT (CD 5) (NN %)) (NP-TMP (NNP Monday)))) )",
        ["rise Prices - - -"],
    ),
    "the direct one of two objects": (
        "( (S (NP-SBJ (PRP She)) (VP (VBD gave) (NP (PRP him)) (NP (DT a) (NN book)))) )",
        ["give She book - -"],
    ),
    "auxiliaries and modals, a particle": (
        """( (S (NP-SBJ (NNP Ann)) (VP (MD will) (VP (VB have) (VP (VBN been) (VP (VBG giving) (PRT (RP up))
        (NP (NNS hopes))))))) )""",
        ["give_up Ann hopes - -"],
    ),
    "a copula and its predicate noun": (
        "( (S (NP-SBJ (NNP Ann)) (VP (VBZ is) (NP-PRD (DT a) (NN cook)))) )",
        ["be Ann cook - -"],
    ),
    "main verbs that look like auxiliaries": (
        """( (S (NP-SBJ (PRP We)) (VP (VBD had) (NP (NN tea)) (CC and) (VP (VBD did) (NP (NN work))))) )""",
        ["have We tea - -", "do We work - -"],
    ),
    "a question": ("""( (SQ (VBD Did) (NP-SBJ (DT the) (NN cook)) (VP (VB sleep)) (. ?)) )""", ["sleep cook - - -"]),
    "a passive with its agent": (
        """( (S (NP-SBJ-1 (DT The) (NN soup)) (VP (VBD was) (VP (VBN eaten) (NP (-NONE- *-1))
        (PP (IN by) (NP-LGS (DT the) (NNS guests))) (PP-LOC (IN in) (NP (DT the) (NN hall)))))) )""",
        ["eat guests soup hall in"],
    ),
    "a passive with a predicate": (
        """( (S (NP-SBJ-1 (NNP Bob)) (VP (VBD was) (VP (VBN named) (S (NP-SBJ (-NONE- *-1))
        (NP-PRD (DT the) (NN cook)))))) )""",
        ["name - Bob - -"],
    ),
    "a perfect is no passive": ("( (S (NP-SBJ (NNP Bob)) (VP (VBZ has) (VP (VBN left)))) )", ["leave Bob - - -"]),
    "a controlled verb": (
        """( (S (NP-SBJ-1 (NNP Bob)) (VP (VBZ wants) (S (NP-SBJ (-NONE- *-1)) (VP (TO to)
        (VP (VB sell) (NP (DT the) (NN boat))))))) )""",
        ["want Bob - - -", "sell Bob boat - -"],
    ),
    "a controlled passive": (
        """( (S (NP-SBJ-1 (NNP Bob)) (VP (VBZ wants) (S (NP-SBJ-2 (-NONE- *-1)) (VP (TO to)
        (VP (VB be) (VP (VBN seen) (NP (-NONE- *-2)))))))) )""",
        ["want Bob - - -", "see - Bob - -"],
    ),
    "nobody in particular": (
        """( (S (S-NOM-SBJ (NP-SBJ (-NONE- *)) (VP (VBG Sailing))) (VP (VBZ costs) (NP (NN money)))) )""",
        ["sail - - - -", "cost - money - -"],
    ),
    "a relative clause without its subject": (
        """( (S (NP-SBJ (NP (DT the) (NNS men)) (SBAR (WHNP-1 (WP who)) (S (NP-SBJ (-NONE- *T*-1))
        (VP (VBP build) (NP (NNS boats)))))) (VP (VBP sing))) )""",
        ["build men boats - -", "sing men - - -"],
    ),
    "a relative clause without its object, and without a pronoun": (
        """( (NP (NP (DT a) (NN boat)) (SBAR (WHNP-2 (-NONE- 0)) (S (NP-SBJ (PRP he)) (VP (VBD bought)
        (NP (-NONE- *T*-2)) (PP-CLR (IN from) (NP (NNP Ann))))))) )""",
        ["buy he boat Ann from"],
    ),
    "a relative pronoun with a preposition": (
        """( (NP (NP (DT the) (NN town)) (SBAR (WHPP-3 (IN in) (WHNP (WDT which))) (S (NP-SBJ (PRP they))
        (VP (VBP live) (PP-LOC (-NONE- *T*-3)))))) )""",
        ["live they - town in"],
    ),
    "a question word with a noun": (
        """( (SBARQ (WHNP-1 (WDT Which) (NN boat)) (SQ (VBD did) (NP-SBJ (PRP he)) (VP (VB buy)
        (NP (-NONE- *T*-1))))) )""",
        ["buy he boat - -"],
    ),
    "participles that modify a noun": (
        """( (NP (NP (DT a) (NN boat)) (VP (VBN built) (NP (-NONE- *)) (PP (IN by) (NP-LGS (NNP Ann))))
        (VP (VBG lying) (PP-LOC (IN in) (NP (DT the) (NN port))))) )""",
        ["build Ann boat - -", "lie boat - port in"],
    ),
    "a reduced relative clause": (
        """( (NP (NP (NN soup)) (RRC (ADVP-TMP (RB once)) (VP (VBN eaten) (NP (-NONE- *))))) )""",
        ["eat - soup - -"],
    ),
    "coordination shares subject, passive and object": (
        """( (S (NP-SBJ-1 (DT The) (NN boat)) (VP (VBD was) (VP (VP (VBN sold) (NP (-NONE- *-1))) (CC and)
        (VP (VBN painted) (NP (-NONE- *-1)))))) )""",
        ["sell - boat - -", "paint - boat - -"],
    ),
    "flat coordination": (
        "( (S (NP-SBJ (PRP They)) (VP (VBP buy) (CC and) (VBP sell) (NP (NNS boats)))) )",
        ["buy They boats - -", "sell They boats - -"],
    ),
    "an object that two verbs share": (
        """( (S (NP-SBJ (PRP They)) (VP (VP (VBP buy) (NP (-NONE- *RNR*-1))) (CC and) (VP (VBP sell)
        (NP (-NONE- *RNR*-1))) (NP-1 (JJ old) (NNS boats)))) )""",
        ["buy They boats - -", "sell They boats - -"],
    ),
    "expletives": (
        """( (S (NP-SBJ (NP (PRP It)) (S (-NONE- *EXP*-1))) (VP (VBZ helps) (S-1 (NP-SBJ (-NONE- *))
        (VP (TO to) (VP (VB wait)))))) )""",
        ["help - - - -", "wait - - - -"],
    ),
    "there is": (
        "( (S (NP-SBJ (EX There)) (VP (VBZ is) (NP-PRD (NN soup)) (PP-LOC (IN on) (NP (DT the) (NN table))))) )",
        ["be - soup table on"],
    ),
    "a topic is no object": (
        """( (S (S-TPC-1 (NP-SBJ (NN Soup)) (VP (VBZ helps))) (, ,) (NP-SBJ (NNP Ann)) (VP (VBD said)
        (SBAR (-NONE- 0) (S (-NONE- *T*-1)))) (. .)) )""",
        ["help Soup - - -", "say Ann - - -"],
    ),
    "heads: of a phrase with its own phrases, of coordination, of an amount, of two prepositions": (
        """( (S (NP-SBJ (NP (DT The) (NN price)) (PP (IN of) (NP (NN tea)))) (VP (VBD brought) (NP (NP (NN joy))
        (CC and) (NP (NN grief))) (PP-CLR (IN out) (PP (IN of) (NP (QP ($ $) (CD 5) (CD million))
        (-NONE- *U*)))))) )""",
        ["bring price joy $ of"],
    ),
    "no verbs: adjectives, and participles before nouns": (
        """( (S (NP-SBJ (DT the) (VBN broken) (NN boat)) (VP (VBZ seems) (ADJP-PRD (VBN lost)))) )""",
        ["seem boat - - -"],
    ),
    "an elided verb": ("""( (S (NP-SBJ (PRP He)) (VP (VBZ does) (RB n't) (VP (-NONE- *?*)))) )""", []),
}


@pytest.mark.parametrize(("text", "expected"), SENTENCES.values(), ids=SENTENCES)
def test_events_of_annotated_sentences(read_tree, text, expected):
    found = []
    for event in events(read_tree(text)):
        verb = "_".join([verb_lemma(event.verb), *([event.particle.word] if event.particle else [])])
        found.append(" ".join([verb, *(leaf.word if leaf else "-" for leaf in event[2:])]))
    assert found == expected


WORDS = [
    *("(NN soup)", "(NNP Ann)", "(VBD sold)", "(VBN seen)", "(VBZ is)", "(VBZ has)", "(PRP it)", "(WDT that)"),
    *("(IN by)", "(TO to)", "(RP up)", "(CC and)", "(, ,)", "(-NONE- *-1)", "(-NONE- *T*-2)", "(-NONE- *)"),
]
LABELS = [
    *("S", "SQ", "SBAR", "VP", "UCP", "RRC", "PRT", "PP", "PP-CLR"),
    *("NP", "NP-1", "NP-SBJ-1", "NP-TMP-2", "NP-LGS", "WHNP-2"),
]
TREES = st.recursive(
    st.sampled_from(WORDS),
    lambda parts: st.builds(
        lambda label, children: f"({label} {' '.join(children)})",
        st.sampled_from(LABELS),
        st.lists(parts, min_size=1, max_size=4),
    ),
    max_leaves=25,
)


@settings(max_examples=50)
@given(TREES)
def test_events_of_random_trees_have_a_verb_and_only_words_of_the_tree(read_tree, text):
    tree = read_tree(text)
    words = list(tree.words())
    found = list(events(tree))
    assert [event.verb for event in found] == [word for word in words if word in {event.verb for event in found}]
    for event in found:
        assert event.verb.category in VERB_TAGS
        assert all(leaf in words for leaf in event if leaf is not None)
        assert (event.preposition is None) == (event.prepositional_object is None)


def test_a_label_has_a_category_function_tags_and_an_index(read_tree):
    node = read_tree("(S (NP-SBJ-12 (-NONE- *-1)) (PRT|ADVP (RP up)) (NP=3 (-LRB- -LRB-)) (NP (PRP$ its)))")
    subject, particle, gapped, possessive = node.children
    assert (subject.category, subject.functions, subject.index) == ("NP", {"SBJ"}, "12")
    assert (particle.category, gapped.category, gapped.index) == ("PRT", "NP", None)
    assert gapped.children[0].category == "-LRB-" and possessive.children[0].category == "PRP$"
    assert subject.empty_element() == "*-1" and node.empty_element() is None


@pytest.mark.parametrize("text", ["(S the (NN cat))", "(S)", "((S (NN a)) (S (NN b)))"])
def test_other_bracket_formats_are_refused(read_tree, text):
    with pytest.raises(ValueError, match="bracket without a label|word without a tag"):
        read_tree(text)
