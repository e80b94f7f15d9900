import re

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from onlstm_hf import convert_original_state_dict
from tests.helpers.command_line import WORDS, names_in
from tests.helpers.original_files import MakesAFolder, onlstm_checkpoint, prpn_checkpoint, save_in_zip


def original_state_dict():
    """Weights under the authors' names: 2 layers of 12 and 8 units in chunks of 2."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"encoder.weight": (len(WORDS), 8), "decoder.bias": (len(WORDS),)}
    for layer, (input_size, size) in enumerate([(8, 12), (12, 8)]):
        num_rows = 5 * size
        shapes |= {
            f"rnn.cells.{layer}.ih.0.weight": (num_rows, input_size),
            f"rnn.cells.{layer}.ih.0.bias": (num_rows,),
            f"rnn.cells.{layer}.hh.weight": (num_rows, size),
            f"rnn.cells.{layer}.hh.bias": (num_rows,),
        }
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file(original_state_dict(), path)
    return path


@pytest.fixture
def vocabulary_files(tmp_path):
    """Two texts whose words have the ids of `WORDS`, but for `<eos>`, which ends the first line."""
    (tmp_path / "train.txt").write_text(" the <unk> cat \n sat on the mat . \n")
    (tmp_path / "valid.txt").write_text(" it saw dogs the \n old dog that N \n")
    return [tmp_path / "train.txt", tmp_path / "valid.txt"]


def test_a_converted_checkpoint_loads_with_from_pretrained(run, tmp_path, source, vocabulary_files):
    out = tmp_path / "out"
    run("convert", source, out, "--weight-dropout", 0.3, "--vocab-from", *vocabulary_files)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(out), AutoTokenizer.from_pretrained(out)
    expected = convert_original_state_dict(original_state_dict(), weight_dropout=0.3)
    assert model.config.weight_dropout == 0.3
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in expected.state_dict().items())
    assert tokenizer("the cat\nmat zebra")["input_ids"] == [0, 2, 6, 1]
    assert tokenizer.eos_token_id == model.config.eos_token_id == 3
    assert run("parse", "the cat", "--model", out) == "(the cat)\n"
    assert "--vocab-from" in run("convert", source, tmp_path / "without")
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "without").config.vocab_size == len(WORDS)


def test_conversion_overwrites_nothing(error_of, tmp_path, source):
    out = tmp_path / "out"
    out.mkdir()
    (out / "precious").touch()
    assert "exists already" in error_of("convert", source, out)
    assert names_in(out) == ["precious"]


def test_a_whole_checkpoint_of_the_authors_code_is_converted(run, tmp_path, vocabulary_files):
    save_in_zip(onlstm_checkpoint(), tmp_path / "PTB.pt")
    printed = run("convert", tmp_path / "PTB.pt", tmp_path / "out", "--vocab-from", *vocabulary_files)
    assert re.search(r"ONLSTMForCausalLM, [\d,]+ parameters, 15 words, with its tokenizer", printed)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert (model.config.weight_dropout, model.config.input_dropout) == (0.3, 0.5)
    assert run("parse", "the cat", "--model", tmp_path / "out") == "(the cat)\n"
    run("convert", tmp_path / "PTB.pt", tmp_path / "other", "--weight-dropout", 0.2)
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "other").config.weight_dropout == 0.2


def test_a_prpn_is_converted(run, tmp_path, vocabulary_files):
    save_in_zip(prpn_checkpoint(), tmp_path / "model_LM.pt")
    printed = run("convert", tmp_path / "model_LM.pt", tmp_path / "out", "--vocab-from", *vocabulary_files)
    assert re.search(r"PRPNForCausalLM, [\d,]+ parameters, 15 words, with its tokenizer", printed)
    config = AutoModelForCausalLM.from_pretrained(tmp_path / "out").config
    assert (config.num_slots, config.resolution, config.hard) == (4, 0.25, False)
    assert run("parse", "the cat", "--model", tmp_path / "out") == "(the cat)\n"


def test_what_the_state_dict_of_a_prpn_does_not_tell_can_be_given(run, error_of, tmp_path, source):
    torch.save(prpn_checkpoint().state_dict(), tmp_path / "weights.pt")
    run("convert", tmp_path / "weights.pt", tmp_path / "defaults")
    flags = ["--num-slots", 4, "--resolution", 0.25, "--no-hard"]
    run("convert", tmp_path / "weights.pt", tmp_path / "given", *flags)
    expected = {"defaults": (15, 0.1, True), "given": (4, 0.25, False)}
    for name, values in expected.items():
        config = AutoModelForCausalLM.from_pretrained(tmp_path / name).config
        assert (config.num_slots, config.resolution, config.hard) == values
    assert 'type "onlstm", which has no num_slots' in error_of("convert", source, tmp_path / "out", "--num-slots", 4)


def test_a_file_that_would_run_code_is_refused_and_not_run(error_of, tmp_path):
    source = tmp_path / "weights.pt"
    torch.save({"model": MakesAFolder(tmp_path / "was-run")}, source)
    message = error_of("convert", source, tmp_path / "out")
    assert str(source) in message and "mkdir" in message and "never run" in message
    assert names_in(tmp_path) == ["weights.pt"]


def test_nothing_is_left_of_a_conversion_that_fails(error_of, tmp_path, source, vocabulary_files, monkeypatch):
    def fail(*arguments, **options):
        raise OSError("the disk is full")

    before = names_in(tmp_path)
    assert "there is no file" in error_of("convert", source, tmp_path / "out", "--vocab-from", tmp_path / "absent.txt")
    assert "is a folder" in error_of("convert", source, tmp_path / "out", "--vocab-from", tmp_path)
    assert "does not exist" in error_of("convert", source, tmp_path / "absent" / "out")
    monkeypatch.setattr("transformers.PreTrainedTokenizerFast.save_pretrained", fail)
    assert "disk is full" in error_of("convert", source, tmp_path / "out", "--vocab-from", *vocabulary_files)
    assert names_in(tmp_path) == before
