"""Configuration of the ordered-neurons LSTM."""

from transformers import PreTrainedConfig

PROBABILITIES = ("embedding_dropout", "input_dropout", "hidden_dropout", "output_dropout", "weight_dropout")


class ONLSTMConfig(PreTrainedConfig):
    r"""
    Configuration of an ON-LSTM (Shen, Tan, Sordoni & Courville, "Ordered Neurons: Integrating Tree Structures into
    Recurrent Neural Networks", ICLR 2019). The defaults are those of the paper's Penn Treebank language model.

    Args:
        vocab_size (`int`, defaults to 10000): Number of words.
        embedding_size (`int`, defaults to 400): Units of the embeddings, and of the last layer.
        hidden_size (`int`, defaults to 1150): Units of every layer but the last.
        num_hidden_layers (`int`, defaults to 3): Number of recurrent layers.
        layer_sizes (`list[int]`, *optional*):
            Units of each layer, lowest first. Follows from the three fields above when it is not given:
            `num_hidden_layers - 1` times `hidden_size`, then `embedding_size`. Tied embeddings need a last layer of
            `embedding_size` units.
        chunk_size (`int`, defaults to 10):
            Neighbouring units that share one entry of the master gates. A layer that is one chunk as a whole is
            allowed, but by the equations it never writes its cell state.
        parse_layer (`int`, defaults to 1): The layer, counted from 0, whose forget distances make the trees.
        embedding_dropout (`float`, defaults to 0.1): Probability that a word is dropped everywhere in the batch.
        input_dropout (`float`, defaults to 0.5): Locked dropout of the embedded input.
        hidden_dropout (`float`, defaults to 0.3): Locked dropout between layers.
        output_dropout (`float`, defaults to 0.45): Locked dropout of the last layer's output.
        weight_dropout (`float`, defaults to 0.45): Drop-connect on the hidden-to-hidden weights.
        activation_regularization (`float`, defaults to 2.0):
            Weight (alpha) of the mean square of the last layer's dropped output in the training loss.
        temporal_activation_regularization (`float`, defaults to 1.0):
            Weight (beta) of the mean squared change of the last layer's output from step to step in the training loss.
        initializer_range (`float`, defaults to 0.1): Embeddings are drawn uniformly from `[-range, range]`.
        tie_word_embeddings (`bool`, defaults to `True`): Whether the decoder's weight is the embedding.
        use_cache (`bool`, defaults to `True`): Whether the model returns its state.

    Raises:
        ValueError: if a value is out of its range or two of them contradict each other.

    Example:

    ```python
    >>> from onlstm_hf import ONLSTMConfig, ONLSTMForCausalLM

    >>> config = ONLSTMConfig(vocab_size=1000, embedding_size=40, hidden_size=60)
    >>> config.layer_sizes
    [60, 60, 40]
    >>> model = ONLSTMForCausalLM(config)

    ```
    """

    model_type = "onlstm"
    # What `Trainer` leaves out of its predictions.
    keys_to_ignore_at_inference = ["state", "cross_entropy"]

    vocab_size: int = 10000
    embedding_size: int = 400
    hidden_size: int = 1150
    num_hidden_layers: int = 3
    layer_sizes: list[int] | None = None
    chunk_size: int = 10
    parse_layer: int = 1
    embedding_dropout: float = 0.1
    input_dropout: float = 0.5
    hidden_dropout: float = 0.3
    output_dropout: float = 0.45
    weight_dropout: float = 0.45
    activation_regularization: float = 2.0
    temporal_activation_regularization: float = 1.0
    initializer_range: float = 0.1
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    tie_word_embeddings: bool = True
    use_cache: bool = True

    def __post_init__(self, **kwargs):
        for name in ("vocab_size", "embedding_size", "hidden_size", "num_hidden_layers", "chunk_size"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be a positive integer, not {value!r}")
        if self.layer_sizes is None:
            self.layer_sizes = [self.hidden_size] * (self.num_hidden_layers - 1) + [self.embedding_size]
        self.layer_sizes = list(self.layer_sizes)
        self._check_layers()
        for name in PROBABILITIES:
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not 0 <= value < 1:
                raise ValueError(f"{name} is a probability and must lie in [0, 1), not {value!r}")
        for name in ("activation_regularization", "temporal_activation_regularization", "initializer_range"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
                raise ValueError(f"{name} must be a number that is not negative, not {value!r}")
        super().__post_init__(**kwargs)

    @classmethod
    def from_dict(cls, config_dict, **kwargs):
        """As in Transformers, but refuses the configuration of another kind of model."""
        model_type = config_dict.get("model_type", cls.model_type)
        if model_type != cls.model_type:
            raise ValueError(f'this is the configuration of a "{model_type}" model, not of an "{cls.model_type}"')
        return super().from_dict(config_dict, **kwargs)

    def _check_layers(self) -> None:
        if len(self.layer_sizes) != self.num_hidden_layers:
            raise ValueError(
                f"layer_sizes must have num_hidden_layers={self.num_hidden_layers} entries, not {self.layer_sizes}"
            )
        for layer, size in enumerate(self.layer_sizes):
            if not isinstance(size, int) or size < 1 or size % self.chunk_size:
                raise ValueError(
                    f"chunk_size={self.chunk_size} must divide the size of every layer, but layer {layer} has {size} "
                    f"units (layer_sizes={self.layer_sizes}; the last layer has embedding_size units unless given)"
                )
        if self.tie_word_embeddings and self.layer_sizes[-1] != self.embedding_size:
            raise ValueError(
                f"tied embeddings need a last layer of embedding_size={self.embedding_size} units, but it has "
                f"{self.layer_sizes[-1]}; change layer_sizes or set tie_word_embeddings=False"
            )
        if not isinstance(self.parse_layer, int) or not 0 <= self.parse_layer < self.num_hidden_layers:
            raise ValueError(
                f"parse_layer={self.parse_layer!r} does not exist: layers are counted from 0 to "
                f"{self.num_hidden_layers - 1}"
            )


__all__ = ["ONLSTMConfig"]
