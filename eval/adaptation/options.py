"""Methods of adaptation to the scored text, their options, and the search for settings."""

import argparse
import math
from collections.abc import Collection, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from eval.adaptation.cache_pointer import CachePointer
from eval.adaptation.dynamic_evaluation import (
    MODEL_ALONE,
    DynamicEvaluation,
    DynamicEvaluationDiverged,
    adapted_log_probabilities,
    gradient_root_mean_squares,
)
from eval.data.texts import read_sentences
from onlstm_hf.scoring.stream import StreamScore, encode_sentence_stream
from onlstm_hf.utils.programs import positive_integer


class Method(NamedTuple):
    """Description of a method of adaptation, and the grid: default values to try with `--tune`, by option."""

    description: str
    grid: dict[str, list]

    @property
    def needs_training_text(self) -> bool:
        """Whether the method needs a training text, for the root mean squares that `epsilon` is relative to."""
        return "epsilon" in self.grid

    def __or__(self, other: "Method") -> "Method":
        """Combines two methods."""
        return Method(f"{self.description}, with a {other.description}", self.grid | other.grid)


SINGLE_METHODS = {
    "cache": Method(
        "continuous cache pointer (Grave et al. 2016)",
        {
            "cache_size": [500],
            "cache_flatness": [0.0, 0.1, 0.2, 0.3, 0.5, 0.8],
            "cache_weight": [0.05, 0.1, 0.15, 0.2, 0.3],
        },
    ),
    "dynamic-sgd": Method(
        "dynamic evaluation, SGD with decay (Krause et al. 2018)",
        {"learning_rate": [0.03, 0.1, 0.3], "decay": [0.0, 0.001, 0.01], "segment_length": [5]},
    ),
    "dynamic-rms": Method(
        "dynamic evaluation, RMS-normalised with decay (Krause et al. 2018)",
        {
            "learning_rate": [1e-4, 3e-4, 1e-3],
            "decay": [0.0, 0.001, 0.01],
            "segment_length": [5],
            "epsilon": [1.0],
        },
    ),
}
WITH_CACHE = {
    f"{name}-cache": SINGLE_METHODS[name] | SINGLE_METHODS["cache"] for name in ("dynamic-sgd", "dynamic-rms")
}
METHODS = SINGLE_METHODS | WITH_CACHE
OPTIONS = {
    "cache_size": (positive_integer, "number of words in the cache"),
    "cache_flatness": (float, "theta, the scale of the scores in the cache"),
    "cache_weight": (float, "lambda, the share of the cache in a probability"),
    "learning_rate": (float, "eta"),
    "decay": (float, "lambda, the fraction of the distance to the original weights that an update goes back"),
    "segment_length": (positive_integer, "tokens between two updates"),
    "epsilon": (float, "constant added to the root mean squares of the gradients, in units of their mean"),
}
# Number of tokens of the training text for the root mean squares of gradients.
GRADIENT_TOKENS = 100_000


def add_adaptation_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that `read_candidates` reads."""
    grids = "; ".join(
        f"for {name} " + ", ".join(f"{option} {' '.join(map(str, values))}" for option, values in method.grid.items())
        for name, method in SINGLE_METHODS.items()
    )
    group = parser.add_argument_group(
        "adaptation to the text",
        "Several values of settings form a grid for --tune. The default grids are: "
        f"{grids}. {' and '.join(WITH_CACHE)} have the settings of both methods.",
    )
    methods = "; ".join(f"{name}: {method.description}" for name, method in METHODS.items())
    group.add_argument("--adapt", choices=[*METHODS], help=methods)
    for option, (kind, description) in OPTIONS.items():
        users = ", ".join(name for name, method in SINGLE_METHODS.items() if option in method.grid)
        group.add_argument(
            _flag(option),
            type=kind,
            nargs="+",
            metavar="N" if kind is positive_integer else "X",
            help=f"{description} ({users})",
        )
    group.add_argument(
        "--tune",
        metavar="TEXT",
        help="validation text, one of the files or splits: its best settings (and weights of --mix) score all texts",
    )
    group.add_argument("--tune-tokens", type=positive_integer, metavar="N", help="tune on its first N tokens (all)")
    group.add_argument(
        "--training-text", metavar="FILE", help="training text for the mean squares of gradients (dynamic-rms)"
    )


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"


def read_candidates(options: argparse.Namespace, texts: Collection[str]) -> list[dict[str, float]] | None:
    """Checks the options and returns the candidate settings (values by option); `None` without an adaptation.

    Args:
        options: options of the command line, including `--mix`.
        texts: names of the texts.

    Raises:
        FileNotFoundError: if there is no such training text.
        ValueError: if options do not fit together.
    """
    given = {option: values for option in OPTIONS if (values := getattr(options, option)) is not None}
    if options.adapt is None:
        adaptation_options = ("training_text",) if options.mix else ("tune", "tune_tokens", "training_text")
        for option in (*given, *(name for name in adaptation_options if getattr(options, name))):
            raise ValueError(f"{_flag(option)} is a setting of --adapt, which is not given")
        return None
    method = METHODS[options.adapt]
    for option in given:
        if option not in method.grid:
            raise ValueError(f"{_flag(option)} is no setting of --adapt {options.adapt}")
    if options.tune is not None and options.tune not in texts:
        raise ValueError(f"--tune {options.tune} is none of the texts: {', '.join(texts)}")
    if options.tune is None and options.tune_tokens:
        raise ValueError("--tune-tokens needs --tune TEXT")
    if (options.training_text is None) == method.needs_training_text:
        needs = "needs the training text: give" if method.needs_training_text else "takes no"
        raise ValueError(f"--adapt {options.adapt} {needs} --training-text")
    if options.training_text is not None and not Path(options.training_text).is_file():
        raise FileNotFoundError(f"there is no file {options.training_text} (--training-text)")
    values = product(*(given.get(option, tried) for option, tried in method.grid.items()))
    candidates = [dict(zip(method.grid, candidate, strict=True)) for candidate in values]
    if options.tune is None and len(candidates) > 1:
        raise ValueError(
            f"there are {len(candidates)} settings to choose from: give --tune TEXT, or one value each of "
            f"{', '.join(map(_flag, method.grid))}"
        )
    for candidate in candidates:
        for settings in (_dynamic(candidate), _cache(candidate)):
            if settings:
                settings.check()
    return candidates


def _dynamic(candidate: Mapping[str, float]) -> DynamicEvaluation | None:
    fields = {name: candidate[name] for name in DynamicEvaluation._fields if name in candidate}
    return DynamicEvaluation(**fields) if fields else None


def _cache(candidate: Mapping[str, float]) -> CachePointer:
    if "cache_size" not in candidate:
        return MODEL_ALONE
    return CachePointer(*(candidate[f"cache_{name}"] for name in CachePointer._fields))


def adapt(
    options: argparse.Namespace,
    candidates: Sequence[dict[str, float]],
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Mapping[str, list[str]],
) -> tuple[dict, dict[str, torch.Tensor]]:
    """Chooses the settings and scores every text with them.

    Args:
        options: options of the command line.
        candidates: result of `read_candidates`.
        texts: lines of each text, by its name.

    Returns:
        An entry for the results file with `method`, `description`, `settings`, and `tuning` with the perplexity of
        every candidate (`None` if it diverged); and the log probabilities of the tokens of each text.
    """
    streams = {name: encode_sentence_stream(tokenizer, lines) for name, lines in texts.items()}
    gradient_rms = None
    if options.training_text is not None:
        training_text = encode_sentence_stream(tokenizer, read_sentences(options.training_text))[:GRADIENT_TOKENS]
        gradient_rms = gradient_root_mean_squares(model, training_text)

    def score(stream: torch.Tensor, settings: Sequence[dict]) -> list[torch.Tensor | None]:
        return _log_probabilities(model, stream, settings, gradient_rms, options.batch_size)

    description = {"method": options.adapt, "description": METHODS[options.adapt].description, "tuning": None}
    best = 0
    if options.tune is not None:
        stream = streams[options.tune][: options.tune_tokens]
        scores = [
            None if log_probabilities is None else StreamScore(log_probabilities.sum().item(), len(log_probabilities))
            for log_probabilities in score(stream, candidates)
        ]
        losses = [math.inf if score is None else score.loss for score in scores]
        if min(losses) == math.inf:
            raise ValueError("every learning rate of the grid is too high: the weights become infinite")
        best = losses.index(min(losses))
        description["tuning"] = {
            "text": options.tune,
            "num_tokens": len(stream),
            "grid": [
                candidate | {"perplexity": score and score.perplexity}
                for candidate, score in zip(candidates, scores, strict=True)
            ],
        }
    description["settings"] = candidates[best]
    if gradient_rms is not None:
        description["gradient_tokens"] = len(training_text)
    return description, {name: score(stream, [candidates[best]])[0] for name, stream in streams.items()}


def _log_probabilities(
    model: PreTrainedModel,
    stream: torch.Tensor,
    candidates: Sequence[Mapping[str, float]],
    gradient_rms: Sequence[torch.Tensor] | None,
    batch_size: int,
) -> list[torch.Tensor | None]:
    """Returns the log probabilities for each candidate, `None` for settings that diverged.

    The model runs once for all caches with the same settings of dynamic evaluation.
    """
    settings = [(_dynamic(candidate), _cache(candidate)) for candidate in candidates]
    by_setting: dict[tuple, torch.Tensor | None] = {}
    for dynamic in dict.fromkeys(dynamic for dynamic, _ in settings):
        caches = [cache for other, cache in settings if other == dynamic]
        try:
            scores = adapted_log_probabilities(model, stream, dynamic, caches, gradient_rms, batch_size)
        except DynamicEvaluationDiverged:
            if dynamic is None or len(candidates) == 1:
                raise
            scores = [None] * len(caches)
        by_setting |= zip(((dynamic, cache) for cache in caches), scores, strict=True)
    return [by_setting[setting] for setting in settings]
