"""The public names of the package. Importing this module also registers the models with Transformers."""
# ruff: noqa: F401

from .conversion.checkpoints import convert_original_checkpoint
from .conversion.state_dicts import convert_original_state_dict
from .logic.formulas import generate_logic_pairs, logical_relation
from .registration import (
    ConstituencyParsingPipeline,
    ONLSTMConfig,
    ONLSTMForCausalLM,
    ONLSTMForSequenceClassification,
    ONLSTMForSequencePairClassification,
    ONLSTMModel,
    PRPNConfig,
    PRPNForCausalLM,
    PRPNForSequenceClassification,
    PRPNModel,
    RNNConfig,
    RNNForCausalLM,
    RNNForSequenceClassification,
    RNNForSequencePairClassification,
    RNNModel,
    TreeLSTMConfig,
    TreeLSTMForSequenceClassification,
    TreeLSTMForSequencePairClassification,
    TreeLSTMModel,
)
from .scoring.parsing_scores import score_parses
from .text.tokenization import build_subword_tokenizer, build_word_tokenizer
from .trees.comparison import TreeComparison
from .trees.distances import tree_from_distances
from .trees.induced_tree import InducedTree
from .trees.treebank import GoldTree, read_treebank
