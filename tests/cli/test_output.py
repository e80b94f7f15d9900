"""Output files are written atomically."""

import pytest

from onlstm_hf import ONLSTMForCausalLM
from onlstm_hf.cli.main import main
from tests.helpers.command_line import type_in
from tests.helpers.folders import names_in


@pytest.fixture
def arguments(checkpoint, tmp_path):
    (tmp_path / "text").write_text("the cat\nthe dog\n")
    return ["parse", "--file", tmp_path / "text", "--model", checkpoint]


@pytest.mark.parametrize("format", ["brackets", "svg"])
def test_a_bad_line_leaves_no_output_file(error_of, checkpoint, tmp_path, monkeypatch, format):
    type_in(monkeypatch, b"the cat\nthe dog\n\xff\n")
    message = error_of("parse", "--model", checkpoint, "--format", format, "--output", tmp_path / "trees")
    assert "byte 0xff in line 3" in message
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("format", ["brackets", "svg"])
def test_an_interruption_leaves_no_output_file(arguments, tmp_path, monkeypatch, format):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(ONLSTMForCausalLM, "parse_layers", interrupt)
    options = [*map(str, arguments), "--format", format, "--output", str(tmp_path / "trees")]
    assert main(options) == 130
    assert names_in(tmp_path) == ["text"]
