import logging

import pytest
from transformers.utils.logging import is_progress_bar_enabled

from onlstm_hf.utils.checkpoints import quiet_transformers


@pytest.fixture
def written(monkeypatch):
    """Messages that the root logger and the Transformers logger would write to the terminal."""
    records = []
    # Resets settings that other tests may have changed.
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
    """Returns the settings for terminal output of Transformers and the Hub client."""
    levels = [logging.getLogger(name).level for name in ("transformers", "huggingface_hub")]
    return (*levels, is_progress_bar_enabled(), logging.root.manager.disable)


def test_only_warnings_of_transformers_are_suppressed(written):
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


def test_settings_are_restored_after_an_error():
    before = settings()
    with pytest.raises(OSError), quiet_transformers():
        raise OSError
    assert settings() == before
