"""Gold trees and sentences in the input field of the page."""

import re
from dataclasses import replace

import pytest

from onlstm_hf.trees.treebank import AS_WRITTEN, GoldTree, Preprocessing
from tests.helpers.page_scripts import error_of_script, run_script

BRACKETS = ("-LRB-", "-RRB-", "-LCB-", "-RCB-")


# A text, its words, its constituents without the whole sentence, and its labels.
CASES = [
    ("(S (NP the cat) (VP sat))", "the cat sat", {(0, 2)}, {"S", "NP", "VP"}),
    ("[S [NP the cat] [VP sat]]", "the cat sat", {(0, 2)}, {"S", "NP", "VP"}),
    ("[S [NP [DT the] [NN cat]] [VP sat]]", "the cat sat", {(0, 2)}, {"S", "NP", "DT", "NN", "VP"}),
    ("(s (np (dt the) (nn cat)) (vbd sat))", "the cat sat", {(0, 2)}, {"s", "np", "dt", "nn", "vbd"}),
    ("( (S (NP-SBJ=2 The old cats) (VP sat) (. .)) )", "The old cats sat", {(0, 3)}, {"S", "NP", "VP"}),
    ("[IP [DP the cat] [I' [VP sat down]]]", "the cat sat down", {(0, 2), (2, 4)}, {"IP", "DP", "I'", "VP"}),
    ("[IP [DP the cat] [I' [VP sat]]]", "the cat sat", {(0, 2)}, {"IP", "DP", "I'", "VP"}),
    ("[S [AdvP very often] [vP cats sit]]", "very often cats sit", {(0, 2), (2, 4)}, {"S", "AdvP", "vP"}),
    ("[S [NP_1 the cat] [VP sat down]]", "the cat sat down", {(0, 2), (2, 4)}, {"S", "NP_1", "VP"}),
    ("[s [np the cat] [vp sat down]]", "the cat sat down", {(0, 2), (2, 4)}, {"s", "np", "vp"}),
    ("[.S [.NP the cat ] [.VP sat down ] ]", "the cat sat down", {(0, 2), (2, 4)}, {"S", "NP", "VP"}),
    (r"\Tree [.{} {the} [.{} {old} {5\%} ] ]", "the old 5%", {(1, 3)}, set()),
    ("[VP [V sat] [PP on it]]", "sat on it", {(1, 3)}, {"VP", "V", "PP"}),
    ("[VP [V] [NP the cat]]", "V the cat", {(1, 3)}, {"VP", "NP"}),
    ("((the cat) sat)", "the cat sat", {(0, 2)}, set()),
    ("[the [old cat]]", "the old cat", {(1, 3)}, set()),
    ("(the (old cat))", "the old cat", {(1, 3)}, set()),
    ("(I (saw it))", "I saw it", {(1, 3)}, set()),
    ("(A (man (saw it)))", "A man saw it", {(1, 4), (2, 4)}, set()),
    ("[[[the] [old]] [cat]]", "the old cat", {(0, 2)}, set()),
    ("(S (NP (-NONE- *T*-1)) (VP (VBD said) (NP (PRP it))))", "said it", set(), {"S", "NP", "VP", "VBD", "PRP"}),
    ("(S (NP (NN -LRB-x-RRB-) (NN 1\\/2)) (VP (VBD fell)))", "(x) 1/2 fell", {(0, 2)}, {"S", "NP", "NN", "VP", "VBD"}),
]


@pytest.fixture(scope="module")
def trees():
    """The trees that the page reads from the texts of `CASES`, by text."""
    found = run_script(
        """return data.map((text) => {
             const tree = brackets.readTree(text);
             return { ...tree, labels: [...tree.labels], isTree: brackets.looksLikeTree(text) };
           })""",
        [text for text, *_ in CASES],
        brackets="trees/brackets.js",
    )
    return dict(zip([text for text, *_ in CASES], found, strict=True))


def parts(text, language="en"):
    found = run_script("return sentences.partsOf(...data)", [text, language], sentences="trees/sentences.js")
    return [(part["text"], part["isTree"]) for part in found["parts"]], found["numSplit"]


@pytest.mark.parametrize("text, words, inner, labels", CASES, ids=[text for text, *_ in CASES])
def test_brackets_may_be_round_or_square_with_or_without_labels(trees, text, words, inner, labels):
    tree = trees[text]
    assert tree["isTree"] and tree["words"] == words.split()
    assert set(map(tuple, tree["spans"])) == inner | {(0, len(tree["words"]))}
    assert set(tree["named"]) == labels


def test_labels_belong_to_their_constituents(trees):
    labels = dict(trees["[IP [DP the cat] [I' [VP sat down]]]"]["labels"])
    assert labels == {"0-4": ["IP"], "0-2": ["DP"], "2-4": ["I'", "VP"]}


def test_treebank_trees_are_read_as_in_the_package(shared_dir):
    text = (shared_dir / "data/wsj_sample/wsj_0001-0199.mrg").read_text(encoding="utf-8")
    starts = [match.start() for match in re.finditer(r"^\(", text, re.MULTILINE)]
    trees = [" ".join(text[start:end].split()) for start, end in zip(starts, [*starts[1:], None], strict=True)]
    assert len(trees) == 3914
    found = run_script(
        "return data.map((text) => { const { words, spans } = brackets.readTree(text); return { words, spans }; })",
        trees,
        brackets="trees/brackets.js",
    )
    protocol = replace(AS_WRITTEN, dropped_tags=Preprocessing().dropped_tags, function_tag_separators="-=")
    for text, tree in zip(trees, found, strict=True):
        gold = GoldTree.from_bracket(text, protocol)
        written = [re.sub("-[LR][RC]B-", lambda side: "(){}"[BRACKETS.index(side[0])], word) for word in gold.words]
        assert [word.replace("\\/", "/") for word in written] == tree["words"]
        assert [tuple(span) for span in tree["spans"]] == gold.spans()


@pytest.mark.parametrize(
    "text, message",
    [("(a ))", "too many"), ("(a () b)", "nothing between"), ("((a b)", "never closed"), ("(a b) (c d)", "2 trees")],
)
def test_malformed_brackets_are_reported(text, message):
    assert message in error_of_script("brackets.readTree(data)", text, brackets="trees/brackets.js")


def test_the_word_no_ends_a_sentence_unless_a_number_follows():
    assert parts("He said no. They left.") == ([("He said no.", False), ("They left.", False)], 1)
    assert parts("See no. 5 of the list.") == ([("See no. 5 of the list.", False)], 0)


def test_a_text_has_one_sentence_per_line_and_multiline_trees():
    text = "\n the cat sat \n\n(S (NP the cat)\n   (VP sat))\n(old) dogs\r\n(a b)\n"
    expected = [("the cat sat", False), ("(S (NP the cat) (VP sat))", True), ("(old) dogs", False), ("(a b)", True)]
    assert parts(text) == (expected, 0)
    unclosed = "the cat\n(S (NP the cat)\nit sat"
    assert "never closed" in error_of_script("sentences.partsOf(data)", unclosed, sentences="trees/sentences.js")


def test_sentences_with_brackets_in_them_stay_sentences():
    for text in ("[Applause] the cat sat", "the cat [sat]", "[the] cat (sat)", "The cat (old) sat", "(old) cat sat"):
        assert parts(text) == ([(text, False)], 0)


def test_a_pasted_paragraph_is_split_into_sentences():
    text = "Mr. Smith bought the bank. It was cheap! Did he know? The U.S. market fell on Jan. 2."
    split = ["Mr. Smith bought the bank.", "It was cheap!", "Did he know?", "The U.S. market fell on Jan. 2."]
    assert parts(text) == ([(sentence, False) for sentence in split], 1)


def test_a_sentence_in_brackets_is_a_sentence_and_has_no_gold_tree():
    model = {"type": "WordLevel", "vocab": {"<unk>": 0}, "unk_token": "<unk>"}
    splitter = {"type": "WhitespaceSplit"}
    tokenizer = {"normalizer": None, "pre_tokenizer": splitter, "added_tokens": [], "model": model}
    for text in ("(the cat sat)", "[S the cat sat]", "(I think so)"):
        found = run_script(
            """const own = new tokenizer.Tokenizer(data[1]);
               const { gold, words } = analysis.encodePart({ text: data[0], isTree: true }, own);
               return { gold, words }""",
            [text, tokenizer],
            analysis="model/analysis.js",
            tokenizer="model/tokenizer.js",
        )
        assert found["gold"] is None and len(found["words"]) == 3
