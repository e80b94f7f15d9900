"""ON-LSTM and other language models that induce syntax, for Transformers."""

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification
from transformers.pipelines import PIPELINE_REGISTRY

from .configuration_onlstm import ONLSTMConfig
from .configuration_prpn import PRPNConfig
from .configuration_rnn import RNNConfig
from .configuration_tree_lstm import TreeLSTMConfig
from .constituency_parsing import CONSTITUENCY_PARSING, ConstituencyParsingPipeline
from .conversion import convert_original_state_dict
from .logic import generate_logic_pairs, logical_relation
from .modeling_onlstm import ONLSTMForCausalLM, ONLSTMForSequencePairClassification, ONLSTMModel
from .modeling_prpn import PRPNForCausalLM, PRPNModel
from .modeling_rnn import RNNForCausalLM, RNNForSequencePairClassification, RNNModel
from .modeling_tree_lstm import TreeLSTMForSequencePairClassification
from .original_checkpoint import convert_original_checkpoint
from .tokenization import build_word_tokenizer
from .trees import InducedTree, tree_from_distances
from .version import __version__

for _config, _models in {
    ONLSTMConfig: {
        AutoModel: ONLSTMModel,
        AutoModelForCausalLM: ONLSTMForCausalLM,
        AutoModelForSequenceClassification: ONLSTMForSequencePairClassification,
    },
    PRPNConfig: {AutoModel: PRPNModel, AutoModelForCausalLM: PRPNForCausalLM},
    RNNConfig: {
        AutoModel: RNNModel,
        AutoModelForCausalLM: RNNForCausalLM,
        AutoModelForSequenceClassification: RNNForSequencePairClassification,
    },
    TreeLSTMConfig: {AutoModelForSequenceClassification: TreeLSTMForSequencePairClassification},
}.items():
    AutoConfig.register(_config.model_type, _config)
    # Saved checkpoints carry the code of their model: with trust_remote_code=True they load without this package.
    _config.register_for_auto_class("AutoConfig")
    for _auto_class, _model in _models.items():
        _auto_class.register(_config, _model)
        _model.register_for_auto_class(_auto_class.__name__)

PIPELINE_REGISTRY.register_pipeline(
    CONSTITUENCY_PARSING, ConstituencyParsingPipeline, pt_model=AutoModelForCausalLM, type="text"
)

__all__ = [
    "ConstituencyParsingPipeline",
    "InducedTree",
    "ONLSTMConfig",
    "ONLSTMForCausalLM",
    "ONLSTMForSequencePairClassification",
    "ONLSTMModel",
    "PRPNConfig",
    "PRPNForCausalLM",
    "PRPNModel",
    "RNNConfig",
    "RNNForCausalLM",
    "RNNForSequencePairClassification",
    "RNNModel",
    "TreeLSTMConfig",
    "TreeLSTMForSequencePairClassification",
    "__version__",
    "build_word_tokenizer",
    "convert_original_checkpoint",
    "convert_original_state_dict",
    "generate_logic_pairs",
    "logical_relation",
    "tree_from_distances",
]
