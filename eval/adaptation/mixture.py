"""Several language models as one: their probabilities of a token mixed, with weights for which a text is likeliest."""

import argparse
from collections.abc import Collection, Mapping, Sequence

import torch

# Another step of the algorithm must add so much to the log likelihood of a token, in nats.
LEAST_GAIN = 1e-10
MOST_STEPS = 10_000


def add_mixture_option(parser: argparse.ArgumentParser) -> None:
    """Adds `--mix`, which needs the options of adaptation beside it."""
    parser.add_argument(
        "--mix",
        action="store_true",
        help="also score the mixture of all models: the probability of a token is the weighted mean of theirs, with "
        "the weights for which the text of --tune is likeliest (by EM); with --adapt, of the adapted models",
    )


def check_mixture(options: argparse.Namespace, texts: Collection[str]) -> None:
    """Raises a `ValueError` if a mixture is asked for and other options do not fit; `texts` are their names."""
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
    """Chooses the weights, and mixes the models on every text.

    Args:
        tuning_text: the text that the weights are chosen by, and
        tuning_tokens: by how many tokens of it; `None`: by all.
        models: their names.
        log_probabilities: of each model, by text, those of its tokens, `[N]`.

    Returns:
        `weights` and `tuning` for the results file, and the log probabilities of the mixture by text.
    """
    tuning = [own[tuning_text][:tuning_tokens] for own in log_probabilities]
    weights = mixture_weights(torch.stack(tuning))
    description = {
        "weights": [{"model": name, "weight": weight} for name, weight in zip(models, weights.tolist(), strict=True)],
        "tuning": {"text": tuning_text, "num_tokens": len(tuning[0])},
    }
    mixed = {
        text: mixed_log_probabilities(torch.stack([own[text] for own in log_probabilities]), weights)
        for text in log_probabilities[0]
    }
    return description, mixed


def mixture_weights(log_probabilities: torch.Tensor) -> torch.Tensor:
    """The weights `[M]` with which a mixture of M models gives N tokens the highest likelihood; they sum to 1.

    They are found by expectation maximisation (Jelinek & Mercer 1980): each token is shared out among the models in
    proportion to what they contribute to its probability, and a model's new weight is the mean of its shares. The log
    likelihood is concave in the weights and grows with every step.

    Args:
        log_probabilities: `[M, N]`.
    """
    weights = torch.full((len(log_probabilities),), 1 / len(log_probabilities), dtype=torch.float64)
    previous = -torch.inf
    for _ in range(MOST_STEPS):
        joint = log_probabilities.double() + weights.log().unsqueeze(1)
        mixed = joint.logsumexp(0)
        if mixed.mean() - previous < LEAST_GAIN:
            break
        previous = mixed.mean()
        weights = (joint - mixed).exp().mean(1)
    return weights


def mixed_log_probabilities(log_probabilities: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The log probabilities `[N]` of tokens by a mixture of the models that give them `[M, N]`."""
    return (log_probabilities.double() + weights.log().unsqueeze(1)).logsumexp(0)
