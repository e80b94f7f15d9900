"""The public names of the package. Importing this module also registers the models with Transformers."""
# ruff: noqa: F401

from . import registration as _registration
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

__all__ = [name for name in globals() if not name.startswith("_")]
