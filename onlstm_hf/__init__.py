"""ON-LSTM and other language models that induce syntax, for Transformers."""

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification
from transformers.pipelines import PIPELINE_REGISTRY

from .conversion.checkpoints import convert_original_checkpoint
from .conversion.state_dicts import convert_original_state_dict
from .logic.formulas import generate_logic_pairs, logical_relation
from .models.configuration_onlstm import ONLSTMConfig
from .models.configuration_prpn import PRPNConfig
from .models.configuration_rnn import RNNConfig
from .models.configuration_tree_lstm import TreeLSTMConfig
from .models.modeling_onlstm import ONLSTMForCausalLM, ONLSTMForSequencePairClassification, ONLSTMModel
from .models.modeling_prpn import PRPNForCausalLM, PRPNModel
from .models.modeling_rnn import RNNForCausalLM, RNNForSequencePairClassification, RNNModel
from .models.modeling_tree_lstm import TreeLSTMForSequencePairClassification
from .parsing.pipeline import CONSTITUENCY_PARSING, ConstituencyParsingPipeline
from .text.tokenization import build_word_tokenizer
from .trees.distances import tree_from_distances
from .trees.induced_tree import InducedTree
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
    for _auto_class, _model in _models.items():
        _auto_class.register(_config, _model)

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
