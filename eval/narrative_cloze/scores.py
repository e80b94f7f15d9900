"""The narrative cloze: how many held-out events are among the events that a model finds likeliest."""

from collections.abc import Iterable, Sequence

from eval.narrative_cloze.event_files import RARE, Script

NUM_PREDICTIONS = 25


def score_cloze(scripts: Sequence[Script], predictions: Iterable[Sequence[Script]]) -> dict[str, float]:
    """Scores predictions of every event but the first of each script.

    Returns:
        `num_events`; `recall`, the share of events that are among those predicted for their place; `verb_recall`, the
        share whose verb is the verb of one of them; `recall_without_rare`, the recall of the `num_events_without_rare`
        events in which no word is written `?`.

    Raises:
        ValueError: if there is no event to predict.
    """
    pairs = [
        (event, prediction)
        for script, predicted in zip(scripts, predictions, strict=True)
        for event, prediction in zip(script[1:], predicted, strict=True)
    ]
    if not pairs:
        raise ValueError("no held-out document has two events")
    hits = [event in prediction for event, prediction in pairs]
    verb_hits = [event[0] in {other[0] for other in prediction} for event, prediction in pairs]
    known = [hit for hit, (event, _) in zip(hits, pairs, strict=True) if not any(word[2:] == RARE for word in event)]
    return {
        "num_events": len(pairs),
        "recall": sum(hits) / len(pairs),
        "verb_recall": sum(verb_hits) / len(pairs),
        "num_events_without_rare": len(known),
        "recall_without_rare": sum(known) / max(1, len(known)),
    }
