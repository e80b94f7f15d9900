"""Tokenizer fingerprints in model configurations, and a warning if another tokenizer is used."""

import hashlib
from functools import lru_cache

from transformers import PreTrainedConfig, PreTrainedTokenizerBase
from transformers.utils import logging

logger = logging.get_logger(__name__)


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerBase, num_tokens: int | None = None) -> str:
    """Returns the size of a vocabulary and a hash of its tokens and ids, such as `"10001:0f1e2d3c4b5a6978"`.

    Only the tokens with ids below `num_tokens` are hashed, by default all.
    """
    return _fingerprint(tokenizer, len(tokenizer), len(tokenizer) if num_tokens is None else num_tokens)


@lru_cache(maxsize=8)  # `parse` checks the tokenizer in each call
def _fingerprint(tokenizer: PreTrainedTokenizerBase, size: int, num_tokens: int) -> str:
    """Computes the fingerprint; `size` is there for the cache, because tokens can be added to a tokenizer."""
    tokens = sorted((index, token) for token, index in tokenizer.get_vocab().items() if index < num_tokens)
    text = "\n".join(f"{index} {token}" for index, token in tokens)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{num_tokens}:{digest}"


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig, name: str = "the tokenizer") -> None:
    """Warns once if the model's configuration has the fingerprint of another tokenizer; messages call this one `name`.

    Tokens appended to the vocabulary of the model's tokenizer are ignored.

    Raises:
        ValueError: if the tokenizer has more tokens than the model.
    """
    size = len(tokenizer)
    if size > config.vocab_size:
        raise ValueError(f"{name} does not fit the model: it has {size} tokens, the model {config.vocab_size}")
    expected = getattr(config, "tokenizer_fingerprint", None)
    if expected is None:
        return
    num_tokens = int(expected.partition(":")[0])
    if tokenizer_fingerprint(tokenizer, num_tokens) != expected:
        logger.warning_once(
            f"{name} is not the model's tokenizer (its fingerprint is {tokenizer_fingerprint(tokenizer)}, not "
            f"{expected}): the model would read other words than the text has. Use the tokenizer of the model's "
            "checkpoint; to use this one, set model.config.tokenizer_fingerprint to None"
        )
