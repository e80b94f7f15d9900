import pytest

from onlstm_hf.cli.main import main
from tests.helpers.tiny_models import MODEL_TYPES


@pytest.fixture
def baseline(tokenizer, tmp_path):
    """Checkpoint of a model that induces no trees."""
    model = MODEL_TYPES["rnn"].make(vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id)
    model.save_pretrained(tmp_path / "baseline")
    tokenizer.save_pretrained(tmp_path / "baseline")
    return tmp_path / "baseline"


@pytest.fixture
def run(capsys):
    """Runs the command, which must succeed, and returns its output."""

    def run(*arguments):
        assert main([str(argument) for argument in arguments]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    return run


@pytest.fixture
def error_of(capsys):
    """Runs the command, which must fail with an error of one line, and returns the error."""

    def error_of(*arguments):
        capsys.readouterr()
        assert main([str(argument) for argument in arguments]) == 1
        error = capsys.readouterr().err
        assert error.startswith("onlstm-hf: ")
        assert error.count("\n") == 1
        assert "Traceback" not in error
        return error

    return error_of
