"""Adaptation of a model to the text that it scores: methods, their options, and the search for settings."""

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from eval.adaptation.cache_pointer import CachePointer, cached_log_probabilities
from eval.adaptation.dynamic_evaluation import (
    MODEL_ALONE,
    DynamicEvaluation,
    DynamicEvaluationDiverged,
    dynamic_cached_log_probabilities,
    gradient_root_mean_squares,
)
from eval.data.texts import read_sentences
from onlstm_hf.scoring.stream import StreamScore, encode_sentence_stream
from onlstm_hf.utils.programs import positive_integer


class DynamicCache(NamedTuple):
    """Settings of dynamic evaluation, and of a cache beside the model."""

    dynamic: DynamicEvaluation
    cache: CachePointer = MODEL_ALONE

    def check(self) -> None:
        """Raises a `ValueError` for a setting out of its range."""
        self.dynamic.check()
        self.cache.check()


Settings = CachePointer | DynamicCache


class Method(NamedTuple):
    """A way to adapt.

    Attributes:
        description: what it is, with the paper.
        settings: makes its settings of the values of its options.
        grid: by option, in the order in which `settings` takes them, the values that `--tune` tries where the option
            is left out.
        needs_training_text: whether it reads the text that the model was trained on.
    """

    description: str
    settings: Callable[..., Settings]
    grid: dict[str, list]
    needs_training_text: bool = False


def _dynamic(*values: float) -> DynamicCache:
    return DynamicCache(DynamicEvaluation(*values))


SINGLE_METHODS = {
    "cache": Method(
        "continuous cache pointer (Grave et al. 2016)",
        CachePointer,
        {
            "cache_size": [500],
            "cache_flatness": [0.0, 0.1, 0.2, 0.3, 0.5, 0.8],
            "cache_weight": [0.05, 0.1, 0.15, 0.2, 0.3],
        },
    ),
    "dynamic-sgd": Method(
        "dynamic evaluation, SGD with decay (Krause et al. 2018)",
        _dynamic,
        {"learning_rate": [0.03, 0.1, 0.3], "decay": [0.0, 0.001, 0.01], "segment_length": [5]},
    ),
    "dynamic-rms": Method(
        "dynamic evaluation, RMS-normalised with decay (Krause et al. 2018)",
        _dynamic,
        {
            "learning_rate": [1e-4, 3e-4, 1e-3],
            "decay": [0.0, 0.001, 0.01],
            "segment_length": [5],
            "epsilon": [1.0],
        },
        needs_training_text=True,
    ),
}


def _with_cache(dynamic: Method) -> Method:
    """Dynamic evaluation with the cache beside it: the settings of both."""
    cache, num_dynamic = SINGLE_METHODS["cache"], len(dynamic.grid)
    return Method(
        f"{dynamic.description}, with a {cache.description}",
        lambda *values: dynamic.settings(*values[:num_dynamic])._replace(cache=cache.settings(*values[num_dynamic:])),
        dynamic.grid | cache.grid,
        dynamic.needs_training_text,
    )


DYNAMIC_WITH_CACHE = {f"{name}-cache": _with_cache(SINGLE_METHODS[name]) for name in ("dynamic-sgd", "dynamic-rms")}
METHODS = SINGLE_METHODS | DYNAMIC_WITH_CACHE
OPTIONS = {
    "cache_size": (positive_integer, "words in the cache"),
    "cache_flatness": (float, "theta, the scale of the scores in the cache"),
    "cache_weight": (float, "lambda, the share of the cache in a probability"),
    "learning_rate": (float, "eta"),
    "decay": (float, "lambda, the share of the way back to the model's own weights that an update goes"),
    "segment_length": (positive_integer, "tokens between two updates"),
    "epsilon": (float, "added to the root mean squares of the gradients, in units of their mean"),
}


def add_adaptation_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that `read_adaptation` reads."""
    group = parser.add_argument_group(
        "adaptation to the text",
        "Several values of one or more settings are a grid. Where a setting is left out, --tune tries "
        + "; ".join(
            f"for {name} "
            + ", ".join(f"{option} {' '.join(map(str, values))}" for option, values in method.grid.items())
            for name, method in SINGLE_METHODS.items()
        )
        + f". {' and '.join(DYNAMIC_WITH_CACHE)} have the settings of both.",
    )
    methods = "; ".join(f"{name}: {method.description}" for name, method in SINGLE_METHODS.items())
    both = f"{', '.join(DYNAMIC_WITH_CACHE)}: dynamic evaluation with a cache beside the model"
    group.add_argument("--adapt", choices=[*METHODS], help=f"{methods}; {both}")
    for option, (kind, description) in OPTIONS.items():
        users = ", ".join(name for name, method in SINGLE_METHODS.items() if option in method.grid)
        group.add_argument(
            f"--{option.replace('_', '-')}",
            type=kind,
            nargs="+",
            metavar="N" if kind is positive_integer else "X",
            help=f"{description} ({users})",
        )
    group.add_argument(
        "--tune",
        metavar="TEXT",
        help="one of the files or splits, for validation: what scores it best (also the weights of --mix) scores all",
    )
    group.add_argument("--tune-tokens", type=positive_integer, metavar="N", help="choose by its first N tokens (all)")
    group.add_argument(
        "--training-text",
        "--gradient-text",
        metavar="FILE",
        help="training text for the mean squares of gradients (dynamic-rms)",
    )
    group.add_argument(
        "--gradient-tokens",
        type=positive_integer,
        default=100_000,
        metavar="N",
        help="dynamic-rms: read only its first N tokens (%(default)s)",
    )


class Adaptation(NamedTuple):
    """An adaptation, as the options of the command line ask for it.

    Attributes:
        name: a key of `METHODS`.
        candidates: the settings to choose from, values of the method's options.
        tuning_text: the name of the text that chooses.
        tuning_tokens: by how many tokens of it; `None`: by all.
        training_lines: of training text.
        gradient_tokens: how many tokens of it are used for gradients.
    """

    name: str
    candidates: list[tuple]
    tuning_text: str | None
    tuning_tokens: int | None
    training_lines: list[str] | None
    gradient_tokens: int


def read_adaptation(options: argparse.Namespace, names: Mapping[str, str]) -> Adaptation | None:
    """Checks the options, and returns the adaptation that they name, or `None`.

    Args:
        options: with those that `add_adaptation_options` and `add_mixture_option` add.
        names: the name of every text, by what the command line calls it.

    Raises:
        ValueError: if options do not fit together.
    """
    given = {option: values for option in OPTIONS if (values := getattr(options, option)) is not None}
    if options.adapt is None:
        adaptation_options = ("training_text",) if options.mix else ("tune", "tune_tokens", "training_text")
        for option in (*given, *(name for name in adaptation_options if getattr(options, name))):
            raise ValueError(f"--{option.replace('_', '-')} is a setting of --adapt, which is not given")
        return None
    method = METHODS[options.adapt]
    for option in given:
        if option not in method.grid:
            raise ValueError(f"--{option.replace('_', '-')} is no setting of --adapt {options.adapt}")
    if options.tune is not None and options.tune not in names:
        raise ValueError(f"--tune {options.tune} is none of the texts: {', '.join(names)}")
    if options.tune is None and options.tune_tokens:
        raise ValueError("--tune-tokens needs --tune TEXT")
    if (options.training_text is None) == method.needs_training_text:
        needs = "needs the training text: give" if method.needs_training_text else "takes no"
        raise ValueError(f"--adapt {options.adapt} {needs} --training-text")
    candidates = list(product(*(given.get(option, tried) for option, tried in method.grid.items())))
    if options.tune is None and len(candidates) > 1:
        raise ValueError(
            f"there are {len(candidates)} settings to choose from: give --tune TEXT, or one value each of "
            f"{', '.join('--' + option.replace('_', '-') for option in method.grid)}"
        )
    for candidate in candidates:
        method.settings(*candidate).check()
    return Adaptation(
        options.adapt,
        candidates,
        names.get(options.tune),
        options.tune_tokens,
        None if options.training_text is None else read_sentences(options.training_text),
        options.gradient_tokens,
    )


def adapt(
    adaptation: Adaptation,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Mapping[str, list[str]],
    batch_size: int,
) -> tuple[dict, dict[str, torch.Tensor]]:
    """Chooses the settings, and scores every text with them.

    Args:
        adaptation: what to do.
        model: a language model of this package.
        tokenizer: its tokenizer.
        texts: the lines of each text, by its name.
        batch_size: rows that a text is cut into.

    Returns:
        What was done, for the results file: `method`, `description`, `settings`, and `tuning` with the perplexity of
        every candidate (`None` where it diverged); and the log probabilities of the tokens of each text.
    """
    method = METHODS[adaptation.name]
    streams = {name: encode_sentence_stream(tokenizer, lines) for name, lines in texts.items()}
    candidates = [method.settings(*candidate) for candidate in adaptation.candidates]
    gradient_rms = None
    if adaptation.training_lines is not None:
        training_text = encode_sentence_stream(tokenizer, adaptation.training_lines)
        training_text = training_text[: adaptation.gradient_tokens]
        gradient_rms = gradient_root_mean_squares(model, training_text)

    def score(stream: torch.Tensor, settings: Sequence[Settings]) -> list[torch.Tensor | None]:
        if isinstance(settings[0], CachePointer):
            return cached_log_probabilities(model, stream, settings, batch_size)
        return _dynamic_scores(model, stream, settings, gradient_rms, batch_size)

    description = {"method": adaptation.name, "description": method.description, "tuning": None}
    best = 0
    if adaptation.tuning_text is not None:
        stream = streams[adaptation.tuning_text][: adaptation.tuning_tokens]
        scores = [
            None if found is None else StreamScore(found.sum().item(), len(found))
            for found in score(stream, candidates)
        ]
        losses = [math.inf if score is None else score.loss for score in scores]
        if min(losses) == math.inf:
            raise ValueError("every learning rate of the grid is too high: the weights become infinite")
        best = losses.index(min(losses))
        description["tuning"] = {
            "text": adaptation.tuning_text,
            "num_tokens": len(stream),
            "grid": [
                {**dict(zip(method.grid, candidate, strict=True)), "perplexity": score and score.perplexity}
                for candidate, score in zip(adaptation.candidates, scores, strict=True)
            ],
        }
    description["settings"] = dict(zip(method.grid, adaptation.candidates[best], strict=True))
    if gradient_rms is not None:
        description["gradient_tokens"] = len(training_text)
    return description, {name: score(stream, [candidates[best]])[0] for name, stream in streams.items()}


def _dynamic_scores(
    model: PreTrainedModel,
    stream: torch.Tensor,
    settings: Sequence[DynamicCache],
    gradient_rms: Sequence[torch.Tensor] | None,
    batch_size: int,
) -> list[torch.Tensor | None]:
    """Returns the log probabilities for each of the settings, `None` for settings that diverged.

    The model runs once for all caches beside the same dynamic evaluation.
    """
    found: dict[DynamicCache, torch.Tensor | None] = {}
    for dynamic in dict.fromkeys(setting.dynamic for setting in settings):
        caches = [setting.cache for setting in settings if setting.dynamic == dynamic]
        try:
            scores = dynamic_cached_log_probabilities(model, stream, dynamic, caches, gradient_rms, batch_size)
        except DynamicEvaluationDiverged:
            if len(settings) == 1:
                raise
            scores = [None] * len(caches)
        found |= zip((DynamicCache(dynamic, cache) for cache in caches), scores, strict=True)
    return [found[setting] for setting in settings]
