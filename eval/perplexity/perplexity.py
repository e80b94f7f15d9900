"""Perplexity with its protocol spelled out, as a metric of the `evaluate` library."""

import datasets
import evaluate
import numpy as np

_DESCRIPTION = """\
Perplexity of a language model: the exponential of the mean negative log probability, per token and, where counts are
given, per word, with the bits per character. It is computed from the log probability of each token, or from texts and
a model. The protocol (one stream with the state carried, or independent sentences) is named, not implied.
"""

_INPUTS_DESCRIPTION = """
Configurations: `"log_probabilities"` (default), with any model; `"texts"`, with a causal model of `onlstm_hf`.
Args:
    predictions: `"log_probabilities"`: for each sequence the natural log probability of each of its tokens.
        `"texts"`: the sentences, one string each; every one is followed by the tokenizer's `<eos>`.
    protocol: `"stream"`: the sequences are consecutive parts of one stream; every token counts once. `"sentence"`:
        each sequence stands alone; adds the perplexity of each and the mean of these.
    num_words: number of words of each sequence, for `word_perplexity`; whether `<eos>` is one is up to the caller.
    num_characters: number of characters of each sequence, for `bits_per_character`.
    model, tokenizer: `"texts"` only.
    batch_size: `"texts"` only: rows of the stream (1), or sentences at a time (64).
Returns:
    `perplexity` (over all tokens together), `log_likelihood`, `num_tokens`; where asked for `word_perplexity`,
    `bits_per_character`, for the sentence protocol `perplexities` and `mean_perplexity`, and of `"texts"`
    `unknown_words`, the share of words that the model does not know.
Examples:
    >>> import evaluate
    >>> perplexity = evaluate.load("eval/perplexity")
    >>> scores = perplexity.compute(predictions=[[-1.0, -2.0, -3.0], [-2.0]])
    >>> round(scores["perplexity"], 4), scores["num_tokens"]
    (7.3891, 4)
"""

_CITATION = """\
@article{jelinek1977perplexity,
  title = {Perplexity---a measure of the difficulty of speech recognition tasks},
  author = {Jelinek, Fred and Mercer, Robert L. and Bahl, Lalit R. and Baker, James K.},
  journal = {The Journal of the Acoustical Society of America},
  volume = {62},
  number = {S1},
  pages = {S63--S63},
  year = {1977}
}
"""

_FEATURES = {
    "log_probabilities": {"predictions": datasets.Sequence(datasets.Value("float64"))},
    "texts": {"predictions": datasets.Value("string")},
}


class Perplexity(evaluate.Metric):
    """Perplexity from log probabilities, or from texts and a model."""

    def __init__(self, config_name: str | None = None, **kwargs):
        config_name = config_name or "log_probabilities"
        if config_name not in _FEATURES:
            raise ValueError(f"unknown configuration {config_name!r}; there are {', '.join(map(repr, _FEATURES))}")
        super().__init__(config_name=config_name, **kwargs)

    def _info(self):
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_INPUTS_DESCRIPTION,
            features=datasets.Features(_FEATURES[self.config_name]),
            reference_urls=["https://huggingface.co/docs/transformers/perplexity"],
        )

    def _compute(self, predictions, protocol="stream", num_words=None, num_characters=None, **model_arguments):
        if protocol not in ("stream", "sentence"):
            raise ValueError(f'protocol must be "stream" or "sentence", got {protocol!r}')
        if not len(predictions):
            raise ValueError("nothing to score: predictions are empty")
        if self.config_name == "texts":
            log_likelihoods, num_tokens = _score_texts(predictions, protocol, **model_arguments)
        elif model_arguments:
            raise ValueError(
                f'{", ".join(model_arguments)}: use evaluate.load("eval/perplexity", "texts") with a model'
            )
        else:
            log_likelihoods, num_tokens = _sum_log_probabilities(predictions)

        total = log_likelihoods.sum()
        scores = {
            "perplexity": _perplexity(total, num_tokens.sum()),
            "log_likelihood": float(total),
            "num_tokens": int(num_tokens.sum()),
        }
        if num_words is not None:
            scores["word_perplexity"] = _perplexity(total, _total(num_words, "num_words", len(predictions)))
        if num_characters is not None:
            num_characters = _total(num_characters, "num_characters", len(predictions))
            scores["bits_per_character"] = float(-total / np.log(2) / num_characters)
        if protocol == "sentence":
            scores["perplexities"] = [_perplexity(*item) for item in zip(log_likelihoods, num_tokens, strict=True)]
            scores["mean_perplexity"] = float(np.mean(scores["perplexities"]))
        if self.config_name == "texts":
            from onlstm_hf.scoring.coverage import unknown_words

            scores["unknown_words"] = unknown_words(model_arguments["tokenizer"], predictions)
        return scores


def _sum_log_probabilities(sequences: list[list[float]]) -> tuple[np.ndarray, np.ndarray]:
    """Log likelihood and number of tokens of each sequence."""
    for position, sequence in enumerate(sequences):
        values = np.asarray(sequence, dtype=np.float64)
        if not len(values):
            raise ValueError(f"sequence {position} has no tokens")
        if np.isnan(values).any() or (values > 1e-6).any():
            wrong = next(value for value in values if not value <= 1e-6)
            raise ValueError(f"sequence {position}: {wrong} is not a natural log probability, which is at most 0")
    return np.array([np.sum(sequence) for sequence in sequences]), np.array([len(sequence) for sequence in sequences])


def _score_texts(texts, protocol, model=None, tokenizer=None, batch_size=None) -> tuple[np.ndarray, np.ndarray]:
    """Log likelihood and number of tokens of the whole stream, or of each sentence.

    An `<eos>` stands before what is scored, and every token is predicted, the first one included.
    """
    from onlstm_hf.scoring.sentences import score_sentences
    from onlstm_hf.scoring.stream import encode_sentence_stream, stream_log_likelihood

    if model is None or tokenizer is None:
        raise ValueError("texts are scored by a model: pass model=... and tokenizer=...")
    if protocol == "sentence":
        scores = [score.total() for score in score_sentences(model, tokenizer, texts, batch_size or 64)]
    else:
        scores = [stream_log_likelihood(model, encode_sentence_stream(tokenizer, texts), batch_size or 1)]
    return (
        np.array([score.total_log_likelihood for score in scores]),
        np.array([score.num_tokens for score in scores]),
    )


def _perplexity(log_likelihood: float, count: int) -> float:
    with np.errstate(over="ignore"):
        return float(np.exp(-log_likelihood / count))


def _total(counts: list[int], name: str, num_sequences: int) -> int:
    if len(counts) != num_sequences:
        raise ValueError(f"{name} must have one count per sequence: got {len(counts)} for {num_sequences} sequences")
    if min(counts) < 0 or sum(counts) == 0:
        raise ValueError(f"{name} must be counts, at least one above 0")
    return sum(counts)
