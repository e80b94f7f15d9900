"""Punctuation in the page's script, compared with the package."""

import json
import random
from dataclasses import replace

import pytest

from onlstm_hf import InducedTree, build_word_tokenizer, tree_from_distances
from onlstm_hf.text.word_alignment import mark_offsets
from onlstm_hf.trees.punctuation import CLOSING_MARKS, attach_marks, raise_at_marks
from tests.helpers.page_scripts import run_script, utf16

PAIRS = [(opening, closing) for opening, all_closing in CLOSING_MARKS.items() for closing in all_closing]
# More marks, attached to words or not. The last ones have more UTF-16 units than characters.
MARKS = [
    *(",", ".", "...", "--", " — ", ";", "?", "!?", "((", "))", " ( ", " ) ", "()", "·", "/", "**", "$", "+="),
    *(' "', '" ', '""', " '", "' ", "``", "''", " ``", "'' ", "\u200b", "\u00ad,", "\u00a0,", "\u3000", "\u001c"),
    *("\u0301", "🙂", "👩‍👩‍👧🇩🇪", "𝄞 ", " -LRB- ", " -rrb- ", "-LSB--RCB-", "\u200e", "\u200d", "\x07", ".\u2069"),
    "🏴\U000e0067\U000e0062\U000e007f",
]
SENTENCES = [
    '"Yes," he said (again).',
    "The company (which makes “cars”) said it doesn't “expect [sic] to report” a 'loss'.",
    "``We know,'' he said -- \"the firms' plan,\" (in '86) 'n' all ... ¿verdad? «Oui», „ja“, »nein«.",
    "🙂 a 👩‍👩‍👧 (b 𝄞 c) d",
]


def random_sentences(number):
    """Generates texts of words and marks, the positions of the words, and their distances."""
    generator = random.Random(0)
    for _ in range(number):
        num_words = generator.randrange(0, 9)
        opening, closing = generator.choice(PAIRS)
        marks = [*generator.sample(MARKS, 3), opening, closing, f" {opening}", f"{closing} "]
        text, offsets = "", []
        for index in range(num_words + 1):
            text += "".join(generator.choices(marks, k=generator.choice((0, 0, 1, 1, 2, 4))))
            text += " " * generator.randrange(2)
            if index < num_words:
                word = generator.choice(["a", "cat", "n't", "𝔘x", "don’t"])
                offsets.append((len(text), len(text) + len(word)))
                text += word
        yield text, offsets, [generator.random() for _ in offsets]


def typed_sentences():
    generator = random.Random(1)
    for text in SENTENCES:
        offsets, position = [], 0
        for piece in text.split():
            start = text.index(piece, position)
            position = start + len(piece)
            inside = [start + index for index, character in enumerate(piece) if character.isalnum()]
            offsets += [(inside[0], inside[-1] + 1)] if inside else []
        yield text, offsets, [generator.random() for _ in offsets]


CASES = [*typed_sentences(), *random_sentences(1500)]


def test_marks_are_found_and_raise_distances_as_in_the_package():
    found = run_script(
        """return data.map(([text, places, distances]) => {
             const marks = punctuation.marksOf(text, places);
             return [marks, punctuation.raiseAtMarks(distances, marks)];
           })""",
        [[text, utf16(text, offsets), distances] for text, offsets, distances in CASES],
        punctuation="trees/punctuation.js",
    )
    for (text, offsets, distances), (marks, raised) in zip(CASES, found, strict=True):
        expected = mark_offsets(text, offsets)
        assert marks == [utf16(text, gap) for gap in expected], text
        assert raised == pytest.approx(raise_at_marks(distances, list(map(bool, expected[:-1]))), rel=1e-12), text


@pytest.mark.parametrize("share", [1, 0.6])
def test_marks_are_attached_as_in_the_package(share):
    generator = random.Random(2)
    cases, expected = [], []
    for text, offsets, distances in CASES:
        words = [text[start:end] for start, end in offsets]
        spans = tree_from_distances(distances, words, generator.choice(("right", "none"))).spans()
        tree = InducedTree.from_spans(words, [span for span in spans if generator.random() < share])
        known = (False,) * len(words)
        tree = replace(tree, distances=tuple(distances), offsets=tuple(offsets), unknown=known)
        cases.append([text, utf16(text, offsets), {"words": words, "spans": tree.spans()}])
        expected.append(attach_marks(tree, text, mark_offsets(text, offsets)))
    found = run_script(
        """return data.map(([text, places, tree]) => {
             const attached = punctuation.attachMarks(tree, text, places, punctuation.marksOf(text, places));
             const none = punctuation.attachMarks(tree, text, places, [...places, null].map(() => []));
             return { ...attached, brackets: exports.toBrackets(attached), none };
           })""",
        cases,
        punctuation="trees/punctuation.js",
        exports="trees/exports.js",
    )
    for (_, _, given), tree, attached in zip(cases, expected, found, strict=True):
        assert attached["words"] == list(tree.words)
        assert [tuple(span) for span in attached["spans"]] == tree.spans(), tree
        assert [tree.words[leaf] for leaf in attached["wordAt"]] == given["words"]
        assert attached["none"]["words"] == given["words"]
        assert [tuple(span) for span in attached["none"]["spans"]] == given["spans"]
        assert attached["brackets"] == tree.to_bracket()


@pytest.fixture(scope="module")
def tokenizer():
    """The `tokenizer.json` of a tokenizer that drops punctuation."""
    text = ["we know he said again"]
    built = build_word_tokenizer(text, split="treebank", lowercase=True, drop_punctuation=True)
    return json.loads(built.backend_tokenizer.to_str())


@pytest.mark.parametrize(
    "text, marked",
    [
        (
            "(S (`` ``) (S (NP (PRP We)) (VP (VBP know) (-NONE- *))) (, ,) ('' '') (NP (PRP he)) "
            "(VP (VBD said) (-LRB- -LRB-) (ADVP (RB again)) (-RRB- -RRB-) ($ $)) (. .))",
            "`` We know , '' he said ( again ) .",
        ),
        ('[" [We know] , " [he [said -- again]] .]', '" We know , " he said -- again .'),
    ],
)
def test_a_gold_tree_keeps_marks_between_words(tokenizer, text, marked):
    encoded, leaves = run_script(
        """const own = new tokenizer.Tokenizer(data.tokenizer);
           const encoded = analysis.encodePart({ text: data.text, isTree: true }, own);
           const found = { ...encoded, surprisals: [1, 2, 3, 4, 5], distances: [[0.1, 0.2, 0.3, 0.4, 0.5]] };
           return [encoded, analysis.onLeaves({ analysis: found, tree: null, punctuation: "attach" })];""",
        {"text": text, "tokenizer": tokenizer},
        tokenizer="model/tokenizer.js",
        analysis="model/analysis.js",
    )
    assert [encoded["text"][start:end] for start, end in encoded["places"]] == encoded["words"]
    assert encoded["words"] == ["We", "know", "he", "said", "again"]
    assert leaves["words"] == leaves["gold"]["words"] == marked.split()
    is_word = [word.isalpha() for word in leaves["words"]]
    for name, values in (("surprisals", [1, 2, 3, 4, 5]), ("distances", [0.1, 0.2, 0.3, 0.4, 0.5])):
        remaining = iter(values)
        (spread,) = [leaves[name]] if name == "surprisals" else leaves[name]
        assert spread == [next(remaining) if word else None for word in is_word]


def test_a_cue_only_raises_the_distances_of_every_layer(tokenizer):
    layers = [[0.5, 0.1, 0.4, 0.2, 0.3], [0.1, 0.2, 0.3, 0.4, 0.9]]
    dropped, cued = run_script(
        """const own = new tokenizer.Tokenizer(data.tokenizer);
           const encoded = analysis.encodePart({ text: "We know, he said (again).", isTree: false }, own);
           const surprisals = [1, 2, 3, 4, 5, 6],
             expected = surprisals.map(() => []);
           const reading = { surprisals, expected, distances: data.layers, forgetGates: [] };
           const read = (punctuation) => analysis.analyze(encoded, { read: async () => reading }, punctuation);
           return [await read(), await read("cue")];""",
        {"layers": layers, "tokenizer": tokenizer},
        tokenizer="model/tokenizer.js",
        analysis="model/analysis.js",
    )
    assert dropped.pop("distances") == layers
    for distances, raised in zip(layers, cued.pop("distances"), strict=True):
        assert raised == pytest.approx(raise_at_marks(distances, [False, False, True, False, True]))
    assert cued == dropped
