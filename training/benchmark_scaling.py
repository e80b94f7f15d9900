"""What another process brings: `python training/benchmark_scaling.py RECIPE.yaml [options]`.

Measures updates of a recipe's model in one process, and in two that average their gradients, each with one thread of
this machine. The bytes that this takes say, on paper, how a run scales over GPUs: from how fast one GPU is and how
fast they are connected, which are options. Nothing of a step is taken to overlap: the efficiencies are lower bounds.
"""

import argparse
import socket
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil
import torch
from torch import distributed, multiprocessing, nn
from transformers import AutoConfig, AutoModelForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from training.language_models.recipe import LanguageModelRecipe, parse_recipe
from training.loop.model_setup import changed_config
from training.loop.optimization import average_gradients, build_optimizer

VOCABULARY = 10_000
COMPRESSIONS = ("no", "bf16")
ACCUMULATIONS = (1, 4, 16)


class Turn(NamedTuple):
    """One turn: seconds of an update in one process, in two at once without and with each way to send gradients.

    Attributes:
        alone, apart: seconds.
        together: seconds by compression.
        sent: bytes that went over the loopback device by compression.
    """

    alone: float
    apart: float
    together: dict[str, float]
    sent: dict[str, int]


class Links(NamedTuple):
    """How GPUs are connected: bytes a second of one GPU in a host and of one host, seconds that a message takes."""

    in_host: float
    between_hosts: float
    latency: float
    gpus_per_host: int

    def seconds(self, num_gpus: int, num_bytes: int, num_messages: int) -> float:
        """Of an all-reduce in a ring, which sends each byte nearly twice over the slowest link."""
        slowest = self.in_host if num_gpus <= self.gpus_per_host else self.between_hosts
        return 2 * (num_gpus - 1) / num_gpus * num_bytes / slowest + num_messages * self.latency


def efficiency(compute: float, communicate: float, accumulation: int) -> float:
    """The share of its speed alone that each GPU keeps, where nothing is sent while something is computed."""
    return accumulation * compute / (accumulation * compute + communicate)


def build_model(recipe: LanguageModelRecipe) -> nn.Module:
    """The recipe's model, new, with a vocabulary of the Penn Treebank text's size."""
    known = AutoConfig.for_model(recipe.model.model_type)
    fields = {"vocab_size": VOCABULARY, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 1}
    return AutoModelForCausalLM.from_config(changed_config(known, fields, recipe.model.model)).train()


def measure(rank: int, arguments: list[str], num_turns: int, port: int, results: multiprocessing.Queue) -> None:
    """The work of one of two processes; the first one puts its turns into the queue."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    recipe = parse_recipe(arguments)
    model = build_model(recipe)
    optimizer = build_optimizer(model, recipe.optimization)
    shape = (recipe.optimization.batch_size, recipe.data.bptt_length)
    batch = torch.randint(2, VOCABULARY, shape, generator=torch.Generator().manual_seed(rank))
    shared = {}
    for compression in COMPRESSIONS:
        shared[compression] = nn.parallel.DistributedDataParallel(model)
        average_gradients(shared[compression], compression)

    def update(trained: nn.Module, takes_part: bool = True) -> tuple[float, int]:
        """Seconds until all processes are done, and bytes sent meanwhile."""
        distributed.barrier()
        start, before = time.perf_counter(), _bytes_sent()
        if takes_part:
            output = trained(batch, shift_labels=batch, use_cache=True, skip_logits=True)
            output.loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        distributed.barrier()
        return time.perf_counter() - start, _bytes_sent() - before

    for turn in range(num_turns + 1):
        alone, apart = update(model, takes_part=rank == 0)[0], update(model)[0]
        both = {compression: update(shared[compression]) for compression in COMPRESSIONS}
        if rank == 0 and turn:  # the first turn also takes memory and lays out gradients
            together, sent = ({name: values[index] for name, values in both.items()} for index in (0, 1))
            results.put(Turn(alone, apart, together, sent))
    shared.clear()  # else the two may wait for one another: see `TrainingRun._leave_other_processes`
    distributed.destroy_process_group()


def _bytes_sent() -> int:
    return sum(card.bytes_sent for name, card in psutil.net_io_counters(pernic=True).items() if name.startswith("lo"))


def measured_turns(arguments: list[str], num_turns: int) -> list[Turn]:
    """Starts both processes, and returns what they measured."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    results = multiprocessing.get_context("spawn").Queue()
    processes = multiprocessing.spawn(measure, (arguments, num_turns, port, results), nprocs=2, join=False)
    turns = [results.get() for _ in range(num_turns)]
    processes.join()
    return turns


def _median(values: Iterator[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return (
        f"{middle:,.3g} ({low:,.3g} to {high:,.3g})" if middle < 100 else f"{middle:,.0f} ({low:,.0f} to {high:,.0f})"
    )


def measured_table(turns: Sequence[Turn], num_tokens: int) -> str:
    """Medians, with quartiles: ratios are of the same turn."""
    rows = [("1 process", [num_tokens / turn.alone for turn in turns], [1.0] * len(turns), None)]
    apart = [turn.apart for turn in turns]
    rows.append(("2 processes, nothing sent", [2 * num_tokens / seconds for seconds in apart],
                 [2 * turn.alone / turn.apart for turn in turns], None))  # fmt: skip
    for name, compression in (("float32", "no"), ("bf16", "bf16")):
        seconds = [turn.together[compression] for turn in turns]
        rows.append((f"2 processes, gradients in {name}", [2 * num_tokens / second for second in seconds],
                     [2 * turn.alone / turn.together[compression] for turn in turns],
                     statistics.median(turn.sent[compression] for turn in turns)))  # fmt: skip
    lines = [
        "| this machine | tokens a second | times 1 process | MB sent an update, both together |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, speeds, ratios, sent in rows:
        lines.append(
            f"| {name} | {_median(speeds)} | {_median(ratios)} | {'' if sent is None else f'{sent / 1e6:,.0f}'} |"
        )
    return "\n".join(lines)


def paper_table(model: nn.Module, compute: float, links: Links, numbers_of_gpus: Sequence[int]) -> str:
    """Efficiencies by number of GPUs, kind of gradients, and batches of one update."""
    sizes = [parameter.numel() for parameter in model.parameters() if parameter.requires_grad]
    columns = " | ".join(f"accumulation {number}" for number in ACCUMULATIONS)
    lines = [
        f"| GPUs | gradients | ms an all-reduce | {columns} |",
        "| ---: | --- | ---: |" + " ---: |" * len(ACCUMULATIONS),
    ]
    for num_gpus in numbers_of_gpus:
        for name, width in (("float32", 4), ("bf16", 2)):
            seconds = links.seconds(num_gpus, width * sum(sizes), len(sizes))
            shares = " | ".join(f"{efficiency(compute, seconds, number):.0%}" for number in ACCUMULATIONS)
            lines.append(f"| {num_gpus} | {name} | {1000 * seconds:.1f} | {shares} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("recipe", metavar="RECIPE", help="recipe of train_lm.py; further options override its fields")
    parser.add_argument("--turns", type=int, default=5, help="of which the medians are taken (%(default)s)")
    parser.add_argument("--gpus", type=int, nargs="+", default=[8, 64], metavar="N", help="(%(default)s)")
    parser.add_argument("--gpus-per-host", type=int, default=8, metavar="N", help="(%(default)s)")
    parser.add_argument("--gpu-tokens-per-second", type=float, default=30_000, help="of one GPU alone (%(default)s)")
    parser.add_argument("--host-gigabits", type=float, default=100, help="a second, of a host's network (%(default)s)")
    parser.add_argument("--link-gigabytes", type=float, default=300, help="a second, in a host (%(default)s)")
    parser.add_argument("--message-microseconds", type=float, default=50, help="before its first byte (%(default)s)")
    options, others = parser.parse_known_args(arguments)
    # Neither text nor folder is read or written.
    others = ["--train_files", "none", "--validation_files", "none", "--output_dir", "none", *others]
    recipe, model_arguments = parse_recipe([options.recipe, *others]), [options.recipe, *others]
    num_tokens = recipe.optimization.batch_size * recipe.data.bptt_length
    model = build_model(recipe)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {num_tokens:,} tokens a batch of one process\n")
    print(measured_table(measured_turns(model_arguments, options.turns), num_tokens), end="\n\n")
    links = Links(
        options.link_gigabytes * 1e9, options.host_gigabits * 1e9 / 8, options.message_microseconds * 1e-6,
        options.gpus_per_host,
    )  # fmt: skip
    print(paper_table(model, num_tokens / options.gpu_tokens_per_second, links, options.gpus))


if __name__ == "__main__":
    main()
