"""Narrative cloze: recall of held-out events among the most probable events of a model."""

from collections.abc import Iterable, Sequence

from eval.narrative_cloze.event_files import RARE, Script

NUM_PREDICTIONS = 25


def score_cloze(scripts: Sequence[Script], predictions: Iterable[Sequence[Script]]) -> dict[str, float]:
    """Scores predictions of every event except the first of each script.

    Returns:
        `num_events`; `recall`, the share of events among the predictions for their position; `verb_recall`, the share
        of events whose verb is in a prediction; and `recall_without_rare`, the recall on the `num_events_without_rare`
        events without the word `?`.
    """
    pairs = [
        (event, prediction)
        for script, predicted in zip(scripts, predictions, strict=True)
        for event, prediction in zip(script[1:], predicted, strict=True)
    ]
    if not pairs:
        raise ValueError("no held-out document has two events")
    hits = [event in prediction for event, prediction in pairs]
    verb_hits = [event[0] in {guess[0] for guess in prediction} for event, prediction in pairs]
    hits_without_rare = [
        hit for hit, (event, _) in zip(hits, pairs, strict=True) if not any(word[2:] == RARE for word in event)
    ]
    return {
        "num_events": len(pairs),
        "recall": sum(hits) / len(pairs),
        "verb_recall": sum(verb_hits) / len(pairs),
        "num_events_without_rare": len(hits_without_rare),
        "recall_without_rare": sum(hits_without_rare) / max(1, len(hits_without_rare)),
    }
