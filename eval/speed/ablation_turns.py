"""Time and peak memory of the cases of `eval/benchmark_ablations.py`, in processes of one thread each."""

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import chain, repeat
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from eval.speed.ablations import ABLATIONS, KEPT_MEMORY, Case
from eval.speed.memory import CLEAR_REFERENCES, resident_bytes
from eval.speed.training import start_training
from onlstm_hf.utils.process_memory import keep_freed_memory

WITH_ALL = "with all"
MODEL_CARDS = Path(__file__).resolve().parents[2] / "model_cards"


class Start(NamedTuple):
    """What a process starts from.

    Attributes:
        case: what to run.
        text: file to train on, one sentence a line.
        sentences: words of the sentences to parse.
    """

    case: Case
    text: str
    sentences: Sequence[Sequence[str]]

    @property
    def ablations(self) -> list[str]:
        """The names of those that apply to the case."""
        return [name for name, ablation in ABLATIONS.items() if ablation.applies_to(self.case)]


def take_turns(start: Start, rounds: int) -> dict[str, list[float]]:
    """CPU seconds of a step with all optimisations, and without each that applies, in every round."""
    names = [WITH_ALL, *start.ablations]
    seconds: dict[str, list[float]] = {name: [] for name in names}
    with ExitStack() as stack:
        keeping, other = (stack.enter_context(_worker(start, keeps_memory)) for keeps_memory in (True, False))
        for number in range(-1, rounds):  # the first one warms up
            first = number % len(names)
            for name in names[first:] + names[:first]:
                worker = other if name == KEPT_MEMORY else keeping
                passed = worker.submit(_turn, name).result()
                if number >= 0:
                    seconds[name].append(passed)
    return seconds


def measure_peaks(start: Start) -> dict[str, int]:
    """Bytes at the peak of a step above what is there before it, with all optimisations and without each."""
    names = [WITH_ALL, *(name for name in start.ablations if name != KEPT_MEMORY)]
    with (
        mock.patch.dict(os.environ, {"MALLOC_MMAP_THRESHOLD_": str(1 << 16)}),
        _worker(start, keeps_memory=False, overrides=["--random_bptt=no"]) as worker,  # batches of equal length
    ):
        worker.submit(_turn, WITH_ALL).result()  # makes the optimiser's moments
        return {name: worker.submit(_peak, name).result() for name in names}


@contextmanager
def _worker(start: Start, keeps_memory: bool, overrides: Sequence[str] = ()) -> Iterator[ProcessPoolExecutor]:
    """A process in which the case can be run."""
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(
            max_workers=1,
            mp_context=get_context("spawn"),
            initializer=_start_worker,
            initargs=(start, keeps_memory, overrides, folder),
        ) as executor,
    ):
        yield executor


# In a worker: what to do again and again, by the name of what is switched off; each of them reads the text by itself.
_steps: dict[str, Iterator[object]] = {}


def _start_worker(start: Start, keeps_memory: bool, overrides: Sequence[str], folder: str) -> None:
    torch.set_num_threads(1)
    if keeps_memory:
        keep_freed_memory()
    model, precision, parses = start.case
    if parses:
        name = MODEL_CARDS / f"{model}-ptb-small"
        parser, tokenizer = AutoModelForCausalLM.from_pretrained(name), AutoTokenizer.from_pretrained(name)
    else:
        run = start_training(f"{model}_ptb_small", Path(start.text), precision, Path(folder) / "run", overrides)
    for name in (WITH_ALL, *ABLATIONS):
        if parses:
            _steps[name] = (parser.parse(start.sentences, tokenizer, progress=False) for _ in repeat(None))
        else:
            batches = chain.from_iterable(run.batches.batches(0) for _ in repeat(None))
            _steps[name] = map(run.update, ([batch] for batch in batches))


def _turn(name: str) -> float:
    """CPU seconds of the next step without the optimisation of that name."""
    with _switched_off(name):
        start = time.process_time()
        next(_steps[name])
        return time.process_time() - start


def _peak(name: str) -> int:
    """Bytes at the peak of the next step above what is there before it."""
    with _switched_off(name):
        CLEAR_REFERENCES.write_text("5")
        before = resident_bytes("VmRSS")
        next(_steps[name])
        return resident_bytes("VmHWM") - before


def _switched_off(name: str) -> AbstractContextManager:
    return nullcontext() if name == WITH_ALL else ABLATIONS[name].switched_off()
