"""Log probabilities of independent sentences."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..utils.evaluation_mode import evaluation_mode
from ..utils.iteration import progress_bar
from ..utils.tokenizer_check import check_tokenizer
from .stream import StreamScore, target_log_probabilities

MAX_TOKENS_PER_CALL = 2048


class SentenceScore(NamedTuple):
    """Tokens of a sentence and its final `<eos>`, and the natural log probability of each after those before it."""

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
    """Scores sentences that are token ids without special tokens; see `score_sentences`, also for the errors.

    Returns:
        For each sentence its score; and, with distances, for each layer the syntactic distances of its tokens from the
        same pass, else an empty list. A model with the same distances for all layers counts as one layer.
    """
    check_tokenizer(tokenizer, model.config)
    eos = tokenizer.eos_token_id
    if eos is None:
        raise ValueError("the tokenizer needs an eos_token, which ends every sentence")
    results = {}
    order = sorted(range(len(encoded)), key=lambda index: len(encoded[index]))
    with evaluation_mode(model), progress_bar(total=len(order), unit="sentence", shown=progress) as bar:
        for start in range(0, len(order), batch_size):
            indices = order[start : start + batch_size]
            sequences = [torch.tensor([eos, *encoded[index], eos]) for index in indices]
            rows = _score_batch(model, sequences, with_distances)
            for index, (log_probabilities, distances) in zip(indices, rows, strict=True):
                tokens = tokenizer.convert_ids_to_tokens([*encoded[index], eos])
                results[index] = SentenceScore(tokens, log_probabilities), distances
            bar.update(len(indices))
    return [results[index] for index in range(len(encoded))]


def _score_batch(
    model: PreTrainedModel, sequences: list[torch.Tensor], with_distances: bool
) -> Iterator[tuple[list[float], list[list[float]]]]:
    """Yields, for each sequence, the log probabilities of all tokens but the first, and their distances by layer."""
    padded = pad_sequence(sequences, batch_first=True).to(model.device)
    mask = pad_sequence([torch.ones(len(sequence) - 1) for sequence in sequences], batch_first=True).to(model.device)
    options = {"output_distances": True} if with_distances else {}
    pieces, distance_pieces, state = [], [], None
    length = max(1, MAX_TOKENS_PER_CALL // len(sequences))
    chunks = (part.split(length, dim=1) for part in (padded[:, :-1], padded[:, 1:], mask))
    for inputs, targets, chunk_mask in zip(*chunks, strict=True):
        output = model(inputs, attention_mask=chunk_mask, state=state, use_cache=True, **options)
        state = output.state
        pieces.append(target_log_probabilities(output.logits, targets))
        if with_distances:
            distance_pieces.append(model.distances_by_layer(output).float())
    log_probabilities = torch.cat(pieces, dim=1)
    if not log_probabilities[mask.bool()].isfinite().all():
        raise ValueError("a log probability is not finite: the model's weights contain NaN or infinity")
    distances = [[]] * len(sequences)
    if with_distances:  # without that of the first <eos>
        distances = torch.cat(distance_pieces, dim=-1)[..., 1:].transpose(0, 1).tolist()
    for sequence, row, by_layer in zip(sequences, log_probabilities.tolist(), distances, strict=True):
        yield row[: len(sequence) - 1], [layer[: len(sequence) - 2] for layer in by_layer]
