import json

import pytest

from onlstm_hf.cli.main import main
from onlstm_hf.scoring.sentences import score_sentences
from tests.helpers.command_line import TEXT


def test_score_prints_a_row_a_sentence_and_the_total(run, checkpoint, model, tokenizer):
    header, *rows, total = run("score", *TEXT, "--model", checkpoint, "--batch-size", 3).splitlines()
    scores = [score.total() for score in score_sentences(model, tokenizer, TEXT)]
    for row, text, score in zip(rows, TEXT, scores, strict=True):
        log_probability, num_tokens, perplexity, words = row.split(maxsplit=3)
        assert float(log_probability) == pytest.approx(score.total_log_likelihood, abs=1e-3)
        assert int(num_tokens) == len(text.split()) + 1
        assert float(perplexity) == pytest.approx(score.perplexity, rel=1e-3, abs=0.01)
        assert words == text
    assert total.endswith("total (4 sentences)")
    assert float(total.split()[0]) == pytest.approx(sum(score.total_log_likelihood for score in scores), abs=1e-3)
    assert int(total.split()[1]) == sum(score.num_tokens for score in scores)


def test_score_as_json_lines_has_every_token(run, checkpoint):
    lines = run("score", *TEXT, "--model", checkpoint, "--format", "jsonl").splitlines()
    *rows, last = [json.loads(line) for line in lines]
    assert [row["text"] for row in rows] == TEXT
    assert rows[1]["tokens"] == ["it", "saw", "N", "dogs", "<eos>"]
    for row in rows:
        assert row["log_probability"] == pytest.approx(sum(row["log_probabilities"]))
        assert row["num_tokens"] == len(row["log_probabilities"])
    assert last["total"]["num_sentences"] == 4
    assert last["total"]["log_probability"] == pytest.approx(sum(row["log_probability"] for row in rows))


def test_an_empty_text_has_no_table(checkpoint, capsys):
    assert main(["score", "", "--model", str(checkpoint)]) == 1
    assert capsys.readouterr().out == ""


def test_a_model_that_induces_no_trees_scores_sentences(run, baseline):
    assert "the cat sat" in run("score", "--model", baseline, "the cat sat")
