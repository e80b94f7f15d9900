"""Configuration of the recurrent baselines: LSTM, GRU and the simple recurrent network of Elman (1990)."""

from .configuration_onlstm import AWDLSTMConfig

CELL_TYPES = ("lstm", "gru", "rnn")


class RNNConfig(AWDLSTMConfig):
    r"""
    Configuration of a recurrent language model with the regularisation of the AWD-LSTM (Merity, Keskar & Socher,
    "Regularizing and Optimizing LSTM Language Models", ICLR 2018). The defaults are those of the paper's Penn Treebank
    model. All but the cell is as in the ON-LSTM, so that the two can be compared. In particular, drop-connect does not
    rescale what it keeps in training, but multiplies by `1 - weight_dropout` in evaluation (`dropout.drop_connect`);
    Merity et al. divide by `1 - weight_dropout` in training instead.

    Args:
        cell_type (`str`, defaults to `"lstm"`): `"lstm"`, `"gru"`, or `"rnn"` (tanh).
        vocab_size (`int`, defaults to 10000): Number of words.
        embedding_size (`int`, defaults to 400): Units of the embeddings, and of the last layer.
        hidden_size (`int`, defaults to 1150):
            Units of every layer but the last. Where `layer_sizes` are given, those of the first of several layers.
        num_hidden_layers (`int`, defaults to 3): Number of recurrent layers.
        layer_sizes (`list[int]`, *optional*):
            Units of each layer, lowest first. Follows from the three fields above when it is not given:
            `num_hidden_layers - 1` times `hidden_size`, then `embedding_size`. Tied embeddings need a last layer of
            `embedding_size` units, unless softmaxes are mixed.
        embedding_dropout (`float`, defaults to 0.1): Probability that a word is dropped everywhere in the batch.
        input_dropout (`float`, defaults to 0.4): Locked dropout of the embedded input.
        hidden_dropout (`float`, defaults to 0.3): Locked dropout between layers.
        output_dropout (`float`, defaults to 0.4): Locked dropout of the last layer's output.
        weight_dropout (`float`, defaults to 0.5): Drop-connect on the hidden-to-hidden weights.
        classifier_dropout (`float`, defaults to 0.2): Dropout before both maps of the classifier of sequence pairs.
        activation_regularization (`float`, defaults to 2.0):
            Weight (alpha) of the mean square of the last layer's dropped output in the training loss.
        temporal_activation_regularization (`float`, defaults to 1.0):
            Weight (beta) of the mean squared change of the last layer's output from step to step in the training loss.
        initializer_range (`float`, defaults to 0.1): Embeddings are drawn uniformly from `[-range, range]`.
        num_softmaxes (`int`, defaults to 1):
            Softmaxes that are mixed to the probabilities of the next word (Yang et al., "Breaking the Softmax
            Bottleneck", ICLR 2018); the head then reads a last layer of any size.
        latent_dropout (`float`, defaults to 0.29): Locked dropout of what these softmaxes are computed from.
        tie_word_embeddings (`bool`, defaults to `True`): Whether the decoder's weight is the embedding.
        use_cache (`bool`, defaults to `True`): Whether the model returns its state.
        tokenizer_fingerprint (`str`, *optional*):
            That of the tokenizer that the model was made with, so that another one does not go unnoticed (see
            `tokenizer_fingerprint` in `utils/tokenizer_check.py`).
        treebank_preprocessing (`dict`, *optional*):
            How treebanks are read that the model is scored on, as `Preprocessing.to_dict` in `trees/treebank.py` gives
            it; by default as in the papers.

    Raises:
        ValueError: if a value is out of its range or two of them contradict each other.

    Example:

    ```python
    >>> from onlstm_hf import RNNConfig, RNNForCausalLM

    >>> config = RNNConfig(cell_type="gru", vocab_size=1000, embedding_size=40, hidden_size=60)
    >>> config.layer_sizes
    [60, 60, 40]
    >>> model = RNNForCausalLM(config)

    ```
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
