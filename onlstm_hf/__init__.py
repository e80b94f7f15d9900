"""ON-LSTM and other language models that induce syntax, for Transformers.

`import onlstm_hf` makes the models known to Transformers (see `registration`). A public name is imported from its
module when it is first used.
"""
# ruff: noqa: F401

import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from .version import __version__

# The public names, and the module of each.
_MODULES = {
    "ConstituencyParsingPipeline": "parsing.pipeline",
    "GoldTree": "trees.treebank",
    "InducedTree": "trees.induced_tree",
    "ONLSTMConfig": "models.configuration_onlstm",
    "ONLSTMForCausalLM": "models.modeling_onlstm",
    "ONLSTMForSequenceClassification": "models.modeling_onlstm",
    "ONLSTMForSequencePairClassification": "models.modeling_onlstm",
    "ONLSTMModel": "models.modeling_onlstm",
    "PRPNConfig": "models.configuration_prpn",
    "PRPNForCausalLM": "models.modeling_prpn",
    "PRPNForSequenceClassification": "models.modeling_prpn",
    "PRPNModel": "models.modeling_prpn",
    "RNNConfig": "models.configuration_rnn",
    "RNNForCausalLM": "models.modeling_rnn",
    "RNNForSequenceClassification": "models.modeling_rnn",
    "RNNForSequencePairClassification": "models.modeling_rnn",
    "RNNModel": "models.modeling_rnn",
    "TreeComparison": "trees.comparison",
    "TreeLSTMConfig": "models.configuration_tree_lstm",
    "TreeLSTMForSequenceClassification": "models.modeling_tree_lstm",
    "TreeLSTMForSequencePairClassification": "models.modeling_tree_lstm",
    "TreeLSTMModel": "models.modeling_tree_lstm",
    "build_subword_tokenizer": "text.tokenization",
    "build_word_tokenizer": "text.tokenization",
    "convert_original_checkpoint": "conversion.checkpoints",
    "convert_original_state_dict": "conversion.state_dicts",
    "generate_logic_pairs": "logic.formulas",
    "logical_relation": "logic.formulas",
    "read_treebank": "trees.treebank",
    "score_parses": "scoring.parsing_scores",
    "tree_from_distances": "trees.distances",
}
__all__ = ["DEFAULT_MODEL", "__version__", *_MODULES]

# A folder for `from_pretrained`, in a checkout and with a wheel: `utils.checkpoints.default_model` says which.
DEFAULT_MODEL: str

if TYPE_CHECKING:  # The same names, for editors and type checkers, which do not run `__getattr__`.
    from .conversion.checkpoints import convert_original_checkpoint
    from .conversion.state_dicts import convert_original_state_dict
    from .logic.formulas import generate_logic_pairs, logical_relation
    from .models.configuration_onlstm import ONLSTMConfig
    from .models.configuration_prpn import PRPNConfig
    from .models.configuration_rnn import RNNConfig
    from .models.configuration_tree_lstm import TreeLSTMConfig
    from .models.modeling_onlstm import (
        ONLSTMForCausalLM,
        ONLSTMForSequenceClassification,
        ONLSTMForSequencePairClassification,
        ONLSTMModel,
    )
    from .models.modeling_prpn import PRPNForCausalLM, PRPNForSequenceClassification, PRPNModel
    from .models.modeling_rnn import (
        RNNForCausalLM,
        RNNForSequenceClassification,
        RNNForSequencePairClassification,
        RNNModel,
    )
    from .models.modeling_tree_lstm import (
        TreeLSTMForSequenceClassification,
        TreeLSTMForSequencePairClassification,
        TreeLSTMModel,
    )
    from .parsing.pipeline import ConstituencyParsingPipeline
    from .scoring.parsing_scores import score_parses
    from .text.tokenization import build_subword_tokenizer, build_word_tokenizer
    from .trees.comparison import TreeComparison
    from .trees.distances import tree_from_distances
    from .trees.induced_tree import InducedTree
    from .trees.treebank import GoldTree, read_treebank


def __getattr__(name: str) -> object:
    """Imports a public name when it is first used."""
    if name == "DEFAULT_MODEL":
        return import_module(".utils.checkpoints", __name__).default_model()
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{_MODULES[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _is_command() -> bool:
    """Returns whether this process runs `onlstm-hf` or `python -m onlstm_hf`, which import `registration`."""
    name = Path(*sys.argv[:1]).name
    if name == "-m":  # while Python looks for the module to run
        return sys.orig_argv[sys.orig_argv.index("-m") + 1 :][:1] in (["onlstm_hf"], ["onlstm_hf.cli.main"])
    return name in ("onlstm-hf", "onlstm-hf.exe")


# The command answers `--help` without waiting for PyTorch and Transformers, whose import takes seconds (`cli.main`).
if not _is_command():
    import_module(".registration", __name__)
elif signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Ctrl-C before `cli.main` can handle it ends the process, without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
