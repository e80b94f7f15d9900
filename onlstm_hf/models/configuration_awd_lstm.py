"""Configuration that the ON-LSTM and the recurrent baselines share: the stack of the AWD-LSTM."""

from transformers.utils import logging

from .state import RecurrentConfig

logger = logging.get_logger(__name__)


class AWDLSTMConfig(RecurrentConfig):
    """Layer sizes, dropouts and penalties of a stack as in the AWD-LSTM (Merity, Keskar & Socher 2018).

    Raises:
        ValueError: if a value is out of its range or two of them contradict each other.
    """

    probabilities = (
        *RecurrentConfig.probabilities,
        *(f"{place}_dropout" for place in ("embedding", "input", "hidden", "output", "weight", "classifier")),
    )
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
            raise ValueError(
                f"layer_sizes must have num_hidden_layers={self.num_hidden_layers} entries, not {self.layer_sizes}"
            )
        for layer, size in enumerate(self.layer_sizes):
            if not isinstance(size, int) or size < 1:
                raise ValueError(
                    f"every layer needs a positive number of units, but layer {layer} has {size!r} "
                    f"(layer_sizes={self.layer_sizes})"
                )
        if len(self.layer_sizes) > 1 and self.layer_sizes[0] != self.hidden_size:
            raise ValueError(
                f"hidden_size={self.hidden_size} contradicts layer_sizes={self.layer_sizes}, whose first layer has "
                f"{self.layer_sizes[0]} units: give one of the two, or the same number in both"
            )
        needs_size = self.tie_word_embeddings and self.num_softmaxes == 1
        if needs_size and self.layer_sizes[-1] != self.embedding_size:
            raise ValueError(
                f"tied embeddings need a last layer of embedding_size={self.embedding_size} units, but it has "
                f"{self.layer_sizes[-1]}; change layer_sizes, set tie_word_embeddings=False, or mix softmaxes "
                "(num_softmaxes), which read a last layer of any size"
            )

    @classmethod
    def from_dict(cls, config_dict, **kwargs):
        """As in the base class. `layer_sizes` in a file overrule its `hidden_size`; old files have both."""
        config_dict = {**config_dict}
        layer_sizes = kwargs.get("layer_sizes", config_dict.get("layer_sizes"))
        if layer_sizes and len(layer_sizes) > 1:
            hidden_size = config_dict.pop("hidden_size", layer_sizes[0])
            if hidden_size != layer_sizes[0] and not {"hidden_size", "layer_sizes"} & kwargs.keys():
                logger.warning(f"hidden_size={hidden_size} is not used, as layer_sizes={layer_sizes} say otherwise")
        return super().from_dict(config_dict, **kwargs)
