import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onlstm_hf.scoring.parsing_scores import score_parses
from onlstm_hf.trees.induced_tree import InducedTree
from onlstm_hf.trees.treebank import (
    AS_WRITTEN,
    PRESETS,
    GoldTree,
    Preprocessing,
    gold_trees_from_brackets,
    preprocessing_of,
    read_treebank,
)
from tests.helpers.random_trees import drawn_trees
from tests.helpers.requirements import library

COST = """
( (S (NP-SBJ-1 (DT The) (NN plan) )
     (VP (VBZ costs)
         (NP=2 (QP ($ $) (CD 1.5) (CD million) ) (-NONE- *U*) )
         (S (NP-SBJ (-NONE- *-1) ) (VP (TO to) (VP (VB run) ))) )
     (. .) ))
"""
COST_TREE = GoldTree(
    ("the", "plan", "costs", "N.N", "million", "to", "run"),
    (("S", 0, 7), ("NP", 0, 2), ("VP", 2, 7), ("NP", 3, 5), ("QP", 3, 5), ("S", 5, 7), ("VP", 5, 7)),
)


def test_default_is_the_protocol_of_the_papers():
    assert GoldTree.from_bracket(COST) == COST_TREE


def test_spans_are_unique_and_match_the_nested_form_with_the_whole_sentence():
    tree = GoldTree.from_bracket("( (NP (DT a) (NN cat)) (VP (VBZ sits)) )")
    assert tree.constituents == (("NP", 0, 2),) and tree.spans() == [(0, 3), (0, 2)]
    assert COST_TREE.spans() == [(0, 7), (0, 2), (2, 7), (3, 5), (5, 7)]
    assert COST_TREE.to_nested() == [["the", "plan"], ["costs", ["N.N", "million"], ["to", "run"]]]


def test_tags_and_labels_of_another_treebank():
    chinese = "( (IP-HLN (NP-PN-SBJ (NR 上海) (NR 浦东)) (VP (VV 开发)) (PU 。)) )"
    tree = GoldTree.from_bracket(chinese, Preprocessing(dropped_tags=frozenset({"PU", "-NONE-"})))
    assert tree == GoldTree(("上海", "浦东", "开发"), (("IP", 0, 3), ("NP", 0, 2)))
    french = "(SENT (NP##nbr=s## (D le) (N chat)) (V dort))"
    preprocessing = Preprocessing(function_tag_separators="#")
    assert GoldTree.from_bracket(french, preprocessing).constituents[1] == ("NP", 0, 2)


@pytest.mark.parametrize(
    ("digits", "expected"),
    [
        ("runs", r"N N.N N,N N\/N N-year mid-Ns"),
        ("numbers", "N N N N 10-year mid-1980s"),
        ("keep", r"1990 1.5 2,700 3\/8 10-year mid-1980s"),
    ],
)
def test_digit_rules(digits, expected):
    words = ["1990", "1.5", "2,700", "3\\/8", "10-year", "mid-1980s"]
    assert list(map(Preprocessing(digits=digits).word, words)) == expected.split()


def test_sentences_of_no_and_one_word():
    assert GoldTree.from_bracket("( (NP (-NONE- *)) )") == GoldTree((), ())
    one = GoldTree.from_bracket("( (INTJ (UH Yes) (. .)) )")
    assert one == GoldTree(("yes",), ())
    assert one.spans() == [] and one.to_nested() == "yes" and one.to_bracket() == "(TOP yes)"
    assert GoldTree.from_bracket("(UH Yes)").words == ("yes",)


@st.composite
def gold_trees(draw):
    """Draws trees with labels for some constituents, also with unary brackets over several words."""
    words = draw(st.lists(st.sampled_from(["a", "N", "über", "-LRB-", "1\\/2", "🌳"]), max_size=9))
    labels = st.lists(st.sampled_from(["NP", "VP-PRD", "S=2"]), max_size=2)
    spans = draw(drawn_trees(words)).spans()
    return GoldTree(tuple(words), tuple((label, *span) for span in spans for label in draw(labels)))


@given(gold_trees())
def test_bracket_form_is_read_back_without_loss(tree):
    assert GoldTree.from_bracket(tree.to_bracket(), AS_WRITTEN) == tree


def test_words_with_brackets_or_white_space_are_escaped():
    tree = GoldTree(("two words", "(", "\\u0041"), (("NP", 0, 2),))
    assert tree.to_bracket() == r"(TOP (NP two\u0020words \u0028) \u005cu0041)"
    assert GoldTree.from_bracket(tree.to_bracket(), AS_WRITTEN) == tree
    with pytest.raises(ValueError, match="an empty word"):
        GoldTree(("",), ()).to_bracket()


def test_constituents_are_sorted_by_opening_bracket():
    tree = GoldTree(tuple("abcd"), (("NP", 1, 3), ("S", 0, 4), ("VP", 1, 4), ("X", 1, 3)))
    assert tree.constituents == (("S", 0, 4), ("VP", 1, 4), ("NP", 1, 3), ("X", 1, 3))


WRAPPERS = ["%s", "( %s )", "(TOP %s)", "(root %s)", "(ROOT (TOP %s))", "( (ROOT %s) )", "(Top (. .) %s)"]


@pytest.mark.parametrize("outer", WRAPPERS)
def test_root_brackets_are_no_constituents_and_have_no_recall(outer):
    sentence = "(S (NP (DT a) (NN cat)) (VP (VBZ sits)))"
    tree = GoldTree.from_bracket(outer % sentence)
    assert tree.constituents == (("S", 0, 3), ("NP", 0, 2))
    assert score_parses([tree], [tree], num_resamples=0).label_recall.keys() == {"NP"}
    inner = GoldTree.from_bracket("(S (root (DT a) (NN cat)) (VP (VBZ sits)))")
    assert inner.constituents == (("S", 0, 3), ("root", 0, 2))


@pytest.mark.parametrize(
    ("text", "label", "column"),
    [
        ("(PRP (Dia))", "Dia", 6),
        ("(S (NP (DT the) (NN )) (VP (V sat)))", "NN", 17),
        ("(NN)", "NN", 1),
        ("(S (X a) (ROOT))", "ROOT", 10),
    ],
)
def test_a_label_without_a_word_is_refused_with_its_position(text, label, column, tmp_path):
    with pytest.raises(ValueError, match=rf"'{label}' has no word.* at line 1, column {column}"):
        GoldTree.from_bracket(text)
    path = tmp_path / "a.mrg"
    path.write_text(f"(S (X a))\n\n {text}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=rf"a.mrg: .*'{label}' has no word.* at line 3, column {column + 1}"):
        read_treebank(path)


@pytest.mark.parametrize("text", ["(the (old cat))", "(He left)", "((the cat) sat)", "(the old cat)", "(我 (爱 你))"])
def test_unlabelled_trees_are_refused_instead_of_losing_words(text, tmp_path):
    (tmp_path / "trees.txt").write_text(f"(I left)\n{text}\n", encoding="utf-8")
    for read in (lambda: GoldTree.from_bracket(text), lambda: read_treebank(tmp_path / "trees.txt")):
        with pytest.raises(ValueError, match="look unlabelled.*--preset unlabelled"):
            read()


def test_lower_case_labels_are_accepted_if_brackets_prove_them(tmp_path):
    for text in ("(np (det the) (n cat))", "( (np (n cat)) )", "(top (np the cat) sat)", "(AdvP the cat)"):
        assert GoldTree.from_bracket(text).words[-2:] in (("the", "cat"), ("cat",), ("cat", "sat"))
    (tmp_path / "a.mrg").write_text("(np (n cat))\n(s (np the cat) (v sat))")
    assert [tree.words for tree in read_treebank(tmp_path)] == [("cat",), ("the", "cat", "sat")]


def test_only_ascii_white_space_separates_words():
    words = ("New\xa0York", "\u3000", "a\u2028b", "c\x85", "d\x1ce")
    leaves = " ".join(f"(NN {word})" for word in words)
    tree = GoldTree.from_bracket(f"(S\t(NP\r\n\f{leaves})\v(V ran))", AS_WRITTEN)
    assert tree == GoldTree((*words, "ran"), (("S", 0, 6), ("NP", 0, 5)))
    assert GoldTree.from_bracket(tree.to_bracket(), AS_WRITTEN) == tree
    assert InducedTree.from_bracket(f"(S (NP {leaves}) (V ran))") == InducedTree.from_nested([list(words), "ran"])


def test_numbered_leaves_of_discontinuous_trees_are_refused():
    text = "(S (VP (VB 0=is) (JJ 2=happy)) (NP (PRP 1=he)) (. 3=.))"
    for read in (GoldTree.from_bracket, InducedTree.from_bracket):
        with pytest.raises(ValueError, match="'0=is'.*gaps.* at line 1, column 1"):
            read(text)
    with pytest.raises(ValueError, match="'0=is'"):
        InducedTree.from_bracket("((0=is 2=happy) 1=he)")
    assert GoldTree.from_bracket("(S (X 1=2) (X holds))").words == ("N=N", "holds")


def test_nltk_trees_are_converted_node_by_node():
    nltk = library("nltk")
    leaves = ["New York", "(", "-LRB-", "a\xa0b", "\\u0041"]
    noun_phrase = nltk.Tree("NP", [nltk.Tree("NN", [leaf]) for leaf in leaves])
    verb_phrase = nltk.Tree("VP", [nltk.Tree("V", ["ran"])])
    tree = nltk.Tree("ROOT", [nltk.Tree("S", [noun_phrase, verb_phrase, nltk.Tree(".", ["."])])])
    gold = GoldTree.from_nltk(tree, preprocessing_of("ptb", lowercase=False, digits="keep"))
    assert gold == GoldTree((*leaves, "ran"), (("S", 0, 6), ("NP", 0, 5)))
    assert GoldTree.from_nltk(nltk.Tree("np", ["the", "cat"])).words == ("the", "cat")
    with pytest.raises(ValueError, match="'NN' has no word"):
        GoldTree.from_nltk(nltk.Tree("S", [nltk.Tree("NN", []), nltk.Tree("V", ["ran"])]))
    for bad in (nltk.Tree("", ["the", "cat"]), nltk.Tree("S", ["", "cat"]), nltk.Tree("S", [1, "cat"])):
        with pytest.raises(ValueError, match="word"):
            GoldTree.from_nltk(bad)
    deep = tree
    for _ in range(5000):
        deep = nltk.Tree("X", [nltk.Tree("V", ["so"]), deep])
    assert len(GoldTree.from_nltk(deep).words) == 5006


def test_impossible_constituents_are_refused():
    for spans, message in [
        ([(1, 2)], "at least two words"),
        ([(0, 4)], r"\(0, 4\) is not a span"),
        ([(-1, 2)], r"\(-1, 2\) is not a span"),
        ([(1, 3), (0, 2)], r"\(0, 2\) and \(1, 3\) cross"),
    ]:
        with pytest.raises(ValueError, match=message):
            GoldTree(("a", "b", "c"), tuple(("NP", *span) for span in spans))


def test_ten_thousand_levels():
    depth = 10_000
    tree = GoldTree.from_bracket("(S (X w) " * depth + "(S (X w) (X w))" + ")" * depth)
    assert len(tree.words) == depth + 2
    assert len(tree.spans()) == depth + 1
    assert GoldTree.from_bracket(tree.to_bracket(), AS_WRITTEN) == tree


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(S (NP a) ", "gold tree 1: malformed brackets.*line 1"),
        ("(S (X a)) (S (X b))", "gold tree 1: expected one bracketed tree, got 2"),
        (" ", "gold tree 1: expected one bracketed tree, got 0"),
        ("(((the cat) sat) down)", "gold tree 1: .*gold trees need labels.*--preset unlabelled"),
    ],
)
def test_errors_name_the_gold_string(text, message):
    with pytest.raises(ValueError, match=message):
        gold_trees_from_brackets(["(S (X a))", text])
    assert gold_trees_from_brackets([COST, "(X a)"]) == [COST_TREE, GoldTree(("a",), ())]


def test_reads_compressed_files_and_notices_damage(tmp_path):
    (tmp_path / "a.MRG.GZ").write_bytes(gzip.compress(COST.encode()))
    assert read_treebank(tmp_path) == read_treebank(tmp_path / "a.MRG.GZ") == [COST_TREE]
    (tmp_path / "b.mrg.gz").write_bytes(gzip.compress(COST.encode())[:-9])
    with pytest.raises(ValueError, match="b.mrg.gz: the file cannot be decompressed"):
        read_treebank(tmp_path)


def test_reads_files_folders_and_several_paths_in_order(tmp_path):
    first, second, upper = tmp_path / "a.mrg", tmp_path / "b" / "c.mrg", tmp_path / "D.MRG"
    second.parent.mkdir()
    first.write_text("( (S (X one)) )\n\n( (S (X two)) )", encoding="utf-8")
    second.write_text("\ufeff(S (X drei))", encoding="utf-8")
    upper.write_text("(S (X four))", encoding="utf-8")
    (tmp_path / "notes.txt").write_text("no tree", encoding="utf-8")
    expected = {first: ["one", "two"], second: ["drei"], upper: ["four"]}

    def words(paths):
        return [tree.words[0] for tree in read_treebank(paths)]

    assert words(first) == words(str(first)) == ["one", "two"]
    assert words(tmp_path) == [word for path in sorted(expected) for word in expected[path]]
    assert words([upper, str(second)]) == ["four", "drei"]
    assert [tree.words for tree in read_treebank(tmp_path / "b", Preprocessing(dropped_tags={"X"}))] == [()]


def test_errors_name_the_file_and_the_reason(tmp_path):
    with pytest.raises(FileNotFoundError, match="treebank not found: .*absent"):
        read_treebank(tmp_path / "absent.mrg")
    with pytest.raises(FileNotFoundError, match="no .mrg file in the folder"):
        read_treebank(tmp_path)
    path = tmp_path / "bad.mrg"
    for content, message in [
        (b" \n", "bad.mrg: the file is empty"),
        (b"(S (X a))\n(S (X b)\n", "bad.mrg: malformed brackets: .*line 2"),
        (b"(S (X a))\n(S (X b)))\n", "bad.mrg: malformed brackets: .*line 2"),
        (b"(S (X a))\n(S (X caf\xe9))\n", "bad.mrg: the file is not UTF-8: byte 0xe9 in line 2"),
        (b"\xef\xbb\xbf(S (X caf\xe9))\n", "bad.mrg: the file is not UTF-8: byte 0xe9 in line 1"),
    ]:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read_treebank(path)


@pytest.mark.parametrize(
    ("name", "words"),
    [("ptb", "ana , . N"), ("ctb", "Ana , 12"), ("universal", "ana . 12"), ("plain", "Ana , . 12 *T*")],
)
def test_presets_choose_the_words_and_survive_json(name, words):
    text = "(S (NP (NNP Ana)) (PUNCT ,) (VP (PU .) (CD 12) (-NONE- *T*)))"
    assert GoldTree.from_bracket(text, PRESETS[name]).words == tuple(words.split())
    plain = json.loads(json.dumps(PRESETS[name].to_dict()))
    assert preprocessing_of(None, plain) == preprocessing_of(name) == PRESETS[name]


def test_presets_and_overrides_replace_the_preprocessing_of_the_model():
    remembered = PRESETS["universal"].to_dict()
    assert preprocessing_of(None) == Preprocessing()
    assert preprocessing_of("ctb", remembered) == PRESETS["ctb"]
    chosen = preprocessing_of(None, remembered, dropped_tags=["Z"], lowercase=None)
    assert (chosen.dropped_tags, chosen.digits) == (frozenset({"Z"}), "keep")
    with pytest.raises(ValueError, match="unknown treebank preset 'xtb'; there are ptb, ctb, universal, plain"):
        preprocessing_of("xtb")
    with pytest.raises(ValueError, match="has no colour"):
        Preprocessing.from_dict({"colour": 1})


@pytest.mark.parametrize(
    "fields", [{"dropped_tags": "PUNCT"}, {"dropped_tags": [3]}, {"digits": "words"}, {"lowercase": "no"}]
)
def test_invalid_values_are_refused_instead_of_dropping_words(fields):
    with pytest.raises(ValueError, match=f"{next(iter(fields))} (must be|a string)"):
        preprocessing_of(None, fields)
