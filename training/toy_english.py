"""Toy English: a corpus with gold trees, sampled from a small probabilistic grammar.

The sentences have constructions that make English hard to parse and agreement hard to predict: relative clauses and
prepositional phrases between subject and verb, coordinated noun phrases, verb phrases and clauses, prepositional
phrases that modify a noun or a verb, and embedded clauses. The vocabulary has about 150 words. A small language model
learns it within minutes. Trees have the labels and part-of-speech tags of the Penn Treebank.
"""

import json
import math
import os
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from onlstm_hf.utils.files import written_file

# Expansions of each symbol with relative weights. A symbol is LABEL-kind.number; trees show only the label. Lower-case
# symbols are not shown. The number is `sg` or `pl`, for verbs also `base` (the infinitive). In a rule `.n` and `.m`
# are variables for either number, `.v` for any verb form. A variable has one value per rule, so that verbs agree.
# Kinds of nouns: `who` for people and animals, `what` for things, `where` for places. Kinds of verbs have the name of
# an example.
GRAMMAR = {
    "S": {"clause": 76, "SBAR-when clause": 12, "S-plain CC-but S-plain": 12},
    "S-plain": {"clause": 1},
    "clause": {"subject.n VP.n": 85, "NP-what.n VP-is.n": 15},
    "subject.n": {"NP-who.n": 85, "NP-pronoun.n": 15},
    "SBAR-when": {"IN-when S-short": 1},
    "SBAR-that": {"IN-that S-plain": 1},
    "S-short": {"NP-who-simple.n VP-short.n": 1},
    # Noun phrases
    "NP-who.n": {
        "DT.n N-who.n": 25,
        "DT.n JJ-who N-who.n": 15,
        "NP-who-simple.n PP-beside": 20,
        "NP-who-simple.n SBAR-who.n": 25,
    },
    "NP-who.sg": {"NNP": 5},
    "NP-who.pl": {"NP-who-simple.n CC NP-who-simple.m": 15},
    "NP-who-simple.n": {"DT.n N-who.n": 75, "DT.n JJ-who N-who.n": 25},
    "NP-what.n": {
        "DT.n N-what.n": 35,
        "DT.n JJ-what N-what.n": 20,
        "NP-what-simple.n PP-where": 20,
        "NP-what-simple.n SBAR-what": 15,
    },
    "NP-what.pl": {"NP-what-simple.n CC NP-what-simple.m": 10},
    "NP-what-simple.n": {"DT.n N-what.n": 75, "DT.n JJ-what N-what.n": 25},
    "NP-where.n": {"DT.n N-where.n": 80, "DT.n JJ-where N-where.n": 20},
    "NP-pronoun.n": {"PRP.n": 1},
    # Relative clauses; in a subject relative clause the verb agrees with the noun outside
    "SBAR-who.n": {"WHNP-who S-subject-gap.n": 60, "WHNP-who S-see-gap": 40},
    "SBAR-what": {"WHNP-what S-carry-gap": 1},
    "S-subject-gap.n": {"VP-short.n": 1},
    "S-see-gap": {"NP-who-simple.n VP-see-gap.n": 1},
    "S-carry-gap": {"NP-who-simple.n VP-carry-gap.n": 1},
    "VP-see-gap.n": {"V-see.n": 1},
    "VP-carry-gap.n": {"V-carry.n": 1},
    "WHNP-who": {"WP": 1},
    "WHNP-what": {"WDT": 1},
    # Verb phrases
    "VP.n": {"MD VP.base": 8},
    "VP.v": {
        "V-sleep.v": 6,
        "V-sleep.v ADVP-quickly": 6,
        "V-sleep.v PP-where": 8,
        "ADVP-often V-sleep.v": 4,
        "V-see.v NP-who.n": 14,
        "V-see.v NP-who-simple.n PP-where": 8,
        "ADVP-often V-see.v NP-who-simple.n": 4,
        "V-carry.v NP-what.n": 12,
        "V-carry.v NP-what-simple.n PP-where": 8,
        "V-carry.v NP-what-simple.n ADVP-quickly": 4,
        "V-give.v NP-who-simple.n NP-what-simple.m": 6,
        "V-give.v NP-what-simple.n PP-to": 6,
        "V-think.v SBAR-that": 6,
        "VP-short.v CC VP-short.v": 10,
    },
    "VP-short.v": {
        "V-sleep.v": 30,
        "V-sleep.v ADVP-quickly": 10,
        "V-sleep.v PP-where": 10,
        "V-see.v NP-who-simple.n": 30,
        "V-carry.v NP-what-simple.n": 20,
    },
    "VP-is.n": {"V-is.n ADJP": 1, "V-is.n PP-where": 1},
    # Modifiers
    "ADJP": {"JJ-what": 70, "RB-very JJ-what": 30},
    "ADVP-often": {"RB-often": 1},
    "ADVP-quickly": {"RB-quickly": 1},
    "PP-where": {"IN-where NP-where.n": 1},
    "PP-beside": {"IN-beside NP-who-simple.n": 30, "IN-beside NP-where.n": 30, "IN-with NP-what-simple.n": 40},
    "PP-to": {"TO NP-who-simple.n": 1},
}

# Words of each preterminal symbol, with equal probability for each entry (a word may be listed twice). Nouns and verbs
# are given as singular/plural; the plural of a verb is also its infinitive.
LEXICON = {
    "N-who": "boy/boys girl/girls child/children woman/women king/kings farmer/farmers doctor/doctors "
    "teacher/teachers student/students dog/dogs cat/cats",
    "N-what": "book/books letter/letters picture/pictures box/boxes ball/balls lamp/lamps cake/cakes flower/flowers",
    "N-where": "house/houses garden/gardens school/schools city/cities river/rivers forest/forests",
    "V-sleep": "sleeps/sleep runs/run sings/sing laughs/laugh waits/wait works/work",
    "V-see": "sees/see hears/hear helps/help follows/follow likes/like meets/meet calls/call",
    "V-carry": "finds/find takes/take buys/buy carries/carry paints/paint",
    "V-give": "gives/give shows/show sends/send brings/bring",
    "V-think": "thinks/think says/say knows/know hopes/hope",
    "V-is": "is/are",
    "DT.sg": "the the the a a every this",
    "DT.pl": "the the the some two these",
    "PRP.sg": "he she",
    "PRP.pl": "they",
    "NNP": "mary john anna peter",
    "JJ-who": "young tall happy clever quiet small",
    "JJ-what": "big small red new heavy beautiful",
    "JJ-where": "big small new beautiful",
    "RB-often": "often always never",
    "RB-quickly": "quickly slowly quietly",
    "RB-very": "very",
    "MD": "will can must",
    "IN-where": "in near behind",
    "IN-beside": "beside near from",
    "IN-with": "with",
    "IN-that": "that",
    "IN-when": "when while because",
    "TO": "to",
    "WP": "who",
    "WDT": "that which",
    "CC": "and",
    "CC-but": "but and",
}
TAGS = {"N.sg": "NN", "N.pl": "NNS", "V.sg": "VBZ", "V.pl": "VBP", "V.base": "VB"}
VALUES = {".n": (".sg", ".pl"), ".m": (".sg", ".pl"), ".v": (".sg", ".pl", ".base")}
MIN_WORDS = 3
MAX_HEIGHT = 12


def generate_toy_treebank(num_sentences: int, seed: int = 0, max_words: int = 20) -> list[str]:
    """Samples distinct sentences of Toy English with at most `max_words` words.

    The same arguments yield the same sentences on every platform. A larger `num_sentences` appends sentences.

    Returns trees in Penn Treebank brackets, such as `(S (NP (DT the) (NN dog)) (VP (VBZ sleeps)))`. Raises a
    `ValueError` if the grammar has fewer different sentences of this length.
    """
    trees = list(islice(_distinct_trees(seed, max_words), num_sentences))
    if len(trees) < num_sentences:
        raise ValueError(f"found only {len(trees)} different sentences of {MIN_WORDS} to {max_words} words")
    return trees


def write_toy_corpus(
    folder: str | os.PathLike, num_train: int = 10_000, num_validation: int = 500, num_test: int = 500, seed: int = 0
) -> Path:
    """Writes a corpus of Toy English as a dataset folder, and returns the folder.

    `datasets.load_dataset(folder)` loads its splits `train`, `validation` and `test`, with the columns `text` (the
    words) and `tree` (the gold tree in Penn Treebank brackets). All sentences are distinct. The validation and test
    splits do not depend on `num_train`. Existing files are replaced.
    """
    if min(num_train, num_validation, num_test) < 1:
        raise ValueError("each split needs a sentence")
    trees = iter(generate_toy_treebank(num_test + num_validation + num_train, seed))
    test, validation, train = (list(islice(trees, size)) for size in (num_test, num_validation, num_train))
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for split, trees_of_split in {"train": train, "validation": validation, "test": test}.items():
        with written_file(folder / f"{split}.jsonl") as file:
            for tree in trees_of_split:
                file.write(json.dumps({"text": " ".join(tree_words(tree)), "tree": tree}) + "\n")
    return folder


class _Grammar:
    """Words of each preterminal symbol, weighted rules of the others, and heights of the smallest trees of all."""

    def __init__(self):
        self.words: dict[str, list[str]] = {}
        for symbol, words in LEXICON.items():
            if "/" in words:
                singular, plural = zip(*(word.split("/") for word in words.split()), strict=True)
                self.words |= {f"{symbol}.sg": singular, f"{symbol}.pl": plural, f"{symbol}.base": plural}
            else:
                self.words[symbol] = words.split()

        self.rules: dict[str, list[tuple[float, list[str]]]] = defaultdict(list)
        for pattern, expansions in GRAMMAR.items():
            for expansion, weight in expansions.items():
                rules = _instances(f"{pattern} -> {expansion}")
                share = weight * len(_instances(pattern)) / len(rules)
                for rule in rules:
                    symbol, symbols = rule.split(" -> ")
                    self.rules[symbol].append((share, symbols.split()))

        self.heights: dict[str, float] = defaultdict(lambda: math.inf, dict.fromkeys(self.words, 1))
        for _ in self.rules:
            for symbol, rules in self.rules.items():
                self.heights[symbol] = min(self._height(symbols) for _, symbols in rules)

    def _height(self, symbols: Iterable[str]) -> float:
        return 1 + max(self.heights[symbol] for symbol in symbols)

    def draw(self, rng: random.Random, symbol: str = "S", max_height: int = MAX_HEIGHT) -> str:
        """Samples a tree in brackets. Only rules that can end within `max_height` are used."""
        label = re.split(r"[-.]", symbol)[0]
        if symbol in self.words:
            tag = TAGS.get(re.sub(r"-\w+", "", symbol), label)
            return f"({tag} {_choose(rng, [(1, word) for word in self.words[symbol]])})"
        fitting = [(weight, symbols) for weight, symbols in self.rules[symbol] if self._height(symbols) <= max_height]
        children = " ".join(self.draw(rng, child, max_height - 1) for child in _choose(rng, fitting))
        return children if label.islower() else f"({label} {children})"


def _instances(rule: str) -> list[str]:
    """Returns the rule for each combination of values of its variables."""
    variable = next((variable for variable in VALUES if variable in rule), None)
    if variable is None:
        return [rule]
    return [instance for value in VALUES[variable] for instance in _instances(rule.replace(variable, value))]


def _choose(rng: random.Random, weighted_items: Sequence[tuple[float, Any]]) -> Any:
    """Samples with `random()`, the only method with the same numbers in every Python version."""
    threshold = rng.random() * sum(weight for weight, _ in weighted_items)
    for weight, item in weighted_items:
        threshold -= weight
        if threshold < 0:
            return item
    return weighted_items[-1][1]


def _distinct_trees(seed: int, max_words: int) -> Iterator[str]:
    """Yields trees with distinct sentences until many samples in a row bring no new one."""
    grammar, rng, seen, num_failures = _Grammar(), random.Random(seed), set(), 0
    while num_failures < 2000:
        tree = grammar.draw(rng)
        words = tuple(tree_words(tree))
        num_failures += 1
        if words not in seen and MIN_WORDS <= len(words) <= max_words:
            num_failures = 0
            seen.add(words)
            yield tree


def tree_words(tree: str) -> list[str]:
    return re.findall(r"([^() ]+)\)", tree)
