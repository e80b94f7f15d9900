"""Weights as integers with a scale for each row, rounded so that the model's distances change least.

Rounding each weight to the nearest integer leaves 97.7 % of the trees of `onlstm-ptb-small-distilled` as they were on
the sample of the Wall Street Journal. Here each weight's error is made good by the weights that are rounded after it,
as far as their inputs go together (Frantar et al. 2023, "GPTQ"), and the rows that matter most are given 16 bits.
"""

import torch
from transformers import PreTrainedModel

from ..utils.iteration import progress_bar

NUM_TEXTS, TEXT_LENGTH = 128, 48
NUM_PROBES = 4
DAMPING = 0.01
BLOCK = 32
COARSE, FINE = 127, 32767


def round_rows(
    weight: torch.Tensor, num_fine: int = 0, moments: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rounds a matrix to integers.

    Args:
        weight: `[R, C]`.
        num_fine: how many rows, from the first on, have 16 bits; the others have 8.
        moments: `[C, C]`, the mean of `x x^T` over the inputs `x` of the matrix. Without it each weight is rounded to
            the nearest integer.

    Returns:
        The integers `[R, C]` and the scales `[R]` by which they are multiplied.
    """
    weight = weight.double()
    limits = torch.full((len(weight),), float(COARSE), dtype=torch.float64)
    limits[:num_fine] = FINE
    scales = (weight.abs().amax(dim=1) / limits).float().double()
    scales[scales == 0] = 1.0
    if moments is None:
        return (weight / scales[:, None]).round().int(), scales.float()
    size = weight.shape[1]
    damping = DAMPING * moments.diagonal().mean().clamp(min=1e-12)
    inverse = torch.linalg.inv(moments.double() + damping * torch.eye(size, dtype=torch.float64))
    factor = torch.linalg.cholesky(inverse, upper=True)
    integers = torch.empty(weight.shape, dtype=torch.int32)
    weight = weight.clone()
    for start in range(0, size, BLOCK):  # the columns after a block take over its errors at once
        block = range(start, min(start + BLOCK, size))
        errors = torch.empty(len(weight), len(block), dtype=torch.float64)
        for column in block:
            rounded = torch.clamp((weight[:, column] / scales).round(), -limits, limits)
            integers[:, column] = rounded.int()
            error = errors[:, column - start] = (weight[:, column] - rounded * scales) / factor[column, column]
            weight[:, column : block.stop] -= error[:, None] * factor[column, column : block.stop]
        weight[:, block.stop :] -= errors @ factor[block, block.stop :]
    return integers, scales.float()


def input_moments(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """The moments of what the matrices of a model take in, on text that the model itself writes.

    For the layers of a stack these are the moments of their inputs. The embeddings have those of the gradient of the
    distances: an error matters as far as the distances feel it.

    Args:
        model: a language model, in evaluation mode.

    Returns:
        `[C, C]` by the name of the parameter.
    """
    config = model.config
    with torch.random.fork_rng():
        torch.manual_seed(0)
        start = torch.full((NUM_TEXTS, 1), config.eos_token_id)
        options = {"eos_token_id": None, "pad_token_id": (config.eos_token_id + 1) % config.vocab_size}
        with progress_bar(total=TEXT_LENGTH, description="text", unit="token") as bar:

            def count(ids: torch.Tensor, *_, **__) -> torch.Tensor:
                bar.update()
                return torch.zeros(len(ids), dtype=torch.bool)

            ids = model.generate(
                start, do_sample=True, top_k=0, max_new_tokens=TEXT_LENGTH, stopping_criteria=[count], **options
            )
        moments = {}
        if hasattr(model.model, "layers"):
            with torch.no_grad():
                hidden_states = model.model(ids, output_hidden_states=True).hidden_states
            for layer, (inputs, outputs) in enumerate(zip(hidden_states, hidden_states[1:], strict=False)):
                moments[f"layers.{layer}.input_projection.weight"] = _second_moments(inputs)
                moments[f"layers.{layer}.recurrent_projection.weight"] = _second_moments(outputs[:, :-1])
        if model.induces_trees:
            moments["embeddings.weight"] = _distance_gradients(model, ids)
    return moments


def _second_moments(vectors: torch.Tensor) -> torch.Tensor:
    vectors = vectors.flatten(0, -2)
    return vectors.T @ vectors / len(vectors)


def _distance_gradients(model: PreTrainedModel, ids: torch.Tensor) -> torch.Tensor:
    embeddings = model.get_input_embeddings()(ids).detach().requires_grad_(True)
    total = 0
    for _ in range(NUM_PROBES):
        output = model(inputs_embeds=embeddings, output_distances=True)
        distances = model.distances_by_layer(output)[model.config.parse_layer or 0]
        (gradient,) = torch.autograd.grad((distances * torch.randn_like(distances)).sum(), embeddings)
        total = total + _second_moments(gradient)
    return total / NUM_PROBES
