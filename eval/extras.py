"""Libraries that only training and evaluation need."""

import importlib
from types import ModuleType


def import_extra(name: str, extra: str = "train") -> ModuleType:
    """Imports a library that only training and evaluation need.

    Raises:
        ImportError: where it is not installed; the message says how to install it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f'this needs {name}: pip install -e ".[{extra}]" in the checkout') from error
