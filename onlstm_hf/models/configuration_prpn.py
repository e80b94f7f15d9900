"""Configuration of the parsing-reading-predict network."""

import math

from .state import RecurrentConfig


class PRPNConfig(RecurrentConfig):
    r"""
    Configuration of a PRPN (Shen, Lin, Huang & Courville, "Neural Language Modeling by Jointly Learning Syntax and
    Lexicon", ICLR 2018). The defaults are those of the paper's Penn Treebank language model.

    Args:
        embedding_size (`int`, defaults to 800): Units of the embeddings.
        hidden_size (`int`, defaults to 1200): Units of the parsing network and of every layer of the reading network.
            It must be even, as each half of the parsing network's units gives one of its two distances.
        num_hidden_layers (`int`, defaults to 2): Layers of the reading network.
        num_slots (`int`, defaults to 15): Number of recent memories that the networks attend to.
        lookback (`int`, defaults to 5): Number of words before each word that the parsing network reads with it.
        resolution (`float`, defaults to 0.1):
            Width of the range of distances over which a gate goes from open to closed (one over the temperature).
        hard (`bool`, defaults to `True`): Whether gates use a hard sigmoid (piecewise linear) instead of a sigmoid.
        num_residual_blocks (`int`, defaults to 0): Residual blocks of the predict network.
        output_dropout (`float`, defaults to 0.7):
            Dropout of the inputs of the reading network (the embedded words) and of the decoder.
        input_dropout (`float`, defaults to 0.5):
            Dropout of the inputs of all other maps: in the parsing network, between the layers of the reading
            network, of the key projections and in the predict network. The keys are dropped, too.
        recurrent_dropout (`float`, defaults to 0.5):
            Dropout of the summarised hidden states. Each layer has one mask for all steps and rows of a batch.
        parsing_network (`bool`, defaults to `True`):
            Whether a parsing network computes the gates. Without it all memories are open, as in ordinary attention,
            and the model induces no trees (the paper's ablation "- Parsing Net").
        reading_attention (`bool`, defaults to `True`):
            Whether the reading network attends to its memories. Without it each layer continues from its newest
            memory, like an ordinary LSTM ("- Reading Net Attention").
        prediction_attention (`bool`, defaults to `True`):
            Whether the predict network attends to the memories. Without it, it reads only the newest hidden state
            ("- Predict Net Attention").
        initializer_range (`float`, defaults to 0.01): Embeddings are drawn uniformly from `[-range, range]`.

    Fields of `RecurrentConfig`, described there: `vocab_size`, `num_softmaxes`, `latent_dropout`,
    `tie_word_embeddings`, `use_cache`, `tokenizer_fingerprint`, `treebank_preprocessing`.
    """

    model_type = "prpn"
    positive_integers = (*RecurrentConfig.positive_integers, "num_slots")

    embedding_size: int = 800
    hidden_size: int = 1200
    num_hidden_layers: int = 2
    num_slots: int = 15
    lookback: int = 5
    resolution: float = 0.1
    hard: bool = True
    num_residual_blocks: int = 0
    output_dropout: float = 0.7
    input_dropout: float = 0.5
    recurrent_dropout: float = 0.5
    parsing_network: bool = True
    reading_attention: bool = True
    prediction_attention: bool = True
    initializer_range: float = 0.01

    def __post_init__(self, **kwargs):
        super().__post_init__(**kwargs)
        self.require(["lookback", "num_residual_blocks"], int, lambda value: value >= 0, "an integer of at least 0")
        self.require(["resolution"], (int, float), lambda value: 0 < value < math.inf, "a number above 0")
        if self.hidden_size % 2:
            raise ValueError(f"hidden_size must be even, as the parsing network halves it, not {self.hidden_size}")
        if self.parsing_network and not (self.reading_attention or self.prediction_attention):
            choices = "parsing_network=False, or reading_attention or prediction_attention=True"
            raise ValueError(f"the parsing network computes gates for attention: set {choices}")
