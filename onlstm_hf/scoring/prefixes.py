"""Log probabilities of many token sequences that share beginnings, each beginning read once."""

import math
from collections.abc import Sequence

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from ..utils.evaluation_mode import evaluation_mode
from ..utils.iteration import progress_bar
from .stream import check_token_ids

_PADDING = -1


def sequence_log_probabilities(
    model: PreTrainedModel,
    sequences: Sequence[Sequence[int]],
    batch_size: int = 1024,
) -> list[float]:
    """The log probability of each sequence after its first token, under any causal language model.

    Equal sequences are scored once. The others are sorted, so that those of a batch have long beginnings in common,
    and a batch is read as a tree of prefixes: each step is one call of the model on the last token of every different
    prefix of one length, each going on from the state of its parent. No sequence is padded. The model keeps what it
    has read in a `state` (the models of this package) or in `cache` or `past_key_values` (those of Transformers); one
    with none of them reads every prefix from its start.

    Args:
        model: takes `input_ids` and returns `logits`.
        sequences: token ids; the first of each, such as `<eos>`, is only context.
        batch_size: number of different sequences in one tree, and so the largest number of prefixes in one call.

    Returns:
        For each sequence the sum of the natural log probabilities of all its tokens but the first. It is the same
        number for sequences that are the same.

    Raises:
        ValueError: if a sequence is empty or has ids outside the vocabulary, the batch size is less than 1, or the
            model computes NaN.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size}")
    keys = [tuple(sequence) for sequence in sequences]
    if () in keys:
        raise ValueError(f"sequence {keys.index(())} is empty: it needs at least the token that the others follow")
    if keys:
        check_token_ids(torch.tensor([token for key in keys for token in key]), model)
    different = sorted(set(keys))
    log_probabilities: dict[tuple[int, ...], float] = {}
    with evaluation_mode(model), progress_bar(total=len(different), unit="sentence") as bar:
        for start in range(0, len(different), batch_size):
            batch = different[start : start + batch_size]
            log_probabilities.update(zip(batch, _score_prefix_tree(model, batch), strict=True))
            bar.update(len(batch))
    return [log_probabilities[key] for key in keys]


def _score_prefix_tree(model: PreTrainedModel, sequences: list[tuple[int, ...]]) -> list[float]:
    """Scores sorted sequences, one length of prefix after the other."""
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    rows = [torch.tensor(sequence) for sequence in sequences]
    input_ids = pad_sequence(rows, batch_first=True, padding_value=_PADDING)
    totals = torch.zeros(len(sequences), dtype=torch.float64)
    prefix_of_sequence = torch.zeros(len(sequences), dtype=torch.long)
    output = None
    for length in range(1, input_ids.shape[1]):
        unfinished = (lengths > length).nonzero().squeeze(1)
        # In sorted sequences equal prefixes are neighbours.
        prefixes, prefix, counts = input_ids[unfinished, :length].unique_consecutive(
            dim=0, return_inverse=True, return_counts=True
        )
        firsts = unfinished[counts.cumsum(0) - counts]
        memory = {} if output is None else _select_memory(output, prefix_of_sequence[firsts].to(model.device))
        unread = prefixes[:, -1:] if memory else prefixes
        output = model(unread.to(model.device), use_cache=True, **memory)
        logits = output.logits[:, -1].to(torch.promote_types(output.logits.dtype, torch.float32))
        targets = input_ids[unfinished, length].to(logits.device)
        indices = prefix.to(logits.device)
        totals[unfinished] += (logits[indices, targets] - logits.logsumexp(dim=-1)[indices]).double().cpu()
        prefix_of_sequence[unfinished] = prefix
    scores = totals.tolist()
    if any(math.isnan(score) for score in scores):
        raise ValueError("a log probability is not a number: the model's weights contain NaN or infinity")
    return scores


def _select_memory(output, rows: torch.Tensor) -> dict:
    """The model's memory of the given rows of its last call, as arguments for the next call."""
    if getattr(output, "state", None) is not None:
        return {"state": output.state.index_select(rows)}
    for name in ("cache", "past_key_values"):  # as Transformers names it from 5.24 on, and before
        cache = getattr(output, name, None)
        if cache is not None:
            cache.reorder_cache(rows)
            return {name: cache}
    return {}
