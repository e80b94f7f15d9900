import gzip
import shutil
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel

from onlstm_hf import build_word_tokenizer
from onlstm_hf.cli.main import main
from onlstm_hf.utils import checkpoints
from tests.helpers.command_line import TEXT, WORDS, type_in


def test_a_closed_standard_input_is_a_friendly_error(error_of, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    for command in ("parse", "score"):
        assert "standard input is closed" in error_of(command)


def test_text_file_and_standard_input_give_the_same(run, checkpoint, tmp_path, monkeypatch):
    content = "\ufeff" + "\r\n".join(TEXT)
    (tmp_path / "text").write_text(content, encoding="utf-8", newline="")
    expected = run("parse", *TEXT, "--model", checkpoint)
    assert run("parse", "--file", tmp_path / "text", "--model", checkpoint) == expected
    for source in ([], ["-"], ["--file", "-"]):
        type_in(monkeypatch, content.encode())
        assert run("parse", *source, "--model", checkpoint) == expected


@pytest.mark.parametrize("command", ["parse", "score"])
def test_bad_text_is_refused_before_a_model_is_loaded(error_of, checkpoint, tmp_path, monkeypatch, command):
    (tmp_path / "empty").write_bytes(b"\n \n")
    (tmp_path / "text.gz").write_bytes(gzip.compress(b"the cat\n"))
    (tmp_path / "binary").write_bytes(b"\n\xff\xfe\n")
    messages = {"missing": "there is no file", ".": "is a folder", "empty": "empty", "text.gz": "is compressed"}
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "load_checkpoint", None)
        for name, message in (messages | {"binary": "binary is not UTF-8: byte 0xff in line 2"}).items():
            assert message in error_of(command, "--file", tmp_path / name, "--model", checkpoint)
    assert "the text is empty" in error_of(command, " ", "--model", checkpoint)
    type_in(monkeypatch, b"")
    assert "standard input is empty" in error_of(command, "--model", checkpoint)


@pytest.mark.parametrize("command", ["parse", "score"])
@pytest.mark.parametrize("source", ["file", "standard input"])
def test_lines_before_a_bad_line_are_written(capsys, checkpoint, tmp_path, monkeypatch, command, source):
    content = b"the cat\n\xff\nthe dog\n"
    (tmp_path / "text").write_bytes(content)
    type_in(monkeypatch, content)
    file = str(tmp_path / "text") if source == "file" else "-"
    assert main([command, "--file", file, "--model", str(checkpoint)]) == 1
    output, error = capsys.readouterr()
    assert "is not UTF-8: byte 0xff in line 2" in error and (source == "standard input" or file in error)
    assert "cat" in output and "dog" not in output


def test_the_default_model_comes_from_the_environment_or_the_current_folder(
    run, error_of, checkpoint, tmp_path, monkeypatch
):
    monkeypatch.delenv("ONLSTM_MODEL", raising=False)
    monkeypatch.setattr(checkpoints, "RELEASED_MODEL", Path("model_cards", "test-model"))
    monkeypatch.chdir(tmp_path)
    assert checkpoints.default_model() == str(checkpoints.PACKED_MODEL)
    shutil.copytree(checkpoint, tmp_path / "model_cards" / "test-model")
    assert run("parse", "the cat") == "(the cat)\n"
    monkeypatch.setenv("ONLSTM_MODEL", "other")
    assert "no checkpoint folder other, which ONLSTM_MODEL names" in error_of("parse", "the cat")
    assert "ONLSTM_MODEL" not in error_of("parse", "the cat", "--model", "elsewhere")


def without_tokenizer(folder):
    for path in folder.glob("tokenizer*"):
        path.unlink()


def corrupt(name):
    return lambda folder: (folder / name).write_bytes(b"\x00corrupt" * 20)


def with_weights(change):
    def write(folder):
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors", {"format": "pt"})

    return write


def with_a_larger_tokenizer(folder):
    build_word_tokenizer(vocabulary=[*WORDS, "more"]).save_pretrained(folder)


def of_another_type(folder):
    GPT2LMHeadModel(GPT2Config(vocab_size=20, n_positions=8, n_embd=4, n_layer=1, n_head=1)).save_pretrained(folder)


BIAS = "model.layers.0.recurrent_projection.bias"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (shutil.rmtree, "there is no checkpoint folder"),
        (lambda folder: (folder / "config.json").unlink(), "no config.json"),
        (without_tokenizer, "has no tokenizer"),
        (corrupt("model.safetensors"), "cannot load the model"),
        (corrupt("config.json"), "JSON"),
        (corrupt("tokenizer.json"), "the tokenizer"),
        (with_weights(lambda weights: weights[BIAS].fill_(float("nan"))), f"NaN or infinity ({BIAS})"),
        (with_weights(lambda weights: weights.pop(BIAS)), f"lacks 1 of its weights, for instance {BIAS}"),
        (with_a_larger_tokenizer, "does not fit the model: it has 17 tokens"),
        (of_another_type, "is no model of this package: it is of type gpt2"),
    ],
)
def test_errors_name_the_unusable_checkpoint_and_the_reason(error_of, checkpoint, tmp_path, damage, message):
    broken = shutil.copytree(checkpoint, tmp_path / "broken")
    damage(broken)
    assert message in error_of("parse", "cat", "--model", broken)
