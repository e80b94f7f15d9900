"""Fingerprint of a model's tokenizer in its configuration, and a warning where another tokenizer is used."""

import hashlib
from weakref import WeakKeyDictionary

from transformers import PreTrainedConfig, PreTrainedTokenizerBase
from transformers.utils import logging

logger = logging.get_logger(__name__)
# By tokenizer, the fingerprints of its vocabulary as it is: of all its tokens, or of the first of them.
_KNOWN: WeakKeyDictionary[PreTrainedTokenizerBase, dict[tuple[int, int], str]] = WeakKeyDictionary()


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerBase, num_tokens: int | None = None) -> str:
    """Returns the size of a vocabulary and a hash of its tokens and ids, such as `"10001:0f1e2d3c4b5a6978"`.

    Args:
        tokenizer: any tokenizer of Transformers.
        num_tokens: only of the tokens whose ids are below this; of all by default.
    """
    size = len(tokenizer)
    fingerprints = _KNOWN.setdefault(tokenizer, {})
    num_tokens = size if num_tokens is None else num_tokens
    if (size, num_tokens) not in fingerprints:
        tokens = sorted((index, token) for token, index in tokenizer.get_vocab().items() if index < num_tokens)
        text = "\n".join(f"{index} {token}" for index, token in tokens)
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        fingerprints[size, num_tokens] = f"{num_tokens}:{digest}"
    return fingerprints[size, num_tokens]


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig, name: str = "the tokenizer") -> None:
    """Warns once if a model was made with another tokenizer, where its configuration has the fingerprint of one.

    Tokens that were added behind those of the model's tokenizer are no difference.

    Args:
        tokenizer: the one that is to be used.
        config: the model's.
        name: what messages call the tokenizer.

    Raises:
        ValueError: if the tokenizer has more tokens than the model.
    """
    if len(tokenizer) > config.vocab_size:
        raise ValueError(
            f"{name} does not fit the model: it has {len(tokenizer)} tokens, the model's vocabulary "
            f"{config.vocab_size}"
        )
    expected = getattr(config, "tokenizer_fingerprint", None)
    if expected is None:
        return
    num_tokens = int(expected.partition(":")[0])
    if tokenizer_fingerprint(tokenizer, num_tokens) != expected:
        logger.warning_once(
            f"{name} is not the one that the model was made with (its fingerprint is "
            f"{tokenizer_fingerprint(tokenizer)}, that of the model's {expected}): the model reads other words than "
            "the text has. Use the tokenizer of the model's checkpoint; if this one is meant, set "
            "model.config.tokenizer_fingerprint to None"
        )
