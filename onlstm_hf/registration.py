"""Registers the models with Transformers' Auto classes, and the pipeline "constituency-parsing".

Importing this module registers them; `import onlstm_hf` imports it.
"""

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification
from transformers.pipelines import PIPELINE_REGISTRY

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

# If there are two classes, the checkpoint's `architectures` selects one; the first one is the default.
MODEL_CLASSES = {
    ONLSTMConfig: {
        AutoModel: ONLSTMModel,
        AutoModelForCausalLM: ONLSTMForCausalLM,
        AutoModelForSequenceClassification: (ONLSTMForSequenceClassification, ONLSTMForSequencePairClassification),
    },
    PRPNConfig: {
        AutoModel: PRPNModel,
        AutoModelForCausalLM: PRPNForCausalLM,
        AutoModelForSequenceClassification: PRPNForSequenceClassification,
    },
    RNNConfig: {
        AutoModel: RNNModel,
        AutoModelForCausalLM: RNNForCausalLM,
        AutoModelForSequenceClassification: (RNNForSequenceClassification, RNNForSequencePairClassification),
    },
    TreeLSTMConfig: {
        AutoModel: TreeLSTMModel,
        AutoModelForSequenceClassification: (TreeLSTMForSequenceClassification, TreeLSTMForSequencePairClassification),
    },
}

for _config, _models in MODEL_CLASSES.items():
    AutoConfig.register(_config.model_type, _config)
    for _auto_class, _model in _models.items():
        _auto_class.register(_config, _model)

PIPELINE_REGISTRY.register_pipeline(
    "constituency-parsing", ConstituencyParsingPipeline, pt_model=AutoModelForCausalLM, type="text"
)
