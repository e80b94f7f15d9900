from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from eval import evaluate_word_order
from eval.evaluate_word_order import shuffled_pairs
from onlstm_hf.scoring.sentences import score_sentences
from onlstm_hf.utils.checkpoints import load_checkpoint

WORDS = ["the", "cat", "sat", "on", "mat"]


@given(st.lists(st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join), max_size=8), st.integers(0, 3))
def test_a_pair_has_the_same_words_in_another_order(sentences, seed):
    pairs = shuffled_pairs(sentences, seed)
    assert [written for written, _ in pairs] == [text for text in sentences if len(set(text.split())) > 1]
    for written, shuffled in pairs:
        assert written != shuffled and Counter(written.split()) == Counter(shuffled.split())
    assert pairs == shuffled_pairs(sentences, seed)


def test_higher_probability_is_correct_and_unknown_words_give_ties(run, checkpoint, tmp_path):
    lines = ["the cat sat on the mat", "the cat sat", "zebra bird", "cat", "cat cat"]
    (tmp_path / "text.txt").write_text("\n".join(lines))
    results, printed = run(evaluate_word_order, checkpoint, "--files", tmp_path / "text.txt")
    model, tokenizer = load_checkpoint(str(checkpoint))
    pairs = shuffled_pairs(lines, seed=0)
    scores = [[sum(score.log_probabilities) for score in score_sentences(model, tokenizer, pair)] for pair in pairs]
    (row,) = results["models"]
    assert results["num_sentences"] == len(pairs) == 3
    assert row["accuracy"] == sum(written > shuffled for written, shuffled in scores) / 3
    assert row["num_ties"] == 1  # neither word is known
    assert f"{100 * row['accuracy']:.1f}" in printed


def test_a_text_without_two_different_words_is_refused(refusal, checkpoint, tmp_path):
    (tmp_path / "text.txt").write_text("cat\n")
    error = refusal(evaluate_word_order, checkpoint, "--files", tmp_path / "text.txt")
    assert "no sentence of the text has two different words" in error
