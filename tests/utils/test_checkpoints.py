import logging
from contextlib import suppress

import pytest
from transformers.utils.logging import is_progress_bar_enabled

from onlstm_hf.utils.checkpoints import quiet_transformers


def settings():
    """Returns the settings for terminal output of Transformers and the Hub client."""
    levels = [logging.getLogger(name).level for name in ("transformers", "huggingface_hub")]
    return (*levels, is_progress_bar_enabled(), logging.root.manager.disable)


@pytest.mark.parametrize("fails", [False, True])
def test_only_warnings_of_transformers_are_suppressed_in_the_block(fails):
    before = settings()
    with suppress(OSError), quiet_transformers():
        library, program = logging.getLogger("transformers.any"), logging.getLogger("a_program")
        assert not library.isEnabledFor(logging.WARNING) and library.isEnabledFor(logging.ERROR)
        assert program.isEnabledFor(logging.WARNING)
        assert not is_progress_bar_enabled()
        if fails:
            raise OSError
    assert settings() == before
