"""Tests of what only this configuration has; its base classes are tested with ONLSTMConfig."""

import pytest
from transformers import AutoConfig

from onlstm_hf import RNNConfig


def test_defaults_are_the_penn_treebank_model_of_the_awd_lstm():
    config = RNNConfig()
    assert config.cell_type == "lstm"
    assert (config.vocab_size, config.embedding_size, config.layer_sizes) == (10000, 400, [1150, 1150, 400])
    assert (config.embedding_dropout, config.input_dropout, config.hidden_dropout) == (0.1, 0.4, 0.3)
    assert (config.output_dropout, config.weight_dropout) == (0.4, 0.5)
    assert (config.activation_regularization, config.temporal_activation_regularization) == (2.0, 1.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cell_type": "LSTM"}, "cell_type must be one of lstm, gru, rnn, not 'LSTM'"),
        ({"cell_type": None}, "cell_type must be one of"),
    ],
)
def test_what_cannot_be_a_model_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        RNNConfig(**options)


def test_saving_and_loading_keeps_every_field(tmp_path):
    config = RNNConfig(cell_type="gru", layer_sizes=[8, 6], num_hidden_layers=2, embedding_size=6, eos_token_id=[3, 4])
    config.save_pretrained(tmp_path)
    for loaded in (RNNConfig.from_pretrained(tmp_path), AutoConfig.from_pretrained(tmp_path)):
        assert type(loaded) is RNNConfig
        assert {**loaded.to_dict(), "_name_or_path": ""} == config.to_dict()
