"""Scripts: recall at 25 of the narrative cloze for count models and for language models.

    python eval/narrative_cloze/evaluate_scripts.py runs/scripts_lstm/seed_*/best --events runs/events/nouns

Every event except the first of each test document is predicted from the events before it. `write_events.py` in this
folder writes the documents. training/recipes/scripts_lstm.yaml and scripts_onlstm.yaml train the language models.
"""

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
from transformers import PreTrainedConfig

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the checkout that this script belongs to

from eval.narrative_cloze.event_files import PARTS, RARE, Script, describe, read_scripts
from eval.narrative_cloze.language_model import ScriptLanguageModel
from eval.report.by_task.narrative_cloze import cloze_table
from eval.report.tables import format_table
from eval.report.tasks import NARRATIVE_CLOZE
from eval.task import add_model_options, describe_checkpoint, load_model, run_task, task_parser
from onlstm_hf.utils.iteration import progress_bar
from onlstm_hf.utils.programs import positive_integer

NUM_PREDICTIONS = 25
WINDOWS, PRIORS = (1, 3, 10), (1.0, 10.0, 100.0)
PROTOCOL = (
    f"every event but the first of a test document, predicted from those before it: right if it is one of the "
    f"{NUM_PREDICTIONS} that the model finds likeliest; for the verb recall, if its verb is the verb of one of them; "
    "the settings of the bigrams are those with the best recall on the validation documents"
)


def build_parser() -> argparse.ArgumentParser:
    parser = task_parser(__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="checkpoint folders, several seeds of a system too")
    parser.add_argument(
        "--events", required=True, metavar="FOLDER", help="folder of train.txt, valid.txt and test.txt"
    )
    parser.add_argument("--beam-size", type=positive_integer, default=100, metavar="N", help="beam size (%(default)s)")
    add_model_options(parser)
    return parser


def evaluate_scripts(options: argparse.Namespace) -> dict:
    """Scores the count models and the language models, prints the table and returns the results."""
    parts = {part: read_scripts(Path(options.events, f"{part}.txt")) for part in PARTS}
    models = count_models(parts)
    for name in options.models:
        model, tokenizer = load_model(name, options)
        search = ScriptLanguageModel(model, tokenizer, options.beam_size)
        scores = score_cloze(parts["test"], search.predict(parts["test"], NUM_PREDICTIONS))
        models.append({**describe_checkpoint(name, model), "system": system_name(model.config), "scores": scores})
    results = {
        "task": NARRATIVE_CLOZE,
        "arguments": Path(options.events).name,
        "models": models,
        "documents": {part: describe(scripts) for part, scripts in parts.items()},
        "protocol": {"description": PROTOCOL, "beam_size": options.beam_size},
    }
    print(f"{PROTOCOL}\n\n{format_table(*cloze_table({options.events: results}))}")
    return results


def count_models(parts: dict[str, list[Script]]) -> list[dict]:
    """Scores unigrams, and bigrams with the window and prior of the best recall on the validation scripts."""

    def score(part: str, model: CountModel) -> dict:
        scripts = parts[part]
        return score_cloze(scripts, [list(model.predict(script, NUM_PREDICTIONS)) for script in scripts])

    settings = [{"window": window, "prior": prior} for window, prior in product(WINDOWS, PRIORS)]
    candidates = progress_bar(settings, description="bigrams", unit="setting")
    best = max(candidates, key=lambda setting: score("valid", CountModel(parts["train"], **setting))["recall"])
    return [
        {"system": "unigram", "scores": score("test", CountModel(parts["train"]))},
        {"system": "bigram", "settings": best, "scores": score("test", CountModel(parts["train"], **best))},
    ]


class CountModel:
    """Predicts events of the training scripts by counts of single events or of pairs.

    The unigram model scores an event b by its frequency P(b). The all-bigram model of Pichotta & Mooney (2016)
    sums log P(b | a) over all events a before the held-out event. C(a, b) counts how often b is among the `window`
    events after a. The bigrams are smoothed with the unigrams, because the data are few:

        P(b | a) = (C(a, b) + prior * P(b)) / (C(a) + prior),    and P(b) for an unseen a

    The `window` of unigrams is 0. Ties are in the order of first occurrence.
    """

    def __init__(self, scripts: Sequence[Script], window: int = 0, prior: float = 1.0):
        counts = Counter(event for script in scripts for event in script)
        self.window, self.prior = window, prior
        self.events = list(counts)
        self.ids = {event: number for number, event in enumerate(self.events)}
        self.frequencies = np.array(list(counts.values())) / counts.total()
        self.followers: dict[int, Counter[int]] = defaultdict(Counter)
        for script in scripts:
            ids = [self.ids[event] for event in script]
            for place, first in enumerate(ids):
                self.followers[first].update(ids[place + 1 : place + 1 + window])

    def log_conditionals(self, event: tuple[str, ...]) -> np.ndarray:
        """Returns the natural logarithms of P(b | event) for all events b."""
        counts = self.followers.get(self.ids.get(event), Counter())
        probabilities = self.prior * self.frequencies
        probabilities[list(counts)] += list(counts.values())
        return np.log(probabilities / (counts.total() + self.prior))

    def predict(self, script: Script, count: int) -> Iterator[Script]:
        """Yields the `count` most probable events, the best first, for each event after the first."""
        scores = np.zeros(len(self.events))
        for event in script[:-1]:
            scores = scores + self.log_conditionals(event) if self.window else self.frequencies
            best = np.argsort(-scores, kind="stable")[:count]
            yield [self.events[index] for index in best]


def score_cloze(scripts: Sequence[Script], predictions: Iterable[Sequence[Script]]) -> dict[str, float]:
    """Scores predictions of every event except the first of each script.

    The recall is the share of events among the predictions for their position, the verb recall that of events whose
    verb is in a prediction. Rare events have the word `?`.
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


def system_name(config: PreTrainedConfig) -> str:
    """Returns the name of a language model in the table; models with the same name are seeds of one system."""
    return {"onlstm": "ON-LSTM"}.get(config.model_type, getattr(config, "cell_type", config.model_type).upper())


main = partial(run_task, "eval/narrative_cloze/evaluate_scripts.py", build_parser, evaluate_scripts)

if __name__ == "__main__":
    sys.exit(main())
