"""Training run of any task: setup, updates, validation, checkpoints and resuming."""

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import asdict, fields
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, InitProcessGroupKwargs
from accelerate.utils import broadcast_object_list, load, set_seed
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, get_swa_multi_avg_fn
from transformers import PreTrainedModel

from onlstm_hf.utils.checkpoints import quiet_transformers
from onlstm_hf.utils.files import write_json
from onlstm_hf.utils.process_memory import keep_freed_memory
from onlstm_hf.utils.programs import run_program
from training.loop.checkpointing import (
    check_checksums,
    find_checkpoint,
    locked_folder,
    replaced_folder,
    write_checksums,
)
from training.loop.model_setup import code_fingerprint, run_model_code
from training.loop.optimization import (
    average_gradients,
    bfloat16_speed,
    build_optimizer,
    has_stalled,
    learning_rate_factor,
)
from training.loop.recipe import Recipe
from training.loop.task import ProcessShard, Progress, Task, TrainingBatch
from training.loop.training_log import TrainingLog, check_trackers

# Longest time that processes wait for each other, for instance while the main process validates.
LONGEST_EVALUATION = timedelta(hours=2)
# Version of the training state in last/. Other versions are refused.
STATE_VERSION = 4
# Batches between two synchronisations of the number of remaining batches.
BATCHES_AT_ONCE = 64


def in_lockstep(batches: Iterator[TrainingBatch], accelerator: Accelerator) -> Iterator[TrainingBatch]:
    """Yields the batches of this process until any process has none left: an update needs a batch of each process."""
    num_common = BATCHES_AT_ONCE
    while num_common == BATCHES_AT_ONCE:
        block = list(islice(batches, BATCHES_AT_ONCE))
        num_common = int(accelerator.gather(torch.tensor([len(block)], device=accelerator.device)).min())
        yield from block[:num_common]


class TrainingRun:
    """Training loop of one run, with its model, optimiser, data and progress.

    The run locks its folder until `train` has ended. For bad input the constructor raises a `ValueError` or `OSError`
    before anything is written.
    """

    def __init__(self, task: Task):
        self.task, self.recipe, self.progress = task, task.recipe, Progress()
        run = self.recipe.run
        self.output_dir = Path(run.output_dir)
        self.last, self.best = self.output_dir / "last", self.output_dir / "best"
        if run.num_threads:
            torch.set_num_threads(run.num_threads)
        check_trackers(run.trackers)
        if self.recipe.model.model_code is not None:
            run_model_code(self.recipe.model.model_code)
        self.accelerator = self._connected_processes()
        with ExitStack() as lock:
            if self.accelerator.is_main_process:
                lock.enter_context(locked_folder(self.output_dir))
            self._set_up()
            self._lock = lock.pop_all()

    def _connected_processes(self) -> Accelerator:
        run = self.recipe.run
        accelerator = Accelerator(
            mixed_precision=self.recipe.optimization.mixed_precision,
            log_with=run.trackers or None,
            project_dir=str(self.output_dir),
            kwargs_handlers=[InitProcessGroupKwargs(timeout=LONGEST_EVALUATION)],
        )
        world_size = int(os.environ.get("WORLD_SIZE", 1))
        if world_size > accelerator.num_processes:  # Accelerate would start independent runs
            raise ValueError(
                f"this is one of {world_size} processes, and Accelerate did not connect them: on CPUs set "
                "ACCELERATE_USE_CPU=true"
            )
        return accelerator

    def _set_up(self) -> None:
        """Sets up model, optimiser, data and log, from `last/` if the run resumes."""
        task, arguments, accelerator = self.task, self.recipe.optimization, self.accelerator
        checkpoint = self.last if find_checkpoint(self.output_dir, self.recipe.run.resume, accelerator) else None
        state = self._read_training_state() if checkpoint else None
        # All processes start from the weights of the main process, but draw different dropout masks.
        set_seed(arguments.seed, device_specific=True)

        model = task.build_model(checkpoint)
        self.averaged = None
        if arguments.averages:
            decay = arguments.average_decay
            # The multi-tensor update is fifteen times as fast as the default.
            average = get_swa_multi_avg_fn() if decay is None else get_ema_multi_avg_fn(decay)
            self.averaged = AveragedModel(model, multi_avg_fn=average)
        self.model, self.optimizer = accelerator.prepare(model, build_optimizer(model, arguments))
        average_gradients(self.model)
        self.trained_model = self.model
        if arguments.torch_compile:
            # Dropout draws the same random numbers as without compilation: torch 2.9 would reorder the draws to save
            # memory. Sequence lengths are dynamic.
            options = {"fallback_random": True, "reorder_for_peak_memory": False}
            self.trained_model = torch.compile(self.model, dynamic=True, options=options)
        if self.averaged is not None:
            self.averaged.to(accelerator.device)
        shard = ProcessShard(arguments.batch_size, accelerator.process_index, accelerator.num_processes)
        self.batches = task.load_data(model, shard)
        task.fingerprints |= code_fingerprint(self.recipe.model.model_code)
        log_state = self._load_training_state(state) if state else None

        self.progress.total_steps = self._count_steps()
        self.counted_until = time.perf_counter()
        self.log = TrainingLog(accelerator, self.output_dir, self.progress, task, log_state)

    def train(self) -> dict:
        """Trains to the end of the recipe. Returns the content of `results.json` (in the main process)."""
        with self._lock:
            with closing(self.log.bar):
                self._train()
            results = {}
            if self.accelerator.is_main_process:
                with quiet_transformers():
                    model = type(self.evaluated_model).from_pretrained(self.best).to(self.accelerator.device)
                    results = self.task.write_results(model, self.output_dir, self.progress)
                print(f"{self.task.summary(results)}\ncheckpoint  {self.best}")
                print(f"results     {self.output_dir / 'results.json'}")
            self._leave_other_processes()
        return results

    def _leave_other_processes(self) -> None:
        # The wrapper of DDP ends before the process group. Otherwise its reducer can deadlock: it waits for gloo's
        # threads while it holds the GIL, and a thread that frees a tensor waits for the GIL (pytorch issue 56297).
        self.model = self.trained_model = self.accelerator.unwrap_model(self.model)
        self.accelerator.free_memory()
        self.accelerator.end_training()

    def _train(self) -> None:
        run, arguments, progress = self.recipe.run, self.recipe.optimization, self.progress
        config = {
            name: value if isinstance(value, str | int | float) else json.dumps(value)  # trackers store scalars
            for name, value in self.recipe.fields().items()
        }
        self.accelerator.init_trackers(self.task.name, config)
        on_cpu = self.accelerator.device.type == "cpu"
        if on_cpu and arguments.mixed_precision == "bf16" and (speed := bfloat16_speed()) <= 1:
            self.accelerator.print(
                f"mixed_precision is bf16, but this CPU multiplies bf16 matrices at only {speed:.2g} times the speed "
                "of float32. --mixed_precision no is likely to be faster here"
            )
        if progress.total_steps is not None and arguments.warmup_steps >= progress.total_steps:
            self.accelerator.print(
                f"the learning rate never leaves its warm-up of {arguments.warmup_steps} updates: this run has only "
                f"{progress.total_steps}. Lower warmup_steps, or train longer"
            )
        if arguments.average_from_start and not progress.num_averaged:
            self._update_average()
        while not self._is_done():
            epoch, num_batches = progress.epoch, self.batches.num_batches(progress.epoch)
            batches = self.batches.batches(epoch, progress.batch)
            if num_batches is None:
                batches = in_lockstep(batches, self.accelerator)
            # The last update of an epoch may have fewer batches.
            while update_batches := list(islice(batches, arguments.gradient_accumulation_steps)):
                self.update(update_batches)
                progress.batch += len(update_batches)
                if progress.batch == num_batches:
                    progress.end_epoch()
                if progress.step % run.log_every_steps == 0:
                    self.log.write_training(self.optimizer.param_groups[0]["lr"])
                if run.eval_every_steps and progress.step % run.eval_every_steps == 0:
                    self.validate()
                elif run.save_every_steps and progress.step % run.save_every_steps == 0:
                    self._save(self.last)
                if self._is_done():
                    break
            else:
                if progress.epoch == epoch:  # streamed text has just ended
                    progress.end_epoch()
                # Before it was resumed with a larger max_steps, the run may have validated here already.
                if not run.eval_every_steps and progress.validated_at != progress.step:
                    self.validate()
        if progress.validated_at != progress.step:
            self.validate()

    def _is_done(self) -> bool:
        arguments, progress = self.recipe.optimization, self.progress
        return (
            (progress.stalled and arguments.stop_when_averaging_stalls)
            or progress.epoch >= arguments.num_epochs
            or (arguments.max_steps is not None and progress.step >= arguments.max_steps)
        )

    def _count_steps(self) -> int | None:
        """Counts the updates of the whole run; `None` for streamed text without `max_steps`."""
        arguments = self.recipe.optimization
        if self.batches.num_batches(0) is None:
            return arguments.max_steps
        longest, steps = arguments.max_steps or math.inf, 0
        for epoch in range(arguments.num_epochs):
            steps += math.ceil(self.batches.num_batches(epoch) / arguments.gradient_accumulation_steps)
            if steps >= longest:  # stops early: counting the chunks of a large text is slow
                return arguments.max_steps
        return steps

    @property
    def evaluated_model(self) -> PreTrainedModel:
        """Returns the averaged model once averaging has begun, otherwise the trained one."""
        return self.averaged.module if self.progress.num_averaged else self.accelerator.unwrap_model(self.model)

    def update(self, batches: list[TrainingBatch]) -> None:
        """Updates the weights once. The loss is the mean over the items of all `batches`."""
        arguments, progress = self.recipe.optimization, self.progress
        factor = learning_rate_factor(progress.step, arguments, progress.total_steps, progress.validation_losses)
        factor *= sum(batch.lr_scale for batch in batches) / len(batches)
        for group in self.optimizer.param_groups:
            group["lr"] = arguments.learning_rate * factor

        num_items = sum(batch.num_items for batch in batches)
        losses: dict[str, torch.Tensor] = {}
        self.model.train()
        for number, batch in enumerate(batches, start=1):
            is_last = number == len(batches)
            with nullcontext() if is_last else self.accelerator.no_sync(self.model):
                loss, batch_losses = self.task.loss(self.trained_model, batch, num_items, self.accelerator.device)
                self.accelerator.backward(loss)
            losses = {name: losses.get(name, 0.0) + value.detach() for name, value in batch_losses.items()}
        self.accelerator.clip_grad_norm_(self.model.parameters(), arguments.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        progress.step += 1
        if progress.num_averaged:
            self._update_average()
        self.log.add(losses, num_items)

    def _update_average(self) -> None:
        self.averaged.update_parameters(self.accelerator.unwrap_model(self.model))
        self.progress.num_averaged += 1

    def validate(self) -> None:
        """Scores the validation data, writes `last/`, and `best/` if the score is the best so far."""
        progress = self.progress
        self._check_divergence()
        shared: list[dict[str, float] | None] = [None]
        with self.log.paused():
            if self.accelerator.is_main_process:
                shared[0] = self.task.validate(self.evaluated_model)
            (scores,) = broadcast_object_list(shared)
        if "validation_loss" in scores:
            self.log.check_loss(scores["validation_loss"], "validation loss")
        loss = self.task.validation_loss(scores)
        is_best = loss < progress.best_loss
        progress.validation_losses.append(loss)
        progress.validated_at = progress.step
        if is_best:
            progress.best_epoch = progress.epoch
            self._save(self.best)
        if self.task.logs_learning_rate:
            scores["learning_rate"] = self.optimizer.param_groups[0]["lr"]
        if self.averaged is not None:
            scores["averaged_steps"] = progress.num_averaged
            if has_stalled(progress.validation_losses, self.recipe.optimization.nonmonotone_interval):
                # NT-ASGD starts averaging when validation stalls, and may stop the next time.
                if progress.num_averaged:
                    progress.stalled = True
                else:
                    self._update_average()
        self.log.write_validation(scores)
        self._save(self.last)

    def _check_divergence(self) -> None:
        """Raises a `ValueError` if the training loss diverged or a weight is not finite."""
        self.log.mean_losses()
        if not all(parameter.isfinite().all() for parameter in self.model.parameters()):
            raise self.log.diverged("the weights contain NaN or infinity")

    def _save(self, target: Path) -> None:
        """Writes a checkpoint folder: weights, tokenizer and, in `last/`, the training state."""
        self._check_divergence()
        with self.log.paused(), quiet_transformers(), replaced_folder(target, self.accelerator) as folder:
            if self.accelerator.is_main_process:
                self.evaluated_model.save_pretrained(folder)
                self.task.tokenizer.save_pretrained(folder)
            if target == self.last:
                self._save_training_state(folder / "training_state")
            self.accelerator.wait_for_everyone()
            if self.accelerator.is_main_process:
                write_checksums(folder)

    def _save_training_state(self, folder: Path) -> None:
        self.accelerator.save_state(str(folder))
        process_state = {"task": self.task.state, "log": self.log.state_dict()}
        torch.save(process_state, folder / f"process_{self.accelerator.process_index}.pt")
        if self.accelerator.is_main_process:
            self.progress.log_size = self.log.size()
            self.progress.seconds += time.perf_counter() - self.counted_until
            self.counted_until = time.perf_counter()
            state = {"version": STATE_VERSION, "progress": asdict(self.progress), "recipe": self.recipe.fields()}
            state |= {"num_processes": self.accelerator.num_processes, "fingerprints": self.task.fingerprints}
            write_json(folder / "run.json", state)
            if self.progress.num_averaged:
                torch.save(self.averaged.state_dict(), folder / "averaged.pt")

    def _read_training_state(self) -> dict[str, Any]:
        check_checksums(self.last)
        state = json.loads((self.last / "training_state" / "run.json").read_text(encoding="utf-8"))
        if state.get("version") != STATE_VERSION:
            versions = f"{self.last} is of version {state.get('version')}, and this package resumes {STATE_VERSION}"
            raise ValueError(f"{versions}. Use the package version that started the run, or another output_dir")
        state["recipe"] = self.recipe.defaults() | state["recipe"]  # for fields that are newer than the run
        if state["progress"]["validation_losses"]:
            check_checksums(self.best)
        fixed = self.recipe.fields("fixed") | {"num_processes": self.accelerator.num_processes}
        if changed := changed_values(state["recipe"] | {"num_processes": state["num_processes"]}, fixed):
            values = "; ".join(f"{name} was {before} and is {after} now" for name, before, after in changed)
            raise ValueError(
                f"{self.last} is of another run: {values}. Use the values that it started with, or another output_dir"
            )
        return state

    def _load_training_state(self, state: dict[str, Any]) -> dict:
        """Restores the state in `last/`, so that the run continues as if never stopped. Returns the log state."""
        for name, before, after in changed_values(state["fingerprints"], self.task.fingerprints):
            changed = f"the {name} changed since {self.last} was written (fingerprint {before}, now {after})"
            raise ValueError(f"{changed}. Use those that the run started with, or another output_dir")
        folder, process = self.last / "training_state", self.accelerator.process_index
        names = {field.name for field in fields(Progress)}  # earlier versions had more fields
        self.progress = Progress(**{name: value for name, value in state["progress"].items() if name in names})
        load(folder / f"random_states_{process}.pkl")  # raises if unreadable; load_state would skip it silently
        self.accelerator.load_state(str(folder))
        if self.progress.num_averaged:
            self.averaged.load_state_dict(torch.load(folder / "averaged.pt", weights_only=True))
        process_state = torch.load(folder / f"process_{process}.pt", weights_only=True)
        if process_state["task"] is not None:
            self.task.state = process_state["task"].to(self.accelerator.device)
        self.accelerator.print(f"resumed after {self.progress.step} updates ({self.progress.epoch} epochs)")
        for name, before, after in changed_values(state["recipe"], self.recipe.fields("recorded")):
            self.progress.changes.append({"step": self.progress.step, "field": name, "before": before, "after": after})
            self.accelerator.print(f"{name} was {before} and is {after} from here on")
        return process_state["log"]


def changed_values(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """Returns name, old value and new value of the keys in both mappings whose values differ."""
    return [(name, before[name], value) for name, value in after.items() if name in before and before[name] != value]


def train(
    task_class: type[Task], parse: Callable[[Sequence[str]], Recipe], arguments: Sequence[str] | None = None
) -> dict:
    """Trains by the recipe and overrides of a command line (default: this process's), and returns the results."""
    arguments = sys.argv[1:] if arguments is None else arguments
    return TrainingRun(task_class(parse(arguments), arguments)).train()


def run_script(program: str, main: Callable[[], dict]) -> None:
    """Runs a training script. Errors that a user can fix end it with one line."""
    keep_freed_memory()
    if code := run_program(program, main):
        sys.exit(code)
