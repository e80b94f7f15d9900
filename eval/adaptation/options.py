"""Methods of adaptation to the scored text, their options, and the search for settings."""

import argparse
import math
from collections.abc import Collection, Mapping, Sequence
from itertools import product
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
from onlstm_hf.utils.files import check_is_text_file
from onlstm_hf.utils.programs import positive_integer


class Method(NamedTuple):
    """Description of a method of adaptation, and the grid: default values to try with `--tune`, by option."""

    description: str
    grid: dict[str, list]


def _with_cache(method: Method) -> Method:
    return Method(f"{method.description}, with a {CACHE.description}", method.grid | CACHE.grid)


CACHE = Method(
    "continuous cache pointer (Grave et al. 2016)",
    {
        "cache_size": [500],
        "cache_flatness": [0.0, 0.1, 0.2, 0.3, 0.5, 0.8],
        "cache_weight": [0.05, 0.1, 0.15, 0.2, 0.3],
    },
)
SGD = Method(
    "dynamic evaluation, SGD with decay (Krause et al. 2018)",
    {"learning_rate": [0.03, 0.1, 0.3], "decay": [0.0, 0.001, 0.01], "segment_length": [5]},
)
RMS = Method(
    "dynamic evaluation, RMS-normalised with decay (Krause et al. 2018)",
    {"learning_rate": [1e-4, 3e-4, 1e-3], "decay": [0.0, 0.001, 0.01], "segment_length": [5], "epsilon": [1.0]},
)
SINGLE_METHODS = {"cache": CACHE, "dynamic-sgd": SGD, "dynamic-rms": RMS}
METHODS = SINGLE_METHODS | {"dynamic-sgd-cache": _with_cache(SGD), "dynamic-rms-cache": _with_cache(RMS)}
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
    group = parser.add_argument_group(
        "adaptation to the text",
        "Several values of a setting form a grid for --tune. The default grid of each method is in brackets; "
        "dynamic-sgd-cache and dynamic-rms-cache have the settings of both methods.",
    )
    methods = "; ".join(f"{name}: {method.description}" for name, method in METHODS.items())
    group.add_argument("--adapt", choices=[*METHODS], help=methods)
    for option, (kind, description) in OPTIONS.items():
        grids = {name: method.grid[option] for name, method in SINGLE_METHODS.items() if option in method.grid}
        defaults = "; ".join(f"{name}: {' '.join(map(str, values))}" for name, values in grids.items())
        group.add_argument(_flag(option), type=kind, nargs="+", metavar="X", help=f"{description} ({defaults})")
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

    Raises:
        FileNotFoundError: if there is no such training text.
        ValueError: if options do not fit together.
    """
    names = (*OPTIONS, "training_text", "tune", "tune_tokens")
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    if options.adapt is None:
        for name in given:
            if not (options.mix and name.startswith("tune")):
                raise ValueError(f"{_flag(name)} is a setting of --adapt, which is not given")
        return None
    grid = METHODS[options.adapt].grid
    needs_training_text = "epsilon" in grid  # relative to the root mean squares of gradients
    settings = [*grid, "tune", "tune_tokens", *(["training_text"] if needs_training_text else [])]
    for name in given:
        if name not in settings:
            raise ValueError(f"{_flag(name)} is no setting of --adapt {options.adapt}")
    if options.tune is not None and options.tune not in texts:
        raise ValueError(f"--tune {options.tune} is none of the texts: {', '.join(texts)}")
    if options.tune is None and options.tune_tokens:
        raise ValueError("--tune-tokens needs --tune TEXT")
    if needs_training_text:
        if options.training_text is None:
            raise ValueError(f"--adapt {options.adapt} needs the training text: give --training-text")
        check_is_text_file(options.training_text)
    values = product(*(given.get(option, tried) for option, tried in grid.items()))
    candidates = [dict(zip(grid, candidate, strict=True)) for candidate in values]
    if options.tune is None and len(candidates) > 1:
        raise ValueError(
            f"there are {len(candidates)} settings to choose from: give --tune TEXT, or one value each of "
            f"{', '.join(map(_flag, grid))}"
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
