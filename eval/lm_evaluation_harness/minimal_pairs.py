"""Metric of minimal pairs for lm-evaluation-harness, in which a tie is not correct."""

from collections.abc import Sequence

# Log probabilities of the same tokens in different batches differ by rounding.
ROUNDING = 1e-4


def compare(doc: dict, results: Sequence[tuple[float, bool]]) -> dict[str, float]:
    """Returns whether the grammatical sentence of a pair is more probable, and whether there is a tie.

    The `acc` of the harness counts a tie as correct. A word-level model ties if the sentences only differ in unknown
    words. `results` have the log probability of each sentence, and whether greedy decoding would produce it.
    """
    (grammatical, _), (ungrammatical, _) = results
    difference = grammatical - ungrammatical
    return {"acc": float(difference > ROUNDING), "ties": float(abs(difference) <= ROUNDING)}
