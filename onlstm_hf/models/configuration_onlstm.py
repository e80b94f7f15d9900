"""Configuration of the ordered-neurons LSTM, and of the stack that the recurrent baselines share with it."""

from transformers.utils import logging

from .state import RecurrentConfig

logger = logging.get_logger(__name__)


class AWDLSTMConfig(RecurrentConfig):
    r"""
    Layer sizes, dropouts and penalties of a stack as in the AWD-LSTM (Merity, Keskar & Socher 2018). The defaults are
    those of the ON-LSTM.

    Args:
        embedding_size (`int`, defaults to 400): Units of the embeddings, and of the last layer.
        hidden_size (`int`, defaults to 1150):
            Units of every layer but the last. It must equal the first of several `layer_sizes`.
        num_hidden_layers (`int`, defaults to 3): Number of recurrent layers.
        layer_sizes (`list[int]`, *optional*):
            Units of each layer, lowest first. By default the last layer has `embedding_size` units and all others
            `hidden_size`. Tied embeddings need a last layer of `embedding_size` units, unless softmaxes are mixed.
        embedding_dropout (`float`, defaults to 0.1): Probability that a word is dropped everywhere in the batch.
        input_dropout (`float`, defaults to 0.5): Locked dropout of the embedded input.
        hidden_dropout (`float`, defaults to 0.3): Locked dropout between layers.
        output_dropout (`float`, defaults to 0.45): Locked dropout of the last layer's output.
        weight_dropout (`float`, defaults to 0.45): Drop-connect on the hidden-to-hidden weights.
        classifier_dropout (`float`, defaults to 0.2): Dropout before both maps of the classifier of sequence pairs.
        activation_regularization (`float`, defaults to 2.0):
            Weight (alpha) in the training loss of the mean square of the last layer's output after dropout.
        temporal_activation_regularization (`float`, defaults to 1.0):
            Weight (beta) in the training loss of the mean squared change of the last layer's output between steps.
        initializer_range (`float`, defaults to 0.1): Embeddings are drawn uniformly from `[-range, range]`.

    All other fields: see `RecurrentConfig`.

    Raises:
        ValueError: if a value is out of range or values contradict each other.
    """

    not_negative = ("activation_regularization", "temporal_activation_regularization", "initializer_range")

    hidden_size: int | None = None
    layer_sizes: list[int] | None = None
    embedding_dropout: float = 0.1
    input_dropout: float = 0.5
    hidden_dropout: float = 0.3
    output_dropout: float = 0.45
    weight_dropout: float = 0.45
    classifier_dropout: float = 0.2
    activation_regularization: float = 2.0
    temporal_activation_regularization: float = 1.0

    @property
    def output_size(self) -> int:
        """Units of the `last_hidden_state` of a model without a head."""
        return self.layer_sizes[-1]

    def __post_init__(self, **kwargs):
        if self.hidden_size is None:
            self.hidden_size = self.layer_sizes[0] if self.layer_sizes else RecurrentConfig.hidden_size
        super().__post_init__(**kwargs)
        if self.layer_sizes is None:
            self.layer_sizes = [self.hidden_size] * (self.num_hidden_layers - 1) + [self.embedding_size]
        self.layer_sizes = list(self.layer_sizes)
        if len(self.layer_sizes) != self.num_hidden_layers:
            raise ValueError(f"num_hidden_layers={self.num_hidden_layers} contradicts layer_sizes={self.layer_sizes}")
        if not all(isinstance(size, int) and size > 0 for size in self.layer_sizes):
            raise ValueError(f"layer_sizes must be positive integers, not {self.layer_sizes}")
        if len(self.layer_sizes) > 1 and self.layer_sizes[0] != self.hidden_size:
            sizes = f"hidden_size={self.hidden_size} contradicts layer_sizes={self.layer_sizes}"
            raise ValueError(f"{sizes}: give one of the two, or the first layer's size as hidden_size")
        needs_size = self.tie_word_embeddings and self.num_softmaxes == 1
        if needs_size and self.layer_sizes[-1] != self.embedding_size:
            raise ValueError(
                f"tied embeddings need a last layer of embedding_size={self.embedding_size} units, but it has "
                f"{self.layer_sizes[-1]}; change layer_sizes, set tie_word_embeddings=False, or mix softmaxes "
                "(num_softmaxes), which read a last layer of any size"
            )

    @classmethod
    def from_dict(cls, config_dict, **kwargs):
        """Extends the base class: `layer_sizes` decide over the `hidden_size` of a file, as old files have both."""
        sizes = kwargs.get("layer_sizes", config_dict.get("layer_sizes"))
        if sizes and len(sizes) > 1 and "hidden_size" not in kwargs:
            hidden_size, config_dict = config_dict.get("hidden_size"), {**config_dict, "hidden_size": sizes[0]}
            if hidden_size not in (None, sizes[0]) and "layer_sizes" not in kwargs:
                logger.warning(f"hidden_size={hidden_size} is ignored, as it contradicts layer_sizes={sizes}")
        return super().from_dict(config_dict, **kwargs)


class ONLSTMConfig(AWDLSTMConfig):
    r"""
    Configuration of an ON-LSTM (Shen, Tan, Sordoni & Courville, "Ordered Neurons: Integrating Tree Structures into
    Recurrent Neural Networks", ICLR 2019). The defaults are those of the paper's Penn Treebank language model.

    Args:
        chunk_size (`int`, defaults to 10):
            Neighbouring units that share one entry of the master gates. A layer of a single chunk is allowed, but by
            the equations it never writes its cell state.
        parse_layer (`int`, defaults to 1): Layer, counted from 0, whose forget distances define the trees.

    Fields of `AWDLSTMConfig`, described there: `embedding_size`, `hidden_size`, `num_hidden_layers`, `layer_sizes`,
    `embedding_dropout`, `input_dropout`, `hidden_dropout`, `output_dropout`, `weight_dropout`, `classifier_dropout`,
    `activation_regularization`, `temporal_activation_regularization`, `initializer_range`.

    Fields of `RecurrentConfig`, described there: `vocab_size`, `num_softmaxes`, `latent_dropout`,
    `tie_word_embeddings`, `use_cache`, `tokenizer_fingerprint`, `treebank_preprocessing`.

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
    positive_integers = (*AWDLSTMConfig.positive_integers, "chunk_size")

    chunk_size: int = 10
    parse_layer: int = 1

    def __post_init__(self, **kwargs):
        super().__post_init__(**kwargs)
        for layer, size in enumerate(self.layer_sizes):
            if size % self.chunk_size:
                raise ValueError(
                    f"chunk_size={self.chunk_size} must divide the size of every layer, but layer {layer} has {size} "
                    f"units (layer_sizes={self.layer_sizes}; the last layer has embedding_size units unless given)"
                )
        if not isinstance(self.parse_layer, int) or not 0 <= self.parse_layer < self.num_hidden_layers:
            raise ValueError(
                f"parse_layer={self.parse_layer!r} does not exist: layers are 0 to {self.num_hidden_layers - 1}"
            )
