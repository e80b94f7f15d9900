"""Speed of a PRPN: its training step and its parsing against what the authors' code does, one word after the other."""

import random
from collections.abc import Callable, Sequence

import torch
from speed_cases import REFERENCE, REFERENCE_SENTENCES_PER_ROUND, Outcome, Row, at_least
from speed_contestants import PRECISIONS
from speed_measurement import Spread, ratio, take_turns
from speed_training import use_implementation
from torch.nn import functional as F

from onlstm_hf import PRPNConfig, PRPNForCausalLM
from onlstm_hf.trees import tree_from_distances

WORD_BY_WORD = "word by word float32"
WHOLE_MODEL = f"{REFERENCE}, whole model, sentence by sentence"
BATCH_SIZE, LENGTH = 64, 35


def measure_prpn(fields: dict, rounds: int, device: torch.device, sentences: Sequence[Sequence[int]]) -> list[Outcome]:
    """A training step at the batch of the paper, and the parsing of all sentences.

    Args:
        fields: of the `PRPNConfig`; weights are random.
        rounds: how often all take their turn.
        device: where.
        sentences: token ids.
    """
    torch.manual_seed(0)
    model = PRPNForCausalLM(PRPNConfig(**fields)).to(device)
    return [_training(model, rounds, device), _parsing(model, rounds, device, sentences)]


def _training(model: PRPNForCausalLM, rounds: int, device: torch.device) -> Outcome:
    """Forward and backward pass, clipping and optimiser.

    Word by word, every module runs on one word after the other, and only the softmax over the vocabulary is one for
    all, as in the authors' code. The reference has one step after the other in the layers' recurrence alone. The loss
    and the optimiser of the reference and of the fast path are those of `train_lm.py`.
    """
    config = model.config
    plain, fused = (
        torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.0, 0.999), fused=in_one) for in_one in (None, True)
    )
    ids = torch.randint(config.vocab_size, (BATCH_SIZE, LENGTH), device=device)

    def update(loss: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    def word_by_word() -> None:
        use_implementation(model.train(), "reference")
        state, hiddens = None, []
        for step in range(LENGTH):
            outputs = model.model(ids[:, step : step + 1], state=state)
            state = outputs.state
            hiddens.append(outputs.last_hidden_state)
        logits = model.lm_head(torch.cat(hiddens, dim=1))
        update(F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()), plain)

    def whole(implementation: str, precision: str) -> None:
        use_implementation(model.train(), implementation)
        with torch.autocast(device.type, dtype=PRECISIONS[precision], enabled=PRECISIONS[precision] is not None):
            loss = model(ids, labels=ids, skip_logits=True).loss
        update(loss, fused)

    contestants: dict[str, Callable[[], None]] = {WORD_BY_WORD: word_by_word}
    for precision in PRECISIONS:
        for implementation in ("reference", "auto"):
            contestants[f"{implementation} {precision}"] = lambda i=implementation, p=precision: whole(i, p)
    for run in contestants.values():
        run()
    seconds = take_turns(contestants, rounds, device)
    case = (
        f"training step of a PRPN, {BATCH_SIZE} x {LENGTH}, sizes {config.embedding_size} and {config.hidden_size}, "
        f"vocabulary {config.vocab_size}"
    )
    rows = [
        at_least(case, "float32, speed of word by word", ratio(seconds[WORD_BY_WORD], seconds["auto float32"]), 2.5),
        Row(case, "bf16, speed of word by word in float32", ratio(seconds[WORD_BY_WORD], seconds["auto bf16"])),
        Row(case, "float32, speed of the reference loop", ratio(seconds[REFERENCE], seconds["auto float32"])),
    ]
    return Outcome(case, seconds, BATCH_SIZE * LENGTH, rows, {}, {})


def _parsing(model: PRPNForCausalLM, rounds: int, device: torch.device, sentences: Sequence[Sequence[int]]) -> Outcome:
    """`parse()` of all sentences against the whole model on each, from a random sample by the number of words."""
    sample, num_tokens, sampled_tokens = random.Random(0), sum(map(len, sentences)), []

    @torch.no_grad()
    def sentence_by_sentence() -> None:
        use_implementation(model.eval(), "reference")
        chosen = sample.sample(sentences, min(REFERENCE_SENTENCES_PER_ROUND, len(sentences)))
        for sentence in chosen:
            outputs = model(torch.tensor([sentence], device=device), output_distances=True)
            tree_from_distances(outputs.distances[0].tolist(), list(map(str, sentence)))
        sampled_tokens.append(sum(map(len, chosen)))

    contestants = {
        WHOLE_MODEL: sentence_by_sentence,
        "auto float32": lambda: model.eval().parse(sentences, progress=False),
    }
    for run in contestants.values():
        run()
    sampled_tokens.clear()
    seconds = take_turns(contestants, rounds, device)
    seconds[WHOLE_MODEL] = [
        time * num_tokens / tokens for time, tokens in zip(seconds[WHOLE_MODEL], sampled_tokens, strict=True)
    ]
    case = f"parsing {len(sentences)} sentences with a PRPN, {num_tokens} words"
    rows = [
        at_least(
            case,
            "float32, speed of the whole model, sentence by sentence",
            ratio(seconds[WHOLE_MODEL], seconds["auto float32"]),
            20,
        ),
        Row(case, "float32, sentences a second", Spread.of(len(sentences) / time for time in seconds["auto float32"])),
    ]
    details = {"extrapolated": f"{WHOLE_MODEL}: from {REFERENCE_SENTENCES_PER_ROUND} random sentences a round"}
    return Outcome(case, seconds, num_tokens, rows, {}, details)
