"""Log probabilities of many token sequences; each shared prefix is computed once."""

from collections.abc import Sequence

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from ..models.state import check_vocabulary
from ..utils.evaluation_mode import evaluation_mode
from ..utils.iteration import progress_bar


def sequence_log_probabilities(
    model: PreTrainedModel, sequences: Sequence[Sequence[int]], batch_size: int = 1024
) -> list[float]:
    """Returns the log probability of each sequence of token ids after its first one, for any causal language model.

    Duplicate sequences are scored once. The others are sorted, so that the sequences of a batch share long prefixes. A
    batch is processed as a prefix tree: step `t` calls the model on the last token of all distinct prefixes of length
    `t`, starting from the state of their parents. No sequence is padded. The state is the output's `state` (models of
    this package) or `cache` or `past_key_values` (Transformers). A model without any of them recomputes each prefix.

    A prefix tree has `batch_size` distinct sequences, which bounds the number of prefixes per call.

    Returns:
        For each sequence, the sum of the natural log probabilities of all tokens but the first, such as `<eos>`, which
        is only context. Equal sequences have exactly equal scores.

    Raises:
        ValueError: if a sequence is empty or has ids outside the vocabulary, or the model computes NaN.
    """
    keys = [tuple(sequence) for sequence in sequences]
    if () in keys:
        raise ValueError(f"sequence {keys.index(())} is empty: it needs at least one token")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size}")
    distinct = sorted(set(keys))
    check_vocabulary("sequences", torch.tensor([token for key in distinct for token in key]), model.config.vocab_size)
    log_probabilities: dict[tuple[int, ...], float] = {}
    with evaluation_mode(model), progress_bar(total=len(distinct), unit="sentence") as bar:
        for start in range(0, len(distinct), batch_size):
            batch = distinct[start : start + batch_size]
            log_probabilities.update(zip(batch, _score_prefix_tree(model, batch), strict=True))
            bar.update(len(batch))
    return [log_probabilities[key] for key in keys]


def _score_prefix_tree(model: PreTrainedModel, sequences: list[tuple[int, ...]]) -> list[float]:
    """Scores sorted sequences, by increasing prefix length."""
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    input_ids = pad_sequence([torch.tensor(sequence) for sequence in sequences], batch_first=True)
    totals = torch.zeros(len(sequences), dtype=torch.float64)
    prefix_of_sequence = torch.zeros(len(sequences), dtype=torch.long)
    output = None
    for length in range(1, input_ids.shape[1]):
        unfinished = (lengths > length).nonzero().squeeze(1)
        # In sorted sequences, equal prefixes are adjacent.
        prefixes, prefix, counts = input_ids[unfinished, :length].unique_consecutive(
            dim=0, return_inverse=True, return_counts=True
        )
        firsts = unfinished[counts.cumsum(0) - counts]
        past = {} if output is None else _select_past(output, prefix_of_sequence[firsts].to(model.device))
        inputs = prefixes[:, -1:] if past else prefixes
        output = model(inputs.to(model.device), use_cache=True, **past)
        logits = output.logits[:, -1].to(torch.promote_types(output.logits.dtype, torch.float32))
        targets = input_ids[unfinished, length].to(logits.device)
        indices = prefix.to(logits.device)
        totals[unfinished] += (logits[indices, targets] - logits.logsumexp(dim=-1)[indices]).double().cpu()
        prefix_of_sequence[unfinished] = prefix
    if totals.isnan().any():
        raise ValueError("a log probability is not a number: the model's weights contain NaN or infinity")
    return totals.tolist()


def _select_past(output, rows: torch.Tensor) -> dict:
    """Selects rows of the state or cache of the last call, as arguments of the next call."""
    for name in ("state", "cache", "past_key_values"):  # of this package, of Transformers since 5.24, and before
        cache = getattr(output, name, None)
        if cache is not None:
            cache.reorder_cache(rows)
            return {name: cache}
    return {}
