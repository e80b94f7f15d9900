"""Output files are written atomically."""

import pytest

from onlstm_hf import ONLSTMForCausalLM
from onlstm_hf.cli.main import main
from tests.helpers.command_line import type_in
from tests.helpers.folders import names_in


@pytest.mark.parametrize("format", ["brackets", "svg"])
def test_a_bad_line_or_an_interruption_leaves_no_output_file(error_of, checkpoint, tmp_path, monkeypatch, format):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    command = ["parse", "--model", str(checkpoint), "--format", format, "--output", str(tmp_path / "trees")]
    type_in(monkeypatch, b"the cat\nthe dog\n\xff\n")
    assert "byte 0xff in line 3" in error_of(*command)
    monkeypatch.setattr(ONLSTMForCausalLM, "parse_layers", interrupt)
    assert main([*command, "the cat", "the dog"]) == 130
    assert names_in(tmp_path) == []
