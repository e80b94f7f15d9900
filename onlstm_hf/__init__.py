"""ON-LSTM and other language models that induce syntax, for Transformers."""

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

from .configuration_onlstm import ONLSTMConfig
from .conversion import convert_original_state_dict
from .modeling_onlstm import ONLSTMForCausalLM, ONLSTMModel
from .tokenization import build_word_tokenizer
from .trees import InducedTree, tree_from_distances
from .version import __version__

AutoConfig.register(ONLSTMConfig.model_type, ONLSTMConfig)
AutoModel.register(ONLSTMConfig, ONLSTMModel)
AutoModelForCausalLM.register(ONLSTMConfig, ONLSTMForCausalLM)

# Saved checkpoints carry the code of their model: with trust_remote_code=True they load without this package.
ONLSTMConfig.register_for_auto_class("AutoConfig")
ONLSTMModel.register_for_auto_class("AutoModel")
ONLSTMForCausalLM.register_for_auto_class("AutoModelForCausalLM")

__all__ = [
    "InducedTree",
    "ONLSTMConfig",
    "ONLSTMForCausalLM",
    "ONLSTMModel",
    "__version__",
    "build_word_tokenizer",
    "convert_original_state_dict",
    "tree_from_distances",
]
