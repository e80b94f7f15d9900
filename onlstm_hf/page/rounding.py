"""Weights as integers with a scale for each row, rounded so that the model's distances change least.

Trees change where distances that are nearly equal change places, as they do in some sentences of a hundred if each
weight is rounded to the nearest of 255 steps. Two things make it fewer:

- Rows that the distances depend on have finer steps: `choose_limits`.
- The error of each weight is made good by the weights that are rounded after it, as far as their inputs go together:
  GPTQ, Frantar et al. 2023, in `round_rows`.

`calibrate` measures what both need, on text that the model itself writes.
"""

from typing import NamedTuple

import torch
from transformers import PreTrainedModel

from ..utils.iteration import progress_bar

NUM_TEXTS, TEXT_LENGTH, BATCH_SIZE = 128, 48, 16
DAMPING = 0.01
BLOCK = 32
# Largest integers of a row: at least those of 8 bits, at most what a low and a high byte with signs hold.
COARSEST, FINEST = 127, 256 * 127 + 127


class Calibration(NamedTuple):
    """Measurements on a model, by the names of its matrices without the prefix `model.`.

    Attributes:
        moments: `[C, C]` for a matrix of `C` columns, the mean of `x x^T` over its inputs `x`. The embeddings have
            that of the gradient of the distances: an error matters as far as the distances feel it.
        sensitivities: `[R]` for a matrix of `R` rows, how far the distances change if a weight of the row is wrong by
            as much as the row's largest weight (root mean square over the row's weights). Only their ratios have a
            meaning. They are 0 where no distance depends on the row.
    """

    moments: dict[str, torch.Tensor]
    sensitivities: dict[str, torch.Tensor]


def round_rows(
    weight: torch.Tensor, limits: torch.Tensor, moments: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rounds a matrix to integers.

    Args:
        weight: `[R, C]`.
        limits: `[R]`, the integer that each row's largest weight becomes.
        moments: `[C, C]`, the mean of `x x^T` over the inputs `x` of the matrix. Without it each weight is rounded to
            the nearest integer.

    Returns:
        The integers `[R, C]`, at most `FINEST`, and the scales `[R]` by which they are multiplied.
    """
    weight = weight.double()
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
            rounded = torch.clamp((weight[:, column] / scales).round(), -FINEST, FINEST)
            integers[:, column] = rounded.int()
            error = errors[:, column - start] = (weight[:, column] - rounded * scales) / factor[column, column]
            weight[:, column : block.stop] -= error[:, None] * factor[column, column : block.stop]
        weight[:, block.stop :] -= errors @ factor[block, block.stop :]
    return integers, scales.float()


def choose_limits(sensitivities: dict[str, torch.Tensor], coarseness: float) -> dict[str, torch.Tensor]:
    """Deals out bits to the rows of all matrices.

    A row of `C` weights, sensitivity `s` and limit `l` adds `C (s / l)^2` to the squared error of the distances, and
    takes `C log2 l` bits. For a sum of bits the sum of errors is least where `l` goes with `s`.

    Args:
        sensitivities: see `Calibration`.
        coarseness: bits that are taken from each weight; at 0 the most sensitive row has 16. All rows have between 8
            and 16.

    Returns:
        The limits `[R]` for `round_rows`, by the name of the matrix.
    """
    largest = max(sensitivity.max().item() for sensitivity in sensitivities.values()) or 1.0
    return {
        name: (sensitivity / largest * FINEST / 2**coarseness).clamp(COARSEST, FINEST)
        for name, sensitivity in sensitivities.items()
    }


def calibrate(model: PreTrainedModel) -> Calibration:
    """Measures what the rounding of a language model's matrices needs.

    Args:
        model: the model, in evaluation mode. PyTorch's random numbers go on as if nothing had drawn any.
    """
    matrices = {
        name.removeprefix("model."): parameter for name, parameter in model.named_parameters() if parameter.dim() > 1
    }
    with torch.random.fork_rng():
        torch.manual_seed(0)
        ids = _write_texts(model)
        moments = _input_moments(model, ids)
        if not model.induces_trees:
            return Calibration(moments, {name: torch.zeros(len(matrix)) for name, matrix in matrices.items()})
        moments["embeddings.weight"], squares = _squared_gradients(model, matrices, ids)
    sensitivities = {
        name: squares[name].sqrt() * matrix.detach().flatten(1).abs().amax(dim=1) for name, matrix in matrices.items()
    }
    return Calibration(moments, sensitivities)


def _write_texts(model: PreTrainedModel) -> torch.Tensor:
    config = model.config
    start = torch.full((NUM_TEXTS, 1), config.eos_token_id)
    options = {"eos_token_id": None, "pad_token_id": (config.eos_token_id + 1) % config.vocab_size}
    with progress_bar(total=TEXT_LENGTH, description="text", unit="token") as bar:

        def count(ids: torch.Tensor, *_, **__) -> torch.Tensor:
            bar.update()
            return torch.zeros(len(ids), dtype=torch.bool)

        return model.generate(
            start, do_sample=True, top_k=0, max_new_tokens=TEXT_LENGTH, stopping_criteria=[count], **options
        )


def _input_moments(model: PreTrainedModel, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """Returns the moments of the inputs of a stack's layers; other models have none."""
    moments = {}
    if hasattr(model.model, "layers"):
        with torch.no_grad():
            hidden_states = model.model(ids, output_hidden_states=True).hidden_states
        for layer, (inputs, outputs) in enumerate(zip(hidden_states, hidden_states[1:], strict=False)):
            moments[f"layers.{layer}.input_projection.weight"] = _second_moments(inputs)
            moments[f"layers.{layer}.recurrent_projection.weight"] = _second_moments(outputs[:, :-1])
    return moments


def _squared_gradients(
    model: PreTrainedModel, matrices: dict[str, torch.Tensor], ids: torch.Tensor
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Measures how much the distances depend on the embeddings and on each row of the matrices.

    The squared gradient of a sum of distances with random factors is on average the sum of their squared gradients.

    Returns:
        The moments `[C, C]` of the gradient at the embeddings, and the mean squared gradients `[R]` of the rows.
    """
    squares = {name: torch.zeros(len(matrix), dtype=torch.float64) for name, matrix in matrices.items()}
    moments = 0
    for batch in progress_bar(ids.split(BATCH_SIZE), description="gradients", unit="batch"):
        embeddings = model.get_input_embeddings()(batch).detach().requires_grad_(True)
        output = model(inputs_embeds=embeddings, output_distances=True)
        distances = model.distances_by_layer(output)[model.config.parse_layer or 0]
        total = (distances * torch.randn_like(distances)).sum()
        gradient, *gradients = torch.autograd.grad(total, [embeddings, *matrices.values()], allow_unused=True)
        moments = moments + _second_moments(gradient) * len(batch) / len(ids)
        for name, matrix_gradient in zip(matrices, gradients, strict=True):
            if matrix_gradient is not None:
                squares[name] += matrix_gradient.flatten(1).double().square().mean(dim=1)
        # The texts are too short to count rare words in them. The model's probabilities say how frequent they are.
        frequencies = output.logits.detach().softmax(-1).mean((0, 1)).double()
        squares["embeddings.weight"] += frequencies * gradient.double().square().sum((0, 1)).mean()
    return moments, squares


def _second_moments(vectors: torch.Tensor) -> torch.Tensor:
    vectors = vectors.flatten(0, -2)
    return vectors.T @ vectors / len(vectors)
