"""The mixture of softmaxes (Yang, Dai, Salakhutdinov & Cohen 2018), in the place of a single softmax over words."""

import torch
from torch import nn

from ...fast.dropout import LockedDropout
from ...fast.linear import Linear
from .configuration import RecurrentConfig


class SoftmaxMixture(nn.Module):
    """Several softmaxes over the vocabulary, and how much each of them counts at a position.

    With a single softmax the log probabilities of all contexts are, up to a constant for each context, a matrix of a
    rank that the embedding size bounds. A mixture's are not:

        p(x | h) = sum_k prior_k(h) softmax(W tanh(U_k h) + b)_x        prior(h) = softmax(V h)

    `W` and `b` are those of the head, which all components share.

    Args:
        input_size: units of `h`.
        config: with `num_softmaxes`, `embedding_size` (the units of a component) and `latent_dropout`.
    """

    def __init__(self, input_size: int, config: RecurrentConfig):
        super().__init__()
        self.num_softmaxes = config.num_softmaxes
        self.latent_projection = Linear(input_size, config.num_softmaxes * config.embedding_size)
        self.prior_projection = Linear(input_size, config.num_softmaxes, bias=False)
        self.latent_dropout = LockedDropout(config.latent_dropout)

    def components(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What the head maps to the scores of each component, and how much each counts.

        Args:
            hidden_states: `[B, T, H]`.

        Returns:
            The inputs of the head `[B, T, K, E]`, and the natural logarithms of the priors `[B, T, K]`, in float32 at
            least.
        """
        latents = self.latent_projection(hidden_states).tanh().transpose(0, 1)
        latents = self.latent_dropout(latents).transpose(0, 1).unflatten(-1, (self.num_softmaxes, -1))
        return latents, _log_softmax(self.prior_projection(hidden_states))

    def forward(self, hidden_states: torch.Tensor, head: nn.Module) -> torch.Tensor:
        """The log probabilities of all words, `[B, T, V]` in float32 at least; one component is held at a time.

        Args:
            hidden_states: `[B, T, H]`.
            head: maps `[..., E]` to the scores `[..., V]`.
        """
        latents, log_priors = self.components(hidden_states)
        mixed = None
        for latent, log_prior in zip(latents.unbind(-2), log_priors.unbind(-1), strict=True):
            component = _log_softmax(head(latent)) + log_prior.unsqueeze(-1)
            mixed = component if mixed is None else torch.logaddexp(mixed, component)
        return mixed


def _log_softmax(scores: torch.Tensor) -> torch.Tensor:
    return scores.log_softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))
