"""Sentences a second, memory and size of `onlstm-hf parse-corpus`, beside `datasets.map`, and the plan of a billion.

    python eval/corpus/benchmark_corpus.py model_cards/prpn-ptb-small --text train.txt --folder runs/corpus
    python eval/corpus/benchmark_corpus.py model_cards/prpn-ptb-small --text train.txt --folder runs/corpus-turns \
        --sentences 100000 --rounds 5

The corpus has the lines of the text again and again. In each round every contestant parses all of it once, in an order
that changes from round to round: `parse-corpus` with as many workers as there are cores and with one, of one thread
each, and `datasets.map(num_proc=...)` with `parse` and as many processes. All give words and spans. Time is that of
the whole command; that of the CPU hardly depends on what else the machine does. Memory is the most that the processes
of a command had at a time. What was measured stays in the folder: the same command goes on after it was ended.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from itertools import cycle, islice
from pathlib import Path

import psutil
import torch
from datasets import disable_progress_bars, load_dataset

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the checkout that this script belongs to

from eval.data.texts import read_sentences
from eval.report.tables import markdown_table
from eval.speed.measurement import Spread, ratios
from onlstm_hf.utils.checkpoints import load_checkpoint
from onlstm_hf.utils.files import write_json, written_file
from onlstm_hf.utils.programs import positive_integer, run_program
from onlstm_hf.utils.results_file import describe_machine

CHECKOUT = Path(__file__).resolve().parents[2]
BILLION = 10**9
BASELINE = "datasets.map"
PLANNED_CORES = (16, 64, 256, 1024)
SECONDS_BETWEEN_SAMPLES = 0.5


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the script and returns its exit code."""
    options = build_parser().parse_args(arguments)
    work = benchmark if options.map is None else map_with_parse
    return run_program("benchmark_corpus.py", lambda: work(options))


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL", help="checkpoint folder or name on the Hub")
    parser.add_argument("--text", required=True, metavar="FILE", help="text, a sentence a line")
    parser.add_argument("--folder", required=True, metavar="FOLDER", help="for the corpus, the tables and the figures")
    parser.add_argument("--sentences", type=positive_integer, default=10**6, metavar="N", help="(%(default)s)")
    parser.add_argument("--rounds", type=positive_integer, default=1, metavar="N", help="(%(default)s)")
    parser.add_argument(
        "--processes", type=positive_integer, default=2, metavar="N", help="workers, of a core each (%(default)s)"
    )
    parser.add_argument("--map", metavar="FOLDER", help=f"do what {BASELINE} does, and write into this folder")
    return parser


def benchmark(options: argparse.Namespace) -> None:
    """Measures what has not been measured yet, and prints the tables."""
    folder = Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    corpus = write_corpus(options.text, options.sentences, folder / f"{options.sentences}.txt")
    figures = folder / f"{options.sentences}.json"
    measured: dict[str, list[dict]] = json.loads(figures.read_text()) if figures.exists() else {}
    commands = contestants(options, corpus)
    for number in range(options.rounds):
        for name in list(commands)[number % len(commands) :] + list(commands)[: number % len(commands)]:
            rounds = measured.setdefault(name, [])
            if len(rounds) > number:
                continue
            print(f"round {number + 1} of {options.rounds}: {name}", file=sys.stderr, flush=True)
            output = folder / "output"
            shutil.rmtree(output, ignore_errors=True)
            figure = run_and_watch([*commands[name], str(output)])
            size = sum(path.stat().st_size for path in output.glob("*") if path.suffix in (".parquet", ".arrow"))
            rounds.append({**figure, "bytes": size})
            write_json(figures, measured)
    shutil.rmtree(folder / "output", ignore_errors=True)
    print(", ".join(f"{name}: {value}" for name, value in describe_machine(torch.device("cpu")).items()))
    print()
    print(measured_table(measured, options.sentences, options.processes))
    print()
    print(plan_table(measured, options.sentences, options.processes, corpus.stat().st_size))


def write_corpus(text: str, num_sentences: int, path: Path) -> Path:
    """A file with the sentences of a text, again and again; the one that is there if there is one."""
    if not path.exists():
        with written_file(path) as file:
            lines = cycle([line.strip() for line in read_sentences(text) if line.strip()])
            file.writelines(f"{line}\n" for line in islice(lines, num_sentences))
    return path


def contestants(options: argparse.Namespace, corpus: Path) -> dict[str, list[str]]:
    """The command of each, to which the folder of its output is added."""

    def parse_corpus(workers: int) -> list[str]:
        command = [sys.executable, "-m", "onlstm_hf", "parse-corpus", "--model", options.model, "--threads", "1"]
        return [*command, "--no-log-probability", "--workers", str(workers), str(corpus)]

    own_options = ["--text", str(corpus), "--folder", options.folder, "--processes", str(options.processes)]
    return {
        f"parse-corpus, {options.processes} workers": parse_corpus(options.processes),
        f"{BASELINE}, {options.processes} processes": [sys.executable, __file__, options.model, *own_options, "--map"],
        "parse-corpus, 1 worker": parse_corpus(1),
    }


def run_and_watch(command: list[str]) -> dict[str, float]:
    """Runs a command to its end.

    Returns:
        Its seconds, those of the CPU that it and its processes had, and the most memory in bytes that they had at a
        time, in which a page that several of them have counts once.

    Raises:
        ChildProcessError: if it fails.
    """
    start, peak_bytes, cpu_seconds = time.perf_counter(), 0, {}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CHECKOUT), os.environ.get("PYTHONPATH", "")])}
    process = psutil.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        num_bytes = 0
        for member in [process, *process.children(recursive=True)]:
            with suppress(psutil.Error):  # it has ended meanwhile
                memory, times = member.memory_full_info(), member.cpu_times()
                num_bytes += getattr(memory, "pss", memory.uss)
                cpu_seconds[member.pid] = times.user + times.system
        peak_bytes = max(peak_bytes, num_bytes)
        time.sleep(SECONDS_BETWEEN_SAMPLES)
    if process.returncode:
        raise ChildProcessError(f"{' '.join(command)} ended with exit code {process.returncode}")
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "cpu_seconds": sum(cpu_seconds.values()), "peak_bytes": peak_bytes}


def map_with_parse(options: argparse.Namespace) -> None:
    """What a user of `datasets` would write."""
    disable_progress_bars()
    corpus = load_dataset("text", data_files=options.text, split="train", cache_dir=f"{options.map}/cache")
    trees = corpus.map(
        _parse_batch,
        batched=True,
        num_proc=options.processes,
        remove_columns=["text"],
        fn_kwargs={"name": options.model},
    )
    trees.save_to_disk(options.map)


def _parse_batch(batch: dict[str, list[str]], name: str) -> dict[str, list]:
    model, tokenizer = _load(name)
    trees = model.parse(batch["text"], tokenizer, batch_size=256, progress=False)
    return {"words": [tree.words for tree in trees], "spans": [tree.spans() for tree in trees]}


@cache
def _load(name: str):
    torch.set_num_threads(1)
    return load_checkpoint(name)


def measured_table(measured: dict[str, list[dict]], num_sentences: int, processes: int) -> str:
    """A row for each contestant: medians and quartiles over the rounds."""
    reference, *_ = measured.values()
    rows = []
    for name, rounds in measured.items():
        row = [name, str(Spread.of(num_sentences / figure["seconds"] for figure in rounds))]
        for unit in ("seconds", "cpu_seconds"):
            of_both = ([figure[unit] for figure in each] for each in (rounds, reference))
            row.append(str(Spread.of(ratios(*of_both))))
        row.append(f"{max(figure['peak_bytes'] for figure in rounds) / 2**20:,.0f}")
        rows.append([*row, f"{rounds[-1]['bytes'] / 2**20:,.1f}"])
    relative = [f"{unit}, of {processes} workers" for unit in ("time", "CPU time")]
    header = [f"{num_sentences:,} sentences", "sentences a second", *relative, "peak memory, MiB", "table, MiB"]
    return markdown_table(header, rows)


def plan_table(measured: dict[str, list[dict]], num_sentences: int, processes: int, input_bytes: int) -> str:
    """What a billion sentences like these would take, by the first contestant's figures."""
    rounds = next(iter(measured.values()))
    seconds = Spread.of(figure["seconds"] for figure in rounds).median
    core_hours = seconds * processes / 3600 / num_sentences * BILLION
    memory = max(figure["peak_bytes"] for figure in rounds) / processes
    output = rounds[-1]["bytes"]
    rows = [
        [
            f"{cores:,}",
            f"{core_hours / cores:,.1f}",
            f"{input_bytes / num_sentences * BILLION / 1e9:,.0f}",
            f"{output / num_sentences * BILLION / 1e9:,.0f}",
            f"{memory * cores / 1e9:,.0f}",
        ]
        for cores in PLANNED_CORES
    ]
    header = ["cores, one a worker", "hours", "text, GB", "table, GB", "memory of all workers, GB"]
    return markdown_table(header, rows)


if __name__ == "__main__":
    sys.exit(main())
