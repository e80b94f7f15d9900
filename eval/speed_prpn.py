"""Speed of a PRPN: its training step and its parsing against what the authors' code does, one word after the other."""

import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import torch
from speed_cases import REFERENCE, REFERENCE_SENTENCES_PER_ROUND, Outcome, Row, at_least
from speed_contestants import PRECISIONS
from speed_measurement import Spread, in_own_process, ratio, synchronize, take_turns
from speed_training import use_implementation
from torch.nn import functional as F

from onlstm_hf import PRPNConfig, PRPNForCausalLM
from onlstm_hf.process_memory import keep_freed_memory
from onlstm_hf.trees import tree_from_distances

WORD_BY_WORD = "word by word float32"
WHOLE_MODEL = f"{REFERENCE}, whole model, sentence by sentence"
BATCH_SIZE, LENGTH = 64, 35
WARM_UP_UPDATES = 5


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
    """Forward and backward pass, clipping and optimiser: each contestant in a process of its own.

    Those of this package manage memory, loss and optimiser as `train_lm.py` does. The reference has one step after the
    other in the layers' recurrence alone.
    """
    contestants = {WORD_BY_WORD: (fields, device, "reference", None)}
    for precision in PRECISIONS:
        for implementation in ("reference", "auto"):
            contestants[f"{implementation} {precision}"] = (fields, device, implementation, precision)
    with ExitStack() as processes:
        runs = {
            name: processes.enter_context(in_own_process(training_step, *arguments))
            for name, arguments in contestants.items()
        }
        for run in runs.values():
            run()
        seconds = take_turns(runs, rounds, device)
    config = PRPNConfig(**fields)
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


def training_step(
    fields: dict, device: torch.device, implementation: str, precision: str | None
) -> Callable[[], None]:
    """An update of a new model by a random batch, after some others.

    Args:
        fields: of the `PRPNConfig`.
        device: where.
        implementation: "reference" or "auto".
        precision: of `PRECISIONS`, or `None` for the authors' way, word by word.
    """
    if precision is not None:
        keep_freed_memory()
    model = _model(fields, device).train()
    use_implementation(model, implementation)
    fused = None if precision is None else True
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.0, 0.999), fused=fused)
    ids = torch.randint(model.config.vocab_size, (BATCH_SIZE, LENGTH), device=device)
    dtype = PRECISIONS.get(precision)

    def update() -> None:
        with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
            if precision is None:
                logits = _logits_word_by_word(model, ids)
                loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
            else:
                loss = model(ids, labels=ids, skip_logits=True).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        synchronize(device)

    for _ in range(WARM_UP_UPDATES):
        update()
    return update


def _logits_word_by_word(model: PRPNForCausalLM, ids: torch.Tensor) -> torch.Tensor:
    """The logits as the authors' code computes them.

    The parsing network, the output of the predict network and the decoder take the whole sequence; all layers of the
    reading network and the attention of the predict network take one word, with a tape that is copied, then the next.
    """
    network = model.model
    embeddings, state = network.embeddings(ids), network.initial_state(len(ids))
    _, _, (reading_gates, prediction_gates) = network.gates(embeddings, state, None)
    memories, features = list(state.memories), []
    for step in range(ids.shape[1]):
        now = slice(step, step + 1)
        hidden = embeddings[:, now]
        for number, layer in enumerate(network.reading_network):
            output = layer(hidden, memories[number], reading_gates[:, now])
            memories[number] = output.hidden_tape[:, 1:], output.cell_tape[:, 1:]
            hidden = output.hidden_tape[:, -1:]
        summary, _ = network.predict_network.look_back(hidden, output.hidden_tape, prediction_gates[:, now])
        features.append(torch.cat([hidden, summary], dim=-1))
    return model.lm_head(network.output_dropout(network.predict_network.predict(torch.cat(features, dim=1), None)))


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
