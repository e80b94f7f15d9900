"""ON-LSTM and other language models that induce syntax, for Transformers.

`import onlstm_hf` imports the public names and registers the models with Transformers. The command `onlstm-hf` imports
them when it needs them, so that `--help` need not wait for PyTorch and Transformers.
"""

import signal
import sys
from importlib import import_module
from pathlib import Path

from .version import __version__

# A folder for `from_pretrained`, in a checkout and with a wheel; `utils.checkpoints.default_model` chooses it.
DEFAULT_MODEL: str


def __getattr__(name: str) -> object:
    """Finds the default model at every access. In the command it also imports the public names."""
    if name == "DEFAULT_MODEL":
        return import_module(".utils.checkpoints", __name__).default_model()
    if not name.startswith("_"):
        public_names = import_module(".public_names", __name__)
        if name in vars(public_names):
            return getattr(public_names, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), "DEFAULT_MODEL"})


def _is_command() -> bool:
    """Returns whether this process runs `onlstm-hf` or `python -m onlstm_hf`."""
    name = Path(*sys.argv[:1]).name
    if name == "-m":  # while Python looks for the module to run
        return sys.orig_argv[sys.orig_argv.index("-m") + 1 :][:1] == ["onlstm_hf"]
    return name in ("onlstm-hf", "onlstm-hf.exe")


if not _is_command():
    from . import public_names
    from .public_names import *  # noqa: F403

    __all__ = ["DEFAULT_MODEL", "__version__", *(name for name in vars(public_names) if not name.startswith("_"))]
elif signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Ctrl-C before `cli.main` can handle it ends the process, without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
