"""Minimal pairs in lm-evaluation-harness, where a tie is not correct."""

from collections.abc import Sequence

# Log probabilities of the same tokens differ by rounding where the batches that they were computed in differ.
ROUNDING = 1e-4


def compare(doc: dict, results: Sequence[tuple[float, bool]]) -> dict[str, float]:
    """Returns whether the grammatical sentence of a pair is more probable, and whether both are equally probable.

    The harness's own `acc` gives a tie to the first sentence, which is the grammatical one: to a model of words, pairs
    that differ in words outside its vocabulary are the same sentence twice.

    Args:
        doc: the pair.
        results: for the grammatical sentence and the other one the log probability, and whether greedy decoding
            would write it.
    """
    (grammatical, _), (ungrammatical, _) = results
    difference = grammatical - ungrammatical
    return {"acc": float(difference > ROUNDING), "ties": float(abs(difference) <= ROUNDING)}
