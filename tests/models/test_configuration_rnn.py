"""Tests of what only this configuration has; its base classes are tested with ONLSTMConfig."""

import pytest

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
