"""Methods of adaptation to the scored text, their options, and the search for settings."""

import argparse
import math
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import product

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
from onlstm_hf.scoring.stream import encode_sentence_stream
from onlstm_hf.utils.files import check_is_text_file
from onlstm_hf.utils.programs import positive_integer


def _number(lowest: float, highest: float = sys.float_info.max) -> Callable[[str], float]:
    """Returns an argument type for numbers within bounds."""

    def number(text: str) -> float:
        if not lowest <= float(text) <= highest:
            raise argparse.ArgumentTypeError(f"must be from {lowest:g} to {highest:g}, not {text}")
        return float(text)

    return number


# Description of each method, and the grid: default values to try with `--tune`, by option.
CACHE = "continuous cache pointer (Grave et al. 2016)"
CACHE_GRID = {
    "cache_size": [500],
    "cache_flatness": [0.0, 0.1, 0.2, 0.3, 0.5, 0.8],
    "cache_weight": [0.05, 0.1, 0.15, 0.2, 0.3],
}
SGD = "dynamic evaluation, SGD with decay (Krause et al. 2018)"
SGD_GRID = {"learning_rate": [0.03, 0.1, 0.3], "decay": [0.0, 0.001, 0.01], "segment_length": [5]}
RMS = "dynamic evaluation, RMS-normalised with decay (Krause et al. 2018)"
RMS_GRID = SGD_GRID | {"learning_rate": [1e-4, 3e-4, 1e-3], "epsilon": [1.0]}
METHODS = {
    "cache": (CACHE, CACHE_GRID),
    "dynamic-sgd": (SGD, SGD_GRID),
    "dynamic-rms": (RMS, RMS_GRID),
    "dynamic-sgd-cache": (f"{SGD}, with a {CACHE}", SGD_GRID | CACHE_GRID),
    "dynamic-rms-cache": (f"{RMS}, with a {CACHE}", RMS_GRID | CACHE_GRID),
}
OPTIONS = {
    "cache_size": (positive_integer, "number of words in the cache"),
    "cache_flatness": (_number(0), "theta, the scale of the scores in the cache"),
    "cache_weight": (_number(0, 1), "lambda, the share of the cache in a probability"),
    "learning_rate": (_number(0), "eta"),
    "decay": (_number(0, 1), "lambda, the fraction of the distance to the original weights that an update goes back"),
    "segment_length": (positive_integer, "tokens between two updates"),
    "epsilon": (_number(1e-9), "added to the root mean squares of the gradients, in units of their mean"),
}
# Number of tokens of the training text for the root mean squares of gradients.
GRADIENT_TOKENS = 100_000


def add_adaptation_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that `read_candidates` and `adapt` read, and `--mix`, which shares those for tuning."""
    parser.add_argument(
        "--mix",
        action="store_true",
        help="also score the mixture of all models (with --adapt, of the adapted models): the weighted mean of their "
        "probabilities; EM finds the weights that maximise the likelihood of the text of --tune",
    )
    group = parser.add_argument_group(
        "adaptation to the text",
        "Several values of a setting form a grid for --tune. The default grid of each method is in brackets; "
        "dynamic-sgd-cache and dynamic-rms-cache have the settings of both methods.",
    )
    methods = "; ".join(f"{name}: {description}" for name, (description, _) in METHODS.items())
    group.add_argument("--adapt", choices=[*METHODS], help=methods)
    for option, (kind, description) in OPTIONS.items():
        grids = {name: grid[option] for name, (_, grid) in METHODS.items() if option in grid and "-cache" not in name}
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


def read_candidates(options: argparse.Namespace, texts: Collection[str]) -> list[dict[str, float]]:
    """Checks the options for texts with these names, and returns the candidate settings (values by option)."""
    if options.mix and (len(options.models) < 2 or options.tune is None):
        raise ValueError("--mix needs several models, and --tune TEXT to choose the weights")
    if options.tune is not None and options.tune not in texts:
        raise ValueError(f"--tune {options.tune} is none of the texts: {', '.join(texts)}")
    if options.tune is None and options.tune_tokens:
        raise ValueError("--tune-tokens needs --tune TEXT")
    grid = METHODS[options.adapt][1] if options.adapt else {}
    needs_training_text = "epsilon" in grid  # relative to the root mean squares of gradients
    settings = [*grid, *(["training_text"] if needs_training_text else [])]
    if options.adapt or options.mix:
        settings.append("tune")
    for name in (*OPTIONS, "training_text", "tune"):
        if getattr(options, name) is not None and name not in settings:
            fault = f"is no setting of --adapt {options.adapt}" if options.adapt else "needs --adapt"
            raise ValueError(f"{_flag(name)} {fault}")
    if needs_training_text:
        if options.training_text is None:
            raise ValueError(f"--adapt {options.adapt} needs the training text: give --training-text")
        check_is_text_file(options.training_text)
    if not options.adapt:
        return []
    values = product(*(getattr(options, option) or tried for option, tried in grid.items()))
    candidates = [dict(zip(grid, candidate, strict=True)) for candidate in values]
    if options.tune is None and len(candidates) > 1:
        flags = ", ".join(map(_flag, grid))
        raise ValueError(f"{len(candidates)} settings to choose from need --tune TEXT, or one value each of {flags}")
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
    streams: Mapping[str, torch.Tensor],
) -> tuple[dict, dict[str, torch.Tensor]]:
    """Chooses the settings and scores every text, given as `streams` of token ids, with them.

    Returns an entry for the results file, and the log probabilities of the tokens of each text.
    """
    gradient_rms = None
    if options.training_text is not None:
        training_text = encode_sentence_stream(tokenizer, read_sentences(options.training_text))[:GRADIENT_TOKENS]
        gradient_rms = gradient_root_mean_squares(model, training_text)

    def score(stream: torch.Tensor, candidates: Sequence[dict]) -> list[torch.Tensor | None]:
        """Returns the log probabilities for each candidate, `None` for settings that diverged."""
        settings = [(_dynamic(candidate), _cache(candidate)) for candidate in candidates]
        by_setting: dict[tuple, torch.Tensor | None] = {}
        for dynamic in dict.fromkeys(dynamic for dynamic, _ in settings):
            caches = [cache for other, cache in settings if other == dynamic]
            try:
                scores = adapted_log_probabilities(model, stream, dynamic, caches, gradient_rms, options.batch_size)
            except DynamicEvaluationDiverged:
                if dynamic is None or len(candidates) == 1:
                    raise
                scores = [None] * len(caches)
            by_setting |= zip(((dynamic, cache) for cache in caches), scores, strict=True)
        return [by_setting[setting] for setting in settings]

    description = {"method": options.adapt, "description": METHODS[options.adapt][0], "tuning": None}
    best = candidates[0]
    if options.tune is not None:
        stream = streams[options.tune][: options.tune_tokens]
        tried = [
            candidate | {"perplexity": None if scores is None else (-scores.mean()).exp().item()}
            for candidate, scores in zip(candidates, score(stream, candidates), strict=True)
        ]
        perplexities = [math.inf if row["perplexity"] is None else row["perplexity"] for row in tried]
        if min(perplexities) == math.inf:
            raise ValueError("every learning rate of the grid is too high: the weights become infinite")
        best = candidates[perplexities.index(min(perplexities))]
        description["tuning"] = {"text": options.tune, "num_tokens": len(stream), "grid": tried}
    description["settings"] = best
    if gradient_rms is not None:
        description["gradient_tokens"] = len(training_text)
    return description, {name: score(stream, [best])[0] for name, stream in streams.items()}
