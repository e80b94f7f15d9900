"""Makes the models of this package known to Transformers: its Auto classes, and `pipeline("constituency-parsing")`.

Importing this module registers the models; `import onlstm_hf` does so for users.
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
from .parsing.pipeline import CONSTITUENCY_PARSING, ConstituencyParsingPipeline

# A checkpoint names one of two classes; the first one is the default for a checkpoint of another kind of model.
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
    CONSTITUENCY_PARSING, ConstituencyParsingPipeline, pt_model=AutoModelForCausalLM, type="text"
)
