"""Configuration of the binary tree LSTM."""

from .state import RecurrentConfig


class TreeLSTMConfig(RecurrentConfig):
    r"""
    Configuration of a binary Tree-LSTM over gold brackets (Tai, Socher & Manning, "Improved Semantic Representations
    From Tree-Structured Long Short-Term Memory Networks", ACL 2015). The defaults are for logical inference.

    Args:
        vocab_size (`int`, defaults to 10000): Number of words, including brackets.
        embedding_size (`int`, defaults to 128): Units of the embeddings.
        hidden_size (`int`, defaults to 400): Units of each constituent's hidden state.
        open_bracket_id (`int`, defaults to 0): The token that opens a constituent.
        close_bracket_id (`int`, defaults to 1): The token that closes one.
        input_dropout (`float`, defaults to 0.2): Dropout of the embedded words.
        classifier_dropout (`float`, defaults to 0.2): Dropout before both maps of the classifier of sequence pairs.
        initializer_range (`float`, defaults to 0.1): Embeddings are drawn uniformly from `[-range, range]`.

    Raises:
        ValueError: if a value is out of range or values contradict each other.
    """

    model_type = "tree_lstm"

    embedding_size: int = 128
    hidden_size: int = 400
    num_hidden_layers: int = 1
    open_bracket_id: int = 0
    close_bracket_id: int = 1
    input_dropout: float = 0.2
    classifier_dropout: float = 0.2
    tie_word_embeddings: bool = False

    @property
    def output_size(self) -> int:
        """Units of the encoding of a sequence, which the model without a head returns."""
        return self.hidden_size

    def __post_init__(self, **kwargs):
        super().__post_init__(**kwargs)
        if self.num_hidden_layers != 1:
            raise ValueError(f"a Tree-LSTM has one layer: num_hidden_layers must be 1, not {self.num_hidden_layers}")
        brackets = (self.open_bracket_id, self.close_bracket_id)
        if brackets[0] == brackets[1] or not all(0 <= bracket < self.vocab_size for bracket in brackets):
            expected = f"two different tokens of the vocabulary of {self.vocab_size}"
            raise ValueError(f"open_bracket_id and close_bracket_id must be {expected}, not {brackets}")
