"""Configuration of the regularised stack of recurrent layers of the AWD-LSTM (Merity, Keskar & Socher 2018)."""

from .configuration import RecurrentConfig


class AWDLSTMConfig(RecurrentConfig):
    """Layer sizes, dropouts and activation penalties. The defaults are those of the ON-LSTM paper.

    Raises:
        ValueError: if a value is out of its range or two of them contradict each other.
    """

    probabilities = (
        "embedding_dropout",
        "input_dropout",
        "hidden_dropout",
        "output_dropout",
        "weight_dropout",
        "classifier_dropout",
    )
    not_negative = ("activation_regularization", "temporal_activation_regularization", "initializer_range")

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
        super().__post_init__(**kwargs)
        if self.layer_sizes is None:
            self.layer_sizes = [self.hidden_size] * (self.num_hidden_layers - 1) + [self.embedding_size]
        self.layer_sizes = list(self.layer_sizes)
        if len(self.layer_sizes) != self.num_hidden_layers:
            raise ValueError(
                f"layer_sizes must have num_hidden_layers={self.num_hidden_layers} entries, not {self.layer_sizes}"
            )
        for layer, size in enumerate(self.layer_sizes):
            if not isinstance(size, int) or size < 1:
                raise ValueError(
                    f"every layer needs a positive number of units, but layer {layer} has {size!r} "
                    f"(layer_sizes={self.layer_sizes})"
                )
        if self.tie_word_embeddings and self.layer_sizes[-1] != self.embedding_size:
            raise ValueError(
                f"tied embeddings need a last layer of embedding_size={self.embedding_size} units, but it has "
                f"{self.layer_sizes[-1]}; change layer_sizes or set tie_word_embeddings=False"
            )
