"""Runs on several hosts: the text of each process, and resuming after a host died."""

import gc
import io
import json
import sys
import time
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
from accelerate.commands.launch import launch_command, launch_command_parser
from torch.distributed.launcher.api import elastic_launch
from torch.distributed.run import config_from_args, parse_args
from torch.distributed.run import main as torchrun
from torch.nn.parallel import DistributedDataParallel

from tests.helpers.folders import names_in
from tests.helpers.forked_processes import forked_context, run_ranks
from tests.helpers.loopback import ADDRESS, enter_process, free_port, kill_all
from tests.helpers.requirements import library
from tests.helpers.training_runs import NO_DROPOUT, assert_same_weights, command, log_of, write_recipe, write_texts
from training import train_lm
from training.language_models.text_batches import TextLines, own_texts
from training.loop import run as loop
from training.loop.run import run_script
from training.loop.task import ProcessShard

ENVIRONMENT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "ACCELERATE_USE_CPU": "true"}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Working directory with `recipe.yaml`, `train.txt` and `valid.txt`."""
    monkeypatch.chdir(tmp_path)
    write_texts(train=400, valid=12)
    write_recipe(batch_size=2, optimizer="adamw", learning_rate=0.01)


def losses_of(output_dir):
    return [entry["loss"] for entry in log_of(output_dir, "loss")]


def train_in(num_processes, output_dir, *overrides):
    run_ranks(num_processes, train_lm.main, command(output_dir, *overrides))


def train_as_script(arguments):
    sys.argv = ["train_lm.py", *arguments]
    run_script("train_lm.py", train_lm.main)


def run_on_host(output, options, arguments):
    """Acts as `torchrun` on a host. It forks this process, because new processes take seconds to start."""
    enter_process(output, ENVIRONMENT)
    config, _, _ = config_from_args(parse_args([*options, "train_lm.py"]))
    config.start_method = "fork"
    elastic_launch(config, train_as_script)(arguments)


def start_on_hosts(name, *overrides):
    """Starts a `torchrun` run of four processes, two on each host."""
    options = ["--nnodes", "2", "--nproc-per-node", "2", "--master-addr", ADDRESS, "--master-port", str(free_port())]
    processes = []
    for rank in ("0", "1"):
        arguments = f"host_{rank}.txt", [*options, "--node-rank", rank], command(name, *overrides)
        processes.append(forked_context().Process(target=run_on_host, args=arguments))
        processes[-1].start()
    return processes


@contextmanager
def killed_in_the_end(*processes):
    try:
        yield
    finally:
        for process in processes:
            if process.is_alive():
                kill_all(process)


def wait_for_a_checkpoint(output, *processes):
    while not Path("run/last").exists():
        assert all(process.is_alive() for process in processes), Path(output).read_text()
        time.sleep(0.05)


@pytest.mark.slow
def test_two_hosts_equal_one_process_with_all_rows_and_resume_after_the_death_of_one(project):
    options = [*NO_DROPOUT, "--num_epochs", 60, "--max_steps", 60, "--save_every_steps", 10]
    survivor, killed = start_on_hosts("run", *options)
    with killed_in_the_end(survivor, killed):
        wait_for_a_checkpoint("host_0.txt", survivor, killed)
        kill_all(killed)
        survivor.join(timeout=60)
        assert survivor.exitcode == 1
        assert len(losses_of("run")) < 60
        for process in start_on_hosts("run", *options, "--resume"):
            process.join(timeout=300)
            assert process.exitcode == 0, Path("host_0.txt").read_text()
    train_in(4, "undisturbed", *options)
    assert_same_weights("run", "undisturbed")
    train_lm.main(command("one", *options, "--batch_size", 8))
    assert losses_of("run") == pytest.approx(losses_of("one"), abs=1e-4) and len(losses_of("one")) == 60
    assert names_in("run") == ["best", "curves.svg", "last", "log.jsonl", "results.json"]


def run_torchrun(arguments):
    enter_process("output.txt", {**ENVIRONMENT, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})
    torchrun(arguments)


@pytest.mark.slow
def test_torchrun_restarts_a_killed_process_and_the_run_resumes(project, project_root):
    options = command("run", "--max_steps", 60, "--num_epochs", 60, "--save_every_steps", 10, "--resume")
    script = str(project_root / "training" / "train_lm.py")
    launcher = ["--nproc-per-node", "2", "--max-restarts", "3", "--standalone", script, *options]
    process = forked_context().Process(target=run_torchrun, args=(launcher,))
    process.start()
    with killed_in_the_end(process):
        wait_for_a_checkpoint("output.txt", process)
        psutil.Process(process.pid).children()[-1].kill()
        process.join(timeout=120)
        assert process.exitcode == 0, Path("output.txt").read_text()
    assert "resumed after" in Path("output.txt").read_text()
    train_in(2, "undisturbed", *options[3:-1])
    assert_same_weights("run", "undisturbed")


def test_processes_that_do_not_share_the_folder_are_refused(project, monkeypatch):
    monkeypatch.setattr("training.loop.checkpointing.gather_object", lambda _: [[], ["last", "best"]])
    with pytest.raises(ValueError, match="use a folder on a disk that all hosts share"):
        train_lm.main(command("run", "--resume"))
    assert not Path("run").exists()


def train_and_look_when_the_connection_ends(arguments):
    sys.setswitchinterval(20)  # gloo's threads get the GIL late, as on a busy host
    destroy, seen = torch.distributed.destroy_process_group, []

    def look(group=None):
        seen.extend(value for value in gc.get_objects() if type(value) is DistributedDataParallel)
        seen.append("destroyed")
        destroy(group)

    torch.distributed.destroy_process_group = look
    train_lm.main(arguments)
    assert seen == ["destroyed"]


def test_ddp_is_destroyed_before_the_process_group(project):
    """Otherwise its reducer waits for gloo's threads while it holds the GIL that they wait for (a deadlock)."""
    run_ranks(2, train_and_look_when_the_connection_ends, command("run", "--max_steps", 2))


@pytest.mark.parametrize("num_processes", [1, 2, 3])
def test_each_streamed_line_goes_to_one_process(tmp_path, num_processes):
    (tmp_path / "a.txt").write_text("0\n1\n2\n")
    (tmp_path / "b.txt").write_text("3\n4\n")
    lines = TextLines([str(tmp_path / name) for name in ("a.txt", "b.txt")])
    parts = [own_texts(lines, ProcessShard(1, process, num_processes)) for process in range(num_processes)]
    for _ in range(2):
        assert sorted(line for part in parts for line in part) == list("01234")
        assert {len(list(part)) for part in parts} <= {5 // num_processes, 5 // num_processes + 1}


@pytest.mark.parametrize(("num_files", "part"), [(4, [0, 1, 4, 5]), (3, [0, 2, 4])])
def test_a_streamed_dataset_is_split_by_file_if_the_files_divide_evenly(tmp_path, num_files, part):
    datasets = library("datasets")
    for number in range(num_files):
        rows = "".join(f'{{"text": "{2 * number + row}"}}\n' for row in range(2))
        (tmp_path / f"{number}.jsonl").write_text(rows)
    stream = datasets.load_dataset(str(tmp_path), split="train", streaming=True)
    parts = [[int(row["text"]) for row in own_texts(stream, ProcessShard(1, process, 2))] for process in (0, 1)]
    assert parts[0] == part
    assert sorted(parts[0] + parts[1]) == list(range(2 * num_files))


@pytest.mark.slow
def test_streamed_text_of_two_processes_resumes_exactly_and_ends_together(project):
    # The second process has shorter lines, but not more of them.
    lines = Path("train.txt").read_text().splitlines()[:120]
    lines[::2] = [f"{line} {line}" for line in lines[::2]]
    Path("train.txt").write_text("\n".join(lines))
    streaming = ["--streaming", "true", "--save_every_steps", 4]
    train_in(2, "whole", *streaming)
    updates = json.loads(Path("whole/results.json").read_text())["updates"]
    assert updates > 12
    train_in(2, "run", *streaming, "--max_steps", updates - 3)
    train_in(2, "run", *streaming, "--resume")
    assert_same_weights("run", "whole")
    assert losses_of("run") == losses_of("whole")


@pytest.mark.parametrize("counts", [(5, 3), (64, 70), (130, 128), (64, 64)])
def test_batches_end_when_any_process_has_none_left(counts):
    def batches_of(count, others):
        left = list(others)

        def gather(own):
            block, left[0] = min(loop.BATCHES_AT_ONCE, left[0]), left[0] - min(loop.BATCHES_AT_ONCE, left[0])
            return torch.cat([own, torch.tensor([block])])

        return list(loop.in_lockstep(iter(range(count)), SimpleNamespace(gather=gather, device="cpu")))

    for first, second in (counts, counts[::-1]):
        assert batches_of(first, [second]) == list(range(min(counts)))


def test_the_example_configuration_starts_a_process_for_each_gpu_of_two_hosts(project_root, monkeypatch):
    seen, configuration = {}, project_root / "training" / "accelerate" / "two_hosts.yaml"
    monkeypatch.setattr("torch.distributed.run.run", lambda arguments: seen.update(vars(arguments)))
    for rank in (0, 1):
        places = ["--machine_rank", str(rank), "--main_process_ip", "10.0.0.1"]
        arguments = ["--config_file", str(configuration), *places, "train_lm.py", "recipe.yaml"]
        with redirect_stderr(io.StringIO()):
            launch_command(launch_command_parser().parse_args(arguments))
        assert (seen["nnodes"], seen["nproc_per_node"], seen["node_rank"]) == ("2", "2", rank)
        assert seen["rdzv_endpoint"] == "10.0.0.1:29500" and seen["training_script"] == "train_lm.py"
