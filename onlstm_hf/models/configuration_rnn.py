"""Configuration of the recurrent baselines: LSTM, GRU and the simple recurrent network of Elman (1990)."""

from .configuration_onlstm import AWDLSTMConfig

CELL_TYPES = ("lstm", "gru", "rnn")


class RNNConfig(AWDLSTMConfig):
    r"""
    Configuration of a recurrent language model with the regularisation of the AWD-LSTM (Merity, Keskar & Socher,
    "Regularizing and Optimizing LSTM Language Models", ICLR 2018). The defaults are those of the paper's Penn Treebank
    model. Everything but the cell is as in the ON-LSTM, so that the two can be compared. So drop-connect multiplies by
    `1 - weight_dropout` in evaluation (`dropout.drop_connect`); Merity et al. divide by it in training instead.

    Args:
        cell_type (`str`, defaults to `"lstm"`): `"lstm"`, `"gru"`, or `"rnn"` (tanh).
        input_dropout (`float`, defaults to 0.4): Locked dropout of the embedded input.
        output_dropout (`float`, defaults to 0.4): Locked dropout of the last layer's output.
        weight_dropout (`float`, defaults to 0.5): Drop-connect on the hidden-to-hidden weights.

    Fields of `AWDLSTMConfig`, described there: `embedding_size`, `hidden_size`, `num_hidden_layers`, `layer_sizes`,
    `embedding_dropout`, `hidden_dropout`, `classifier_dropout`, `activation_regularization`,
    `temporal_activation_regularization`, `initializer_range`.

    Fields of `RecurrentConfig`, described there: `vocab_size`, `num_softmaxes`, `latent_dropout`,
    `tie_word_embeddings`, `use_cache`, `tokenizer_fingerprint`, `treebank_preprocessing`.
    """

    model_type = "rnn"

    cell_type: str = "lstm"
    input_dropout: float = 0.4
    output_dropout: float = 0.4
    weight_dropout: float = 0.5

    def __post_init__(self, **kwargs):
        super().__post_init__(**kwargs)
        if self.cell_type not in CELL_TYPES:
            raise ValueError(f"cell_type must be one of {', '.join(CELL_TYPES)}, not {self.cell_type!r}")
