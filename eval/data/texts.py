"""Text files with a sentence in each line."""

import os

from onlstm_hf.utils.files import read_text_file


def read_sentences(path: str | os.PathLike) -> list[str]:
    """The lines of a UTF-8 text file that are not blank; for the errors see `read_text_file`."""
    return [line for line in read_text_file(path) if line.strip()]
