"""Scripts as text files: one document per line, five words per event, with the role as a prefix of each word."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from eval.narrative_cloze.entities import NONE, entity_arguments
from eval.narrative_cloze.events import Event
from eval.narrative_cloze.penn_trees import noun_lemma, verb_lemma
from onlstm_hf.utils.files import read_text_file, written_file

PARTS = ("train", "valid", "test")
# The five words of an event: verb, three arguments (subject, object, prepositional object), preposition.
KINDS = ("v:", "a:", "a:", "a:", "p:")
RARE = "?"
Script = list[tuple[str, ...]]  # the events of a document, five words each


def write_script(events: Sequence[Event], has_entities: bool) -> Script:
    """Returns the words of a document's events, with entities or lemmas of nouns as arguments."""
    nouns = [[noun_lemma(head) if head else NONE for head in event[2:5]] for event in events]
    script = []
    for event, arguments in zip(events, entity_arguments(events) if has_entities else nouns, strict=True):
        verb = "_".join([verb_lemma(event.verb), *([event.particle.word.lower()] if event.particle else [])])
        preposition = event.preposition.word.lower() if event.preposition else NONE
        words = (verb, *arguments, preposition)
        script.append(tuple(kind + word for kind, word in zip(KINDS, words, strict=True)))
    return script


def split(documents: Sequence) -> dict[str, list]:
    """Splits documents: every fifth is test, the next one validation, all others training."""
    train = [document for index, document in enumerate(documents) if index % 5 not in (0, 4)]
    return {"train": train, "valid": list(documents[::5]), "test": list(documents[4::5])}


def replace_rare(parts: dict[str, list[Script]], min_count: int) -> dict[str, list[Script]]:
    """Replaces words that are rarer than `min_count` in the training scripts by `v:?`, `a:?` or `p:?`."""
    counts = Counter(word for script in parts["train"] for event in script for word in event)

    def written(word: str) -> str:
        return word if counts[word] >= min_count else word[:2] + RARE

    return {
        part: [[tuple(map(written, event)) for event in script] for script in scripts]
        for part, scripts in parts.items()
    }


def write_scripts(folder: str | os.PathLike, parts: dict[str, list[Script]]) -> None:
    """Writes `train.txt`, `valid.txt` and `test.txt` into a folder, which is created if needed."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for part, scripts in parts.items():
        with written_file(Path(folder, f"{part}.txt")) as file:
            file.writelines(" ".join(word for event in script for word in event) + "\n" for script in scripts)


def read_scripts(path: str | os.PathLike) -> list[Script]:
    """Reads the scripts of a file, one per line; a `ValueError` names a line that does not consist of events."""
    scripts = []
    for number, line in enumerate(read_text_file(path), start=1):
        words, size = line.split(), len(KINDS)
        script = [tuple(words[start : start + size]) for start in range(0, len(words), size)]
        for event in script:
            if len(event) != size or not all(map(str.startswith, event, KINDS)):
                raise ValueError(f"{path}, line {number}: {' '.join(event)} is not an event ({' '.join(KINDS)})")
        scripts.append(script)
    return scripts


def describe(scripts: Sequence[Script]) -> dict[str, float]:
    """Counts documents, events, different events, and events per document."""
    num_events = sum(map(len, scripts))
    return {
        "num_documents": len(scripts),
        "num_events": num_events,
        "num_different_events": len({event for script in scripts for event in script}),
        "events_a_document": num_events / max(1, len(scripts)),
    }
