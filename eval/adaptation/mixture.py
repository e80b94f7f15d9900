"""Mixture of language models, with the weights that maximise the likelihood of a tuning text."""

import argparse
from collections.abc import Collection, Mapping, Sequence

import torch

# EM stops if a step raises the mean log likelihood of a token by less than this, in nats.
MIN_GAIN = 1e-10
MAX_STEPS = 10_000


def add_mixture_option(parser: argparse.ArgumentParser) -> None:
    """Adds `--mix`, which also uses `--tune` and `--tune-tokens` of the adaptation options."""
    parser.add_argument(
        "--mix",
        action="store_true",
        help="also score the mixture of all models (with --adapt, of the adapted models): the weighted mean of their "
        "probabilities; EM finds the weights that maximise the likelihood of the text of --tune",
    )


def check_mixture(options: argparse.Namespace, texts: Collection[str]) -> None:
    """Raises a `ValueError` if other options do not fit `--mix`; `texts` are the names of the texts."""
    if options.mix and len(options.models) < 2:
        raise ValueError("--mix needs several models")
    if options.mix and options.tune not in texts:
        raise ValueError(f"--mix needs --tune TEXT, one of the texts, to choose the weights: {', '.join(texts)}")


def mix(
    tuning_text: str,
    tuning_tokens: int | None,
    models: Sequence[str],
    log_probabilities: Sequence[Mapping[str, torch.Tensor]],
) -> tuple[dict, dict[str, torch.Tensor]]:
    """Chooses the weights and mixes the models on every text.

    Args:
        tuning_text: name of the text that the weights are tuned on.
        tuning_tokens: number of its first tokens to use; `None` for all.
        models: names of the models.
        log_probabilities: log probabilities `[N]` of the tokens of each text, for each model.

    Returns:
        `weights` and `tuning` for the results file, and the log probabilities of the mixture by text.
    """
    tuning = [by_text[tuning_text][:tuning_tokens] for by_text in log_probabilities]
    weights = mixture_weights(torch.stack(tuning))
    description = {
        "weights": [{"model": name, "weight": weight} for name, weight in zip(models, weights.tolist(), strict=True)],
        "tuning": {"text": tuning_text, "num_tokens": len(tuning[0])},
    }
    mixed = {
        text: mixed_log_probabilities(torch.stack([by_text[text] for by_text in log_probabilities]), weights)
        for text in log_probabilities[0]
    }
    return description, mixed


def mixture_weights(log_probabilities: torch.Tensor) -> torch.Tensor:
    """Returns the weights `[M]` of M models that maximise the likelihood of N tokens; they sum to 1.

    Expectation maximisation (Jelinek & Mercer 1980): a model's new weight is the mean of its posterior probabilities
    over the tokens. The log likelihood is concave in the weights and grows with every step.

    Args:
        log_probabilities: `[M, N]`.
    """
    weights = torch.full((len(log_probabilities),), 1 / len(log_probabilities), dtype=torch.float64)
    previous = -torch.inf
    for _ in range(MAX_STEPS):
        joint = log_probabilities.double() + weights.log().unsqueeze(1)
        mixed = joint.logsumexp(0)
        if mixed.mean() - previous < MIN_GAIN:
            break
        previous = mixed.mean()
        weights = (joint - mixed).exp().mean(1)
    return weights


def mixed_log_probabilities(log_probabilities: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Mixes the log probabilities `[M, N]` of tokens into those of the mixture, `[N]`."""
    return (log_probabilities.double() + weights.log().unsqueeze(1)).logsumexp(0)
