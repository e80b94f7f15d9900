import logging

import pytest
from transformers.utils.logging import is_progress_bar_enabled

from onlstm_hf.utils.checkpoints import quiet_transformers


@pytest.fixture
def written(monkeypatch):
    """Records of the root logger's handlers, and what those of Transformers would write to the terminal."""
    records = []
    # As in a new process, whatever other tests have done to these settings.
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", False)
    monkeypatch.setattr(logging.getLogger("transformers"), "level", logging.WARNING)
    monkeypatch.setattr(logging.getLogger("transformers.modeling_utils"), "disabled", False)
    logging.getLogger("transformers.modeling_utils").manager._clear_cache()
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())
    loggers = [logging.getLogger(), logging.getLogger("transformers")]
    for logger in loggers:
        logger.addHandler(handler)
    yield records
    for logger in loggers:
        logger.removeHandler(handler)


def settings():
    """The process's settings that decide what Transformers and the client of the Hub write."""
    levels = [logging.getLogger(name).level for name in ("transformers", "huggingface_hub")]
    return (*levels, is_progress_bar_enabled(), logging.root.manager.disable)


def test_warnings_of_transformers_are_kept_back_and_those_of_others_are_not(written):
    inside, other = logging.getLogger("transformers.modeling_utils"), logging.getLogger("a_program")
    before = settings()
    with quiet_transformers():
        inside.warning("weights are missing")
        inside.error("a file is damaged")
        other.warning("the disk is full")
        assert not is_progress_bar_enabled()
    inside.warning("after the block")
    assert written == ["a file is damaged", "the disk is full", "after the block"]
    assert settings() == before


def test_an_error_in_the_block_ends_it():
    before = settings()
    with pytest.raises(OSError), quiet_transformers():
        raise OSError
    assert settings() == before
