"""What the configurations of all recurrent language models have in common."""

import re
from dataclasses import fields
from typing import ClassVar

from transformers import PreTrainedConfig

from ...utils.remote_code import REFERENCES


class RecurrentConfig(PreTrainedConfig):
    """Sizes, special tokens and checks of values. A subclass adds its fields and their checks.

    Raises:
        ValueError: if a value is out of its range.
    """

    # Which fields, of this class or a subclass, are checked for their range.
    positive_integers = ("vocab_size", "embedding_size", "hidden_size", "num_hidden_layers", "num_softmaxes")
    probabilities = ("latent_dropout",)
    not_negative = ("initializer_range",)
    # The layer, counted from 0, whose distances make the trees; `None` where there is no choice of one.
    parse_layer: ClassVar[int | None] = None
    # What `Trainer` leaves out of its predictions.
    keys_to_ignore_at_inference = ["state", "cross_entropy"]

    vocab_size: int = 10000
    embedding_size: int = 400
    hidden_size: int = 1150
    num_hidden_layers: int = 3
    initializer_range: float = 0.1
    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    num_softmaxes: int = 1
    latent_dropout: float = 0.29
    tie_word_embeddings: bool = True
    use_cache: bool = True
    tokenizer_fingerprint: str | None = None
    treebank_preprocessing: dict | None = None

    @property
    def output_size(self) -> int:
        """Units of the `last_hidden_state` of a model without a head."""
        return self.embedding_size

    def __post_init__(self, **kwargs):
        for name in self.positive_integers:
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be a positive integer, not {value!r}")
        for name in self.probabilities:
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not 0 <= value < 1:
                raise ValueError(f"{name} is a probability and must lie in [0, 1), not {value!r}")
        for name in self.not_negative:
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
                raise ValueError(f"{name} must be a number that is not negative, not {value!r}")
        fingerprint = self.tokenizer_fingerprint
        if fingerprint is not None and not re.fullmatch(r"\d+:[0-9a-f]+", str(fingerprint)):
            raise ValueError(
                f'tokenizer_fingerprint must be a number and a hash, such as "10001:6459d285e5ce8e86", not '
                f"{fingerprint!r}"
            )
        if not isinstance(self.treebank_preprocessing, dict | None):
            raise ValueError(
                f"treebank_preprocessing must be a mapping of fields, not {self.treebank_preprocessing!r}"
            )
        # Of several classes for one Auto class Transformers takes the one that this names; `None` it does not expect.
        self.architectures = self.architectures or []
        super().__post_init__(**kwargs)

    @classmethod
    def from_dict(cls, config_dict, **kwargs):
        """As in Transformers, but refuses the configuration of another kind of model.

        What `from_pretrained` is given beside the file takes the place of the file's values before these are checked.

        Where the class is that of this package, so are the model's and the pipeline's: what the checkpoint says of the
        code that it carries is left out.
        """
        model_type = config_dict.get("model_type", cls.model_type)
        if model_type != cls.model_type:
            raise ValueError(f'this is the configuration of a "{model_type}" model, and "{cls.model_type}" is needed')
        if cls._auto_class is None:  # Transformers sets it where the class itself comes with the checkpoint
            config_dict = {name: value for name, value in config_dict.items() if name not in REFERENCES}
        own_fields = {field.name for field in fields(cls)} - {field.name for field in fields(PreTrainedConfig)}
        changes = {name: kwargs.pop(name) for name in own_fields & kwargs.keys()}
        return super().from_dict({**config_dict, **changes}, **kwargs)
