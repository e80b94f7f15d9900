"""Log probabilities of independent sentences."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..utils.evaluation_mode import evaluation_mode
from ..utils.iteration import progress_bar
from ..utils.tokenizer_check import check_tokenizer
from .stream import StreamScore, check_token_ids, target_log_probabilities

MAX_TOKENS_PER_CALL = 2048


class SentenceScore(NamedTuple):
    """Score of an independent sentence, predicted after an `<eos>`.

    Attributes:
        tokens: its tokens and the final `<eos>`.
        log_probabilities: natural log probability of each token, given the previous tokens.
    """

    tokens: list[str]
    log_probabilities: list[float]

    def total(self) -> StreamScore:
        return StreamScore(sum(self.log_probabilities), len(self.log_probabilities))


def score_sentences(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[str],
    batch_size: int = 64,
    progress: bool | None = None,
) -> list[SentenceScore]:
    """Returns the log probabilities of independent sentences, in the order of the input.

    Args:
        model: a language model that takes and returns a `state`.
        tokenizer: its tokenizer.
        sentences: strings; an empty sentence is an `<eos>` after `<eos>`.
        batch_size: sentences per batch, sorted by length and padded.
        progress: whether to show a progress bar; by default on a terminal, for jobs of more than two seconds.

    Raises:
        ValueError: if the tokenizer has no `<eos>` or does not fit the model, or a probability is not finite.
    """
    encoded = tokenizer(list(sentences), add_special_tokens=False, verbose=False)["input_ids"] if sentences else []
    return [score for score, _ in score_encoded(model, tokenizer, encoded, batch_size, progress)]


def score_encoded(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    encoded: Sequence[Sequence[int]],
    batch_size: int = 64,
    progress: bool | None = None,
    with_distances: bool = False,
) -> list[tuple[SentenceScore, list[list[float]]]]:
    """Returns scores as `score_sentences` does, and syntactic distances of the same pass of the model.

    Args:
        encoded: sentences as token ids, without special tokens.
        with_distances: whether to compute distances, for a model that induces trees.
        model, tokenizer, batch_size, progress: see `score_sentences`, also for the errors.

    Returns:
        For each sentence its score, and with distances for each layer those of its tokens, else an empty list. A model
        with the same distances for all layers counts as one layer.
    """
    check_tokenizer(tokenizer, model.config)
    eos = tokenizer.eos_token_id
    if eos is None:
        raise ValueError("the tokenizer needs an eos_token, which ends every sentence")
    framed = [torch.tensor([eos, *ids, eos]) for ids in encoded]
    if framed:
        check_token_ids(torch.cat(framed), model)
    results: list[tuple[SentenceScore, list[list[float]]] | None] = [None] * len(framed)
    order = sorted(range(len(framed)), key=lambda index: len(framed[index]))
    with progress_bar(total=len(order), unit="sentence", shown=progress) as bar:
        for start in range(0, len(order), batch_size):
            indices = order[start : start + batch_size]
            rows = _score_batch(model, [framed[index] for index in indices], with_distances)
            for index, (log_probabilities, distances) in zip(indices, rows, strict=True):
                tokens = tokenizer.convert_ids_to_tokens(framed[index][1:].tolist())
                results[index] = SentenceScore(tokens, log_probabilities), distances
            bar.update(len(indices))
    return results


def _score_batch(
    model: PreTrainedModel, sequences: list[torch.Tensor], with_distances: bool
) -> list[tuple[list[float], list[list[float]]]]:
    """Returns, for each sequence, the log probabilities of all tokens but the first, and distances by layer."""
    padded = pad_sequence(sequences, batch_first=True).to(model.device)
    lengths = torch.tensor([len(sequence) - 1 for sequence in sequences], device=model.device)
    inputs, targets = padded[:, :-1], padded[:, 1:]
    mask = (torch.arange(inputs.shape[1], device=model.device) < lengths[:, None]).long()
    options = {"output_distances": True} if with_distances else {}
    pieces, distance_pieces, state = [], [], None
    length = max(1, MAX_TOKENS_PER_CALL // len(sequences))
    with evaluation_mode(model):
        for start in range(0, inputs.shape[1], length):
            piece = slice(start, start + length)
            output = model(inputs[:, piece], attention_mask=mask[:, piece], state=state, use_cache=True, **options)
            state = output.state
            pieces.append(target_log_probabilities(output.logits, targets[:, piece]))
            if with_distances:
                distance_pieces.append(model.distances_by_layer(output).float())
    rows = torch.cat(pieces, dim=1)
    if not rows[mask.bool()].isfinite().all():
        raise ValueError("a log probability is not finite: the model's weights contain NaN or infinity")
    if with_distances:  # without the distance of the first <eos>
        distances = torch.cat(distance_pieces, dim=-1)[..., 1:].transpose(0, 1).tolist()
    else:
        distances = [[] for _ in sequences]
    return [
        (row[:length], [row_of_layer[: length - 1] for row_of_layer in by_layer])
        for row, by_layer, length in zip(rows.tolist(), distances, lengths.tolist(), strict=True)
    ]
