"""Quantization of weights to integers with one scale per row, with little effect on the model's distances.

A tree changes when rounding swaps the order of two nearly equal distances. Two methods reduce this:

- Rows that affect the distances more get finer steps (`choose_limits`).
- GPTQ compensates each rounding error in the weights rounded later (`round_rows`; Frantar et al. 2023).

`calibrate` collects the statistics for both on text that the model generates.
"""

import torch
from transformers import PreTrainedModel

from ..utils.iteration import progress_bar

NUM_TEXTS, TEXT_LENGTH, BATCH_SIZE = 128, 48, 16
DAMPING = 0.01
BLOCK = 32
# Limits of the largest integer of a row: 8 bits, and the largest number in a signed low and high byte.
COARSEST, FINEST = 127, 256 * 127 + 127


def round_rows(
    weight: torch.Tensor, limits: torch.Tensor, moments: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rounds a matrix to integers.

    Args:
        weight: `[R, C]`.
        limits: `[R]`, the integer for the largest weight of each row.
        moments: `[C, C]`, the mean of `x x^T` over the inputs `x` of the matrix. Without it each weight is rounded to
            the nearest integer.

    Returns:
        The integers `[R, C]`, at most `FINEST`, and their scales `[R]`.
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
    for start in range(0, size, BLOCK):  # the later columns get the errors of a block in one step
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
    """Allocates bits to the rows of all matrices.

    A row with `C` weights, sensitivity `s` and limit `l` adds `C (s / l)^2` to the squared error of the distances, and
    needs `C log2 l` bits. For a given number of bits the error is smallest if `l` is proportional to `s`.

    `coarseness` is the number of bits to save per weight; at 0 the most sensitive row has 16 bits. All rows have 8 to
    16 bits.

    Returns:
        The limits for `round_rows`.
    """
    largest = max(sensitivity.max().item() for sensitivity in sensitivities.values()) or 1.0
    return {
        name: (sensitivity / largest * FINEST / 2**coarseness).clamp(COARSEST, FINEST)
        for name, sensitivity in sensitivities.items()
    }


def calibrate(model: PreTrainedModel) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Collects the statistics for rounding the matrices of a language model, which is in evaluation mode.

    Returns:
        By the names of the matrices without the prefix `model.`:
        the moments `[C, C]` of a matrix with `C` columns: the mean of `x x^T` over its inputs `x`. For the embeddings,
        `x` is the gradient of the distances, because only errors that affect the distances matter;
        the sensitivities `[R]` of a matrix with `R` rows: how much the distances change if a weight is wrong by the
        largest weight of its row (root mean square over the row). Only ratios are meaningful.
    """
    matrices = {
        name.removeprefix("model."): parameter for name, parameter in model.named_parameters() if parameter.dim() > 1
    }
    with torch.random.fork_rng():
        torch.manual_seed(0)
        eos = model.config.eos_token_id
        options = {"eos_token_id": None, "pad_token_id": (eos + 1) % model.config.vocab_size}
        start = torch.full((NUM_TEXTS, 1), eos)
        ids = model.generate(start, do_sample=True, top_k=0, max_new_tokens=TEXT_LENGTH, **options)
        moments = _input_moments(model, ids)
        if not model.induces_trees:
            return moments, {name: torch.zeros(len(matrix)) for name, matrix in matrices.items()}
        moments["embeddings.weight"], squares = _squared_gradients(model, matrices, ids)
    sensitivities = {
        name: squares[name].sqrt() * matrix.detach().flatten(1).abs().amax(dim=1) for name, matrix in matrices.items()
    }
    return moments, sensitivities


def _input_moments(model: PreTrainedModel, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """Returns the moments of the inputs of stacked layers; an empty result for other models."""
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

    The expected squared gradient of a randomly weighted sum of distances is the sum of their squared gradients.

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
        # The texts are too short to count rare words, so the model's probabilities give the word frequencies.
        frequencies = output.logits.detach().softmax(-1).mean((0, 1)).double()
        squares["embeddings.weight"] += frequencies * gradient.double().square().sum((0, 1)).mean()
    return moments, squares


def _second_moments(vectors: torch.Tensor) -> torch.Tensor:
    vectors = vectors.flatten(0, -2)
    return vectors.T @ vectors / len(vectors)
