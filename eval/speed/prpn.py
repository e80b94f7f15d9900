"""Speed of a PRPN: its training step and its parsing against what the authors' code does, one word after the other."""

import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace

import torch
from torch.nn import functional as F

from eval.speed.cases import REFERENCE, REFERENCE_SENTENCES_PER_ROUND
from eval.speed.contestants import PRECISIONS
from eval.speed.measurement import in_own_process, ratios, synchronize, take_turns
from eval.speed.prpn_word_by_word import logits_word_by_word
from eval.speed.rows import Outcome, Row
from onlstm_hf import PRPNConfig, PRPNForCausalLM
from onlstm_hf.trees.distances import tree_from_distances
from onlstm_hf.utils.process_memory import keep_freed_memory

WORD_BY_WORD = "word by word float32"
WHOLE_MODEL = f"{REFERENCE}, whole model, sentence by sentence"
BATCH_SIZE, LENGTH = 64, 35
# Before the first round, so that the process has all the memory that an update needs.
WARM_UP_UPDATES = 10
# The authors' settings, as in the recipe `prpn_lm_ptb`.
ADAM = {"lr": 3e-3, "betas": (0.0, 0.999), "eps": 1e-9, "weight_decay": 1e-6}


def measure_prpn(fields: dict, rounds: int, device: torch.device, sentences: Sequence[Sequence[int]]) -> list[Outcome]:
    """A training step at the batch of the paper, and the parsing of all sentences.

    Args:
        fields: of the `PRPNConfig`; weights are random.
        rounds: how often all take their turn.
        device: where.
        sentences: token ids.
    """
    return [_training(fields, rounds, device), _parsing(_model(fields, device), rounds, device, sentences)]


def _model(fields: dict, device: torch.device) -> PRPNForCausalLM:
    torch.manual_seed(0)
    return PRPNForCausalLM(PRPNConfig(**fields)).to(device)


def _training(fields: dict, rounds: int, device: torch.device) -> Outcome:
    """Forward and backward pass, clipping and update: each contestant in a process of its own.

    Those of this package keep freed memory and compute the loss as `train_lm.py` does; word by word, which stands for
    the authors' code, leaves its memory to the C library. All take the fused optimiser. The reference goes step by
    step in the layers' recurrence alone.
    """
    contestants = {WORD_BY_WORD: (word_by_word_step, fields, device)}
    for precision in PRECISIONS:
        for implementation in ("reference", "auto"):
            contestants[f"{implementation} {precision}"] = (training_step, fields, device, implementation, precision)
    with ExitStack() as processes:
        runs = {name: processes.enter_context(in_own_process(*contestant)) for name, contestant in contestants.items()}
        for run in runs.values():
            run()
        seconds = take_turns(runs, rounds, device)
    config = PRPNConfig(**fields)
    case = (
        f"training step of a PRPN, {BATCH_SIZE} x {LENGTH}, sizes {config.embedding_size} and {config.hidden_size}, "
        f"vocabulary {config.vocab_size}"
    )
    return Outcome(case, seconds, BATCH_SIZE * LENGTH, _training_rows(case, seconds), {}, {})


def _training_rows(case: str, seconds: dict[str, list[float]]) -> list[Row]:
    slow, fast, fast_in_bf16 = (seconds[name] for name in (WORD_BY_WORD, "auto float32", "auto bf16"))
    both, kept = {"allocator": "kept / default"}, {"allocator": "kept"}
    rows = [
        Row(case, "float32, speed of word by word", ratios(slow, fast), at_least=2.5, **both),
        Row(case, "bf16, speed of word by word in float32", ratios(slow, fast_in_bf16), **both),
        Row(case, "float32, speed of the reference loop", ratios(seconds[REFERENCE], fast), **kept),
        Row(case, "float32, seconds", fast, **kept),
        Row(case, "bf16, seconds", fast_in_bf16, **kept),
        Row(case, "float32 word by word, seconds", slow, allocator="default"),
    ]
    return [replace(row, optimizer="fused") for row in rows]


def training_step(fields: dict, device: torch.device, implementation: str, precision: str) -> Callable[[], None]:
    """An update as `train_lm.py` makes it, of a new model by a random batch.

    Args:
        fields: of the `PRPNConfig`.
        device: where.
        implementation: "reference" or "auto".
        precision: of `PRECISIONS`.
    """
    keep_freed_memory()
    model = _model(fields, device).train()
    model.set_implementation(implementation)
    optimizer = torch.optim.Adam(model.parameters(), **ADAM, fused=True)
    dtype = PRECISIONS[precision]

    def loss(ids: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
            return model(ids, labels=ids, skip_logits=True).loss

    return _warmed_up_update(model, optimizer, loss, device)


def word_by_word_step(fields: dict, device: torch.device) -> Callable[[], None]:
    """An update in the order of the authors' code."""
    model = _model(fields, device).train()
    model.set_implementation("reference")
    optimizer = torch.optim.Adam(model.parameters(), **ADAM, fused=True)

    def loss(ids: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits_word_by_word(model, ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())

    return _warmed_up_update(model, optimizer, loss, device)


def _warmed_up_update(
    model: PRPNForCausalLM,
    optimizer: torch.optim.Optimizer,
    loss: Callable[[torch.Tensor], torch.Tensor],
    device: torch.device,
) -> Callable[[], None]:
    ids = torch.randint(model.config.vocab_size, (BATCH_SIZE, LENGTH), device=device)

    def update() -> None:
        loss(ids).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        synchronize(device)

    for _ in range(WARM_UP_UPDATES):
        update()
    return update


def _parsing(model: PRPNForCausalLM, rounds: int, device: torch.device, sentences: Sequence[Sequence[int]]) -> Outcome:
    """`parse()` of all sentences, against the whole model on one sentence after the other.

    The latter reads another random sample of the sentences in each round, and its time is extrapolated by words.
    """
    sample, num_tokens, sampled_tokens = random.Random(0), sum(map(len, sentences)), []

    @torch.no_grad()
    def sentence_by_sentence() -> None:
        model.eval().set_implementation("reference")
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
    rows = _parsing_rows(case, len(sentences), seconds)
    details = {"extrapolated": f"{WHOLE_MODEL}: from {REFERENCE_SENTENCES_PER_ROUND} random sentences a round"}
    return Outcome(case, seconds, num_tokens, rows, {}, details)


def _parsing_rows(case: str, num_sentences: int, seconds: dict[str, list[float]]) -> list[Row]:
    slow, fast = seconds[WHOLE_MODEL], seconds["auto float32"]
    return [
        Row(case, "float32, speed of the whole model, sentence by sentence", ratios(slow, fast), at_least=20),
        Row(case, "float32, sentences a second", [num_sentences / time for time in fast]),
        Row(case, "float32, seconds", fast),
        Row(case, "whole model, sentence by sentence, seconds", slow),
    ]
