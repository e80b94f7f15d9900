import re

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from onlstm_hf import convert_original_state_dict
from tests.helpers.command_line import WORDS
from tests.helpers.folders import names_in
from tests.helpers.original_files import onlstm_checkpoint, prpn_checkpoint, save_in_zip, state_dict_of


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file(state_dict_of(onlstm_checkpoint()), path)
    return path


@pytest.fixture
def vocabulary_files(tmp_path):
    """Two texts whose words have the ids of `WORDS`, except `<eos>`, which ends the first line."""
    (tmp_path / "train.txt").write_text(" the <unk> cat \n sat on the mat . \n")
    (tmp_path / "valid.txt").write_text(" it saw dogs the \n old dog that N \n")
    return [tmp_path / "train.txt", tmp_path / "valid.txt"]


def test_a_converted_checkpoint_loads_with_from_pretrained(run, tmp_path, source, vocabulary_files):
    out = tmp_path / "out"
    run("convert", source, out, "--weight-dropout", 0.3, "--vocab-from", *vocabulary_files)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(out), AutoTokenizer.from_pretrained(out)
    expected = convert_original_state_dict(state_dict_of(onlstm_checkpoint()), weight_dropout=0.3)
    assert model.config.weight_dropout == 0.3
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in expected.state_dict().items())
    assert tokenizer("the cat\nmat zebra")["input_ids"] == [0, 2, 6, 1]
    assert tokenizer.eos_token_id == model.config.eos_token_id == 3
    assert run("parse", "the cat", "--model", out) == "(the cat)\n"
    assert "--vocab-from" in run("convert", source, tmp_path / "without")
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "without").config.vocab_size == len(WORDS)


@pytest.mark.parametrize(
    ("make", "name", "expected"),
    [
        (onlstm_checkpoint, "ONLSTMForCausalLM", {"weight_dropout": 0.3, "input_dropout": 0.5}),
        (prpn_checkpoint, "PRPNForCausalLM", {"num_slots": 4, "resolution": 0.25, "hard": False}),
    ],
)
def test_a_full_checkpoint_of_the_authors_code_is_converted(run, tmp_path, vocabulary_files, make, name, expected):
    save_in_zip(make(), tmp_path / "original.pt")
    printed = run("convert", tmp_path / "original.pt", tmp_path / "out", "--vocab-from", *vocabulary_files)
    assert re.search(rf"{name}, [\d,]+ parameters, 15 words, with its tokenizer", printed)
    config = AutoModelForCausalLM.from_pretrained(tmp_path / "out").config
    assert {option: getattr(config, option) for option in expected} == expected
    assert run("parse", "the cat", "--model", tmp_path / "out") == "(the cat)\n"


def test_settings_that_a_prpn_state_dict_lacks_can_be_given(run, error_of, tmp_path, source):
    torch.save(prpn_checkpoint().state_dict(), tmp_path / "weights.pt")
    given = ["--num-slots", 4, "--resolution", 0.25, "--no-hard"]
    for name, flags, values in (("defaults", [], (15, 0.1, True)), ("given", given, (4, 0.25, False))):
        run("convert", tmp_path / "weights.pt", tmp_path / name, *flags)
        config = AutoConfig.from_pretrained(tmp_path / name)
        assert (config.num_slots, config.resolution, config.hard) == values
    assert 'type "onlstm", which has no num_slots' in error_of("convert", source, tmp_path / "out", "--num-slots", 4)


def test_a_failed_conversion_leaves_no_files(error_of, tmp_path, source, vocabulary_files, monkeypatch):
    def fail(*arguments, **options):
        raise OSError("the disk is full")

    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious").touch()
    before = names_in(tmp_path)
    assert "exists already" in error_of("convert", source, tmp_path / "mine")
    assert "there is no file" in error_of("convert", source, tmp_path / "out", "--vocab-from", tmp_path / "absent.txt")
    assert "is a folder" in error_of("convert", source, tmp_path / "out", "--vocab-from", tmp_path)
    assert "does not exist" in error_of("convert", source, tmp_path / "absent" / "out")
    monkeypatch.setattr("transformers.PreTrainedTokenizerFast.save_pretrained", fail)
    assert "disk is full" in error_of("convert", source, tmp_path / "out", "--vocab-from", *vocabulary_files)
    assert names_in(tmp_path) == before and names_in(tmp_path / "mine") == ["precious"]
