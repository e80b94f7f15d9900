"""The table of what quantised weights give has a row for every quantiser, by the protocols of this project."""

import pytest
import torch

from eval import benchmark_quantization
from eval.speed.measurement import take_turns
from onlstm_hf import build_word_tokenizer
from onlstm_hf.scoring.parsing_scores import score_parses
from onlstm_hf.scoring.stream import encode_sentence_stream, stream_log_likelihood
from onlstm_hf.trees.treebank import read_treebank
from tests.helpers.requirements import library
from tests.helpers.tiny_models import KINDS

LINES = ["the cat sat on the mat", "the old dog saw the cat", "", "dogs sat"]
TREES = (
    "(S (NP (DT the) (JJ old) (NN cat)) (VP (VBD sat) (PP (IN on) (NP (DT the) (NN mat)))))\n(S (NNS dogs) (VBD sat))"
)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_quantiser_is_measured_beside_float32(tmp_path, monkeypatch, capsys):
    library("torchao", kind="quantizers")
    library("bitsandbytes", kind="quantizers")
    monkeypatch.setattr(benchmark_quantization, "SHORTEST_TURN", 0)
    checkpoint, text, treebank = (tmp_path / name for name in ("checkpoint", "text.txt", "trees.mrg"))
    tokenizer = build_word_tokenizer(LINES)
    model = KINDS["onlstm"].make(vocab_size=len(tokenizer), embedding_size=64, hidden_size=64, eos_token_id=0)
    for saved in (model, tokenizer):
        saved.save_pretrained(checkpoint)
    text.write_text("\n".join(LINES))
    treebank.write_text(TREES)

    arguments = [checkpoint, "--text", text, "--treebank", treebank, "--rounds", "1"]
    assert benchmark_quantization.main(list(map(str, arguments))) == 0
    machine, header, _, *lines = capsys.readouterr().out.splitlines()
    assert "threads: 1" in machine and header.count("time / float32") == 3
    rows = {name: figures for name, *figures in (line.strip("| ").split(" | ") for line in lines)}

    stream, gold = encode_sentence_stream(tokenizer, [line for line in LINES if line]), read_treebank(treebank)
    perplexity = stream_log_likelihood(model, stream, batch_size=10).perplexity
    f1 = score_parses(model.parse([list(tree.words) for tree in gold], tokenizer), gold).sentence_f1
    expected = [f"{perplexity:.3f}", f"{100 * f1:.2f}"]
    assert rows["float32"][:2] == expected and rows["float32"][3:] == ["1"] * 3
    quantised = {name: figures for name, figures in rows.items() if name != "float32"}
    assert len(quantised) == 4
    for figures in quantised.values():
        assert float(figures[0]) == pytest.approx(perplexity, rel=0.1) and figures[0] != expected[0]
        assert float(figures[2]) < float(rows["float32"][2])


def test_the_clock_that_is_given_tells_the_time():
    ticks = iter(range(100))
    seconds = take_turns({"a": list, "b": list}, 2, torch.device("cpu"), clock=lambda: float(next(ticks)))
    assert seconds == {"a": [1.0, 1.0], "b": [1.0, 1.0]}
