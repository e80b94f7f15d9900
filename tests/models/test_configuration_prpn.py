import pytest

from onlstm_hf import PRPNConfig


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_slots": 0}, "num_slots must be a positive integer"),
        ({"lookback": -1}, "lookback must be an integer that is not negative"),
        ({"num_residual_blocks": 0.5}, "num_residual_blocks must be an integer that is not negative"),
        ({"resolution": 0}, "resolution must be a number above 0"),
        ({"hard": 1}, "hard must be true or false"),
        ({"hidden_size": 15}, "hidden_size must be even"),
        ({"recurrent_dropout": 1.0}, "recurrent_dropout is a probability"),
        ({"reading_attention": False, "prediction_attention": False}, "set parsing_network=False"),
    ],
    ids=str,
)
def test_a_configuration_that_cannot_be_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        PRPNConfig(**options)


def test_the_defaults_are_those_of_the_papers_language_model():
    config = PRPNConfig()
    assert (config.embedding_size, config.hidden_size, config.num_hidden_layers) == (800, 1200, 2)
    assert (config.num_slots, config.lookback, config.resolution, config.hard) == (15, 5, 0.1, True)
    assert (config.output_dropout, config.input_dropout, config.recurrent_dropout) == (0.7, 0.5, 0.5)
