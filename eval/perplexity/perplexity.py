"""Perplexity with its protocol spelled out, as a metric of the `evaluate` library."""

import datasets
import evaluate
import numpy as np

_DESCRIPTION = """\
Perplexity of a language model: the exponential of the mean negative log probability per token and, with counts, per
word, and the bits per character. The inputs are the log probabilities of the tokens. The protocol (one stream with the
state carried, or independent sentences) is explicit.
"""

_INPUTS_DESCRIPTION = """
Args:
    predictions: natural log probabilities of the tokens of each sequence.
    protocol: `"stream"`: the sequences are consecutive parts of one stream; every token counts once. `"sentence"`: the
        sequences are independent; adds the perplexity of each and their mean.
    num_words: number of words of each sequence, for `word_perplexity`; the caller decides whether `<eos>` counts.
    num_characters: number of characters of each sequence, for `bits_per_character`.
Returns:
    `perplexity` (over all tokens together), `log_likelihood`, `num_tokens`; with counts `word_perplexity` and
    `bits_per_character`; for the sentence protocol `perplexities` and `mean_perplexity`.
"""


class Perplexity(evaluate.Metric):
    """Perplexity from log probabilities."""

    def _info(self):
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation="Jelinek, Mercer, Bahl & Baker (1977); the card has the BibTeX entry",
            inputs_description=_INPUTS_DESCRIPTION,
            features=datasets.Features({"predictions": datasets.Sequence(datasets.Value("float64"))}),
            reference_urls=["https://huggingface.co/docs/transformers/perplexity"],
        )

    def _compute(self, predictions, protocol="stream", num_words=None, num_characters=None):
        if protocol not in ("stream", "sentence"):
            raise ValueError(f'protocol must be "stream" or "sentence", got {protocol!r}')
        if not len(predictions):
            raise ValueError("nothing to score: predictions are empty")
        for position, sequence in enumerate(predictions):
            if not len(sequence):
                raise ValueError(f"sequence {position} has no tokens")
            for value in sequence:
                if not value <= 1e-6:
                    raise ValueError(
                        f"sequence {position}: {value} is not a natural log probability, which is at most 0"
                    )
        log_likelihoods, num_tokens = np.array([(np.sum(sequence), len(sequence)) for sequence in predictions]).T
        total = log_likelihoods.sum()
        scores = {
            "perplexity": _perplexity(total, num_tokens.sum()),
            "log_likelihood": float(total),
            "num_tokens": int(num_tokens.sum()),
        }
        if num_words is not None:
            scores["word_perplexity"] = _perplexity(total, _total(num_words, "num_words", len(predictions)))
        if num_characters is not None:
            count = _total(num_characters, "num_characters", len(predictions))
            scores["bits_per_character"] = float(-total / np.log(2) / count)
        if protocol == "sentence":
            scores["perplexities"] = [_perplexity(*item) for item in zip(log_likelihoods, num_tokens, strict=True)]
            scores["mean_perplexity"] = float(np.mean(scores["perplexities"]))
        return scores


def _perplexity(log_likelihood: float, count: int) -> float:
    with np.errstate(over="ignore"):
        return float(np.exp(-log_likelihood / count))


def _total(counts: list[int], name: str, num_sequences: int) -> int:
    if len(counts) != num_sequences:
        raise ValueError(f"{name} must have one count per sequence: got {len(counts)} for {num_sequences} sequences")
    if min(counts) < 0 or sum(counts) == 0:
        raise ValueError(f"{name} must be counts, at least one above 0")
    return sum(counts)
