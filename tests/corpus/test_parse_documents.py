import pytest
from datatrove.data import Document

from onlstm_hf import build_word_tokenizer
from onlstm_hf.corpus import parse_documents
from onlstm_hf.corpus.parse_documents import ParseDocuments, ParseOptions
from onlstm_hf.scoring.sentences import score_sentences
from tests.helpers.command_line import WORDS

TEXTS = ["the cat sat\nthe old dog saw the cat\n", "", "it saw 2 dogs\n\n\n", "dogs"]
PLACES = [("0", 0), ("0", 1), ("1", 0), ("2", 0), ("3", 0)]
SENTENCES = ["the cat sat", "the old dog saw the cat", "", "it saw 2 dogs", "dogs"]


def rows(checkpoint, documents, **options):
    """Returns the rows of documents, which are strings or datatrove documents."""
    documents = [
        document if isinstance(document, Document) else Document(document, str(number))
        for number, document in enumerate(documents)
    ]
    step = ParseDocuments(checkpoint, ParseOptions(**options))
    return [document.metadata["row"] for document in step.run(documents)]


def test_each_line_of_a_document_becomes_a_row_with_its_position(checkpoint):
    table = rows(checkpoint, TEXTS)
    assert [(row["document"], row["position"]) for row in table] == PLACES
    assert [row["words"] for row in table] == [sentence.split() or None for sentence in SENTENCES]
    assert [row["reason"] for row in table] == [None, None, "no words", None, None]


@pytest.mark.parametrize("options", [{}, {"layer": 0}, {"branching_bias": "none"}])
def test_trees_and_scores_match_parse_and_score(checkpoint, model, tokenizer, options):
    table = [row for row in rows(checkpoint, TEXTS, distances=True, **options) if row["reason"] is None]
    sentences = [sentence for sentence in SENTENCES if sentence]
    trees = model.parse(sentences, tokenizer, **options)
    for row, sentence, tree in zip(table, sentences, trees, strict=True):
        record = tree.to_record(sentence)
        names = ("text", "words", "offsets", "unknown")
        assert [row[name] for name in names] == [record[name] for name in names]
        assert [span | {"text": sentence[span["start"] : span["end"]]} for span in row["spans"]] == record["spans"]
    for row, tree, score in zip(table, trees, score_sentences(model, tokenizer, sentences), strict=True):
        assert row["distances"] == pytest.approx(tree.distances, abs=1e-5)
        assert row["log_probability"] == pytest.approx(sum(score.log_probabilities), abs=1e-4)


def test_columns_that_are_not_requested_are_absent(checkpoint):
    (row,) = rows(checkpoint, ["the cat sat"], trees="brackets", log_probability=False)
    names = ("document", "position", "start", "text", "words", "offsets", "unknown", "brackets", "reason")
    assert tuple(row) == names
    assert row["brackets"].replace("(", "").replace(")", "") == "the cat sat"


def test_rows_do_not_depend_on_windows(checkpoint, monkeypatch):
    whole = rows(checkpoint, TEXTS, log_probability=False)
    monkeypatch.setattr(parse_documents, "SENTENCES_PER_WINDOW", 2)
    assert rows(checkpoint, TEXTS, log_probability=False) == whole
    monkeypatch.setattr(parse_documents, "CHARACTERS_PER_WINDOW", 1)
    assert rows(checkpoint, TEXTS, log_probability=False) == whole


def test_unparsable_sentences_have_a_row_with_a_reason(checkpoint):
    documents = ["the " * 8, "the " * 9, "x" * 161, "the c\0at"]
    documents += [Document("", "gone", metadata={"reason": "not JSON"}), " \u2003\n"]
    table = rows(checkpoint, documents, max_words=8)
    too_long = "more than 8 words"
    expected = [None, too_long, too_long, "NUL characters", "not JSON", "no words"]
    assert [row["reason"] for row in table] == expected
    values = {value for row in table[1:] for name, value in row.items() if name not in ("document", "position")}
    assert values == {None, *expected[1:]}


@pytest.mark.parametrize("log_probability", [True, False])
def test_punctuation_alone_has_no_words(model, tmp_path, log_probability):
    tokenizer = build_word_tokenizer(vocabulary=WORDS, drop_punctuation=True, pad_token="<eos>")
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path)
    step = ParseDocuments(str(tmp_path), ParseOptions(log_probability=log_probability))
    table = [document.metadata["row"] for document in step.run([Document("dogs\n...\nthe cat", "0")])]
    assert [row["words"] for row in table] == [["dogs"], None, ["the", "cat"]]
    assert [row["reason"] for row in table] == [None, "no words", None]
    assert [step.stats.stats[reason].total for reason in ("parsed", "no words")] == [2, 1]


def test_a_document_of_a_million_words_is_read_in_windows(checkpoint, monkeypatch):
    sizes = []
    windows = parse_documents.bounded_windows

    def first_of_each(*arguments):
        for window in windows(*arguments):
            sizes.append(len(window))
            yield window[:1]

    monkeypatch.setattr(parse_documents, "bounded_windows", first_of_each)
    rows(checkpoint, ["the old cat sat\n" * 250_000], log_probability=False)
    assert sum(sizes) == 250_000
    assert max(sizes) == parse_documents.SENTENCES_PER_WINDOW


def test_documents_are_split_into_sentences_by_the_rules_of_a_language(checkpoint):
    text = " The old cat sat.  It saw Mr. Dog!\n\nDogs "
    table = rows(checkpoint, [text], language="en")
    assert all(text[row["start"] :].startswith(row["text"]) for row in table)
    joined = ["Theoldcatsat.", "ItsawMr.Dog!", "Dogs"]
    assert [(row["position"], "".join(row["words"])) for row in table] == list(enumerate(joined))
