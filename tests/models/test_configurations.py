import pytest
import torch
from transformers import AutoConfig

from onlstm_hf import (
    ONLSTMConfig,
    ONLSTMForCausalLM,
    PRPNConfig,
    PRPNForCausalLM,
    RNNConfig,
    RNNForCausalLM,
    TreeLSTMConfig,
)

AWD_LSTM = {"vocab_size": 10000, "embedding_size": 400, "hidden_size": 1150, "layer_sizes": [1150, 1150, 400]}
AWD_LSTM |= {"embedding_dropout": 0.1, "hidden_dropout": 0.3, "initializer_range": 0.1}
AWD_LSTM |= {"activation_regularization": 2.0, "temporal_activation_regularization": 1.0}
AWD_LSTM |= {"num_hidden_layers": 3, "tie_word_embeddings": True, "use_cache": True}
DEFAULTS = {
    ONLSTMConfig: AWD_LSTM
    | {"chunk_size": 10, "parse_layer": 1, "input_dropout": 0.5, "output_dropout": 0.45, "weight_dropout": 0.45},
    PRPNConfig: {"embedding_size": 800, "hidden_size": 1200, "num_hidden_layers": 2, "num_slots": 15, "lookback": 5}
    | {"resolution": 0.1, "hard": True, "output_dropout": 0.7, "input_dropout": 0.5, "recurrent_dropout": 0.5},
    RNNConfig: AWD_LSTM | {"cell_type": "lstm", "input_dropout": 0.4, "output_dropout": 0.4, "weight_dropout": 0.5},
}


@pytest.mark.parametrize("config_class", DEFAULTS)
def test_defaults_are_the_penn_treebank_models_of_the_papers(config_class):
    config, defaults = config_class(), DEFAULTS[config_class]
    assert {name: getattr(config, name) for name in defaults} == defaults


@pytest.mark.parametrize(
    ("model_class", "num_parameters"),
    [(ONLSTMForCausalLM, 25_232_180), (PRPNForCausalLM, 43_603_202), (RNNForCausalLM, 24_221_600)],
)
def test_the_models_of_the_papers_have_their_number_of_parameters(model_class, num_parameters):
    with torch.device("meta"):
        assert model_class(model_class.config_class()).num_parameters() == num_parameters


@pytest.mark.parametrize(
    ("options", "layer_sizes"),
    [
        ({"num_hidden_layers": 1, "parse_layer": 0}, [20]),
        ({"num_hidden_layers": 2}, [30, 20]),
        ({"num_hidden_layers": 4}, [30, 30, 30, 20]),
        ({"hidden_size": 10, "layer_sizes": (10, 40, 20)}, [10, 40, 20]),
        ({"hidden_size": None, "layer_sizes": [10, 40, 50], "tie_word_embeddings": False}, [10, 40, 50]),
        ({"chunk_size": 1}, [30, 30, 20]),
        ({"hidden_size": 20, "chunk_size": 20}, [20, 20, 20]),
    ],
)
def test_layer_sizes_end_with_the_embedding_size_unless_given(options, layer_sizes):
    assert ONLSTMConfig(**{"embedding_size": 20, "hidden_size": 30, **options}).layer_sizes == layer_sizes


@pytest.mark.parametrize(
    ("config_class", "options", "message"),
    [
        *(
            (ONLSTMConfig, {name: value}, f"{name} must be a positive integer, not {value!r}")
            for name in ("vocab_size", "hidden_size", "num_hidden_layers", "chunk_size", "num_softmaxes")
            for value in (0, -3, True, 10.5, "1150")
        ),
        *(
            (ONLSTMConfig, {name: value}, f"{name} must be a probability in \\[0, 1\\)")
            for name in ("embedding_dropout", "input_dropout", "hidden_dropout", "output_dropout", "weight_dropout")
            for value in (-0.1, 1.0, 1, float("nan"))
        ),
        (ONLSTMConfig, {"hidden_size": 1155}, "chunk_size=10 must divide the size of every layer, but layer 0 has"),
        (ONLSTMConfig, {"embedding_size": 405}, "layer 2 has 405"),
        (ONLSTMConfig, {"layer_sizes": [1150, 7, 400]}, "layer 1 has 7"),
        (ONLSTMConfig, {"layer_sizes": [1150, 0, 400]}, "layer_sizes must be positive integers, not"),
        (ONLSTMConfig, {"layer_sizes": [1150, 400]}, "num_hidden_layers=3 contradicts layer_sizes"),
        (
            ONLSTMConfig,
            {"layer_sizes": [1150, 1150, 500]},
            "tied embeddings need a last layer of embedding_size=400 units",
        ),
        (
            ONLSTMConfig,
            {"hidden_size": 30, "layer_sizes": [20, 20, 400]},
            r"hidden_size=30 contradicts layer_sizes=\[20, 20, 400\]: give one of the two",
        ),
        (ONLSTMConfig, {"parse_layer": 3}, "parse_layer=3 does not exist: layers are 0 to 2"),
        (ONLSTMConfig, {"parse_layer": -1}, "parse_layer=-1 does not exist"),
        (ONLSTMConfig, {"parse_layer": 0.5}, "parse_layer"),
        (ONLSTMConfig, {"num_hidden_layers": 1}, "parse_layer=1 does not exist: layers are 0 to 0"),
        (ONLSTMConfig, {"weight_dropout": "0.45"}, "weight_dropout"),
        (ONLSTMConfig, {"activation_regularization": -1.0}, "activation_regularization must be a number"),
        (ONLSTMConfig, {"initializer_range": float("nan")}, "initializer_range must be a number that is not negative"),
        (PRPNConfig, {"num_slots": 0}, "num_slots must be a positive integer"),
        (PRPNConfig, {"lookback": -1}, "lookback must be an integer of at least 0"),
        (PRPNConfig, {"num_residual_blocks": 0.5}, "num_residual_blocks must be an integer of at"),
        (PRPNConfig, {"resolution": 0}, "resolution must be a number above 0"),
        (PRPNConfig, {"hard": 1}, "hard must be true or false"),
        (PRPNConfig, {"hidden_size": 15}, "hidden_size must be even"),
        (PRPNConfig, {"recurrent_dropout": 1.0}, "recurrent_dropout must be a probability"),
        (PRPNConfig, {"reading_attention": False, "prediction_attention": False}, "set parsing_network=False"),
        (RNNConfig, {"tie_word_embeddings": "none"}, "tie_word_embeddings must be true or false"),
        (RNNConfig, {"tokenizer_fingerprint": "seven:0e8f"}, "tokenizer_fingerprint must be a number and a hash"),
        (RNNConfig, {"cell_type": "LSTM"}, "cell_type must be one of lstm, gru, rnn, not 'LSTM'"),
        (RNNConfig, {"cell_type": None}, "cell_type must be one of"),
        (TreeLSTMConfig, {"num_hidden_layers": 2}, "num_hidden_layers must be 1, not 2"),
        *(
            (TreeLSTMConfig, {"open_bracket_id": one, "close_bracket_id": other}, "must be two different tokens")
            for one, other in ((3, 3), (0, 10_000), (-1, 1))
        ),
    ],
    ids=str,
)
def test_invalid_configurations_are_refused(config_class, options, message):
    with pytest.raises(ValueError, match=message):
        config_class(**options)


@pytest.fixture
def unusual_config() -> ONLSTMConfig:
    return ONLSTMConfig(
        vocab_size=50,
        embedding_size=12,
        num_hidden_layers=2,
        layer_sizes=[8, 16],
        chunk_size=4,
        parse_layer=0,
        weight_dropout=0.0,
        tie_word_embeddings=False,
        eos_token_id=[3, 4],
        pad_token_id=1,
    )


def test_saving_and_loading_keeps_every_field(unusual_config, tmp_path):
    unusual_config.save_pretrained(tmp_path)
    for loaded in (ONLSTMConfig.from_pretrained(tmp_path), AutoConfig.from_pretrained(tmp_path)):
        assert type(loaded) is ONLSTMConfig
        assert {**loaded.to_dict(), "_name_or_path": ""} == unusual_config.to_dict()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 32}, r"hidden_size=32 contradicts layer_sizes=\[8, 16\]"),
        ({"num_hidden_layers": 3}, "num_hidden_layers=3 contradicts layer_sizes"),
        ({"tie_word_embeddings": True}, "tied embeddings need a last layer of embedding_size=12 units"),
        ({"chunk_size": 5}, "chunk_size=5 must divide"),
        ({"weight_dropout": 2.0}, "weight_dropout must be a probability"),
    ],
    ids=str,
)
def test_a_change_that_contradicts_the_file_is_refused(unusual_config, tmp_path, changes, message):
    unusual_config.save_pretrained(tmp_path)
    for config_class in (ONLSTMConfig, AutoConfig):
        with pytest.raises(ValueError, match=message):
            config_class.from_pretrained(tmp_path, **changes)


def test_consistent_changes_take_effect(unusual_config, tmp_path, caplog):
    unusual_config.save_pretrained(tmp_path)
    config, unused = AutoConfig.from_pretrained(
        tmp_path, layer_sizes=[24, 16], parse_layer=1, use_cache=False, unknown=3, return_unused_kwargs=True
    )
    assert (config.hidden_size, config.layer_sizes, config.parse_layer) == (24, [24, 16], 1)
    assert not config.use_cache and unused == {"unknown": 3}
    resized = ONLSTMConfig.from_pretrained(tmp_path, layer_sizes=None, hidden_size=20)
    assert resized.layer_sizes == [20, 12]
    with caplog.at_level("WARNING", "onlstm_hf"):
        assert ONLSTMConfig.from_dict(unusual_config.to_dict() | {"hidden_size": 1150}).hidden_size == 8
    assert caplog.messages == ["hidden_size=1150 is ignored, as it contradicts layer_sizes=[8, 16]"]


def test_the_configuration_of_another_kind_of_model_is_refused():
    with pytest.raises(ValueError, match='configuration of a "gpt2" model, and "onlstm" is needed'):
        ONLSTMConfig.from_dict({"model_type": "gpt2", "vocab_size": 11})


def test_layer_sizes_are_not_shared_with_the_caller():
    sizes = [40, 40, 20]
    config = ONLSTMConfig(embedding_size=20, layer_sizes=sizes)
    sizes[0] = 7
    assert config.layer_sizes == [40, 40, 20]
