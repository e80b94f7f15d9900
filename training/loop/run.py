"""One training run: set-up, updates, validation, checkpoints and resuming, for every task."""

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import asdict, fields
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, InitProcessGroupKwargs
from accelerate.utils import broadcast_object_list, load, set_seed
from transformers import PreTrainedModel

from onlstm_hf.utils.checkpoints import quiet_transformers
from onlstm_hf.utils.files import write_json
from onlstm_hf.utils.process_memory import keep_freed_memory
from onlstm_hf.utils.programs import run_program
from training.loop.checkpointing import check_checksums, find_checkpoint, replaced_folder, write_checksums
from training.loop.model_setup import choose_implementation, code_fingerprint, run_model_code
from training.loop.optimization import (
    all_finite,
    average_gradients,
    average_of,
    build_optimizer,
    has_stalled,
    learning_rate_factor,
)
from training.loop.precision import bfloat16_speed
from training.loop.processes import in_lockstep, locked_folder
from training.loop.progress import Progress
from training.loop.recipe import Recipe
from training.loop.task import ProcessShard, Task, TrainingBatch
from training.loop.training_log import TrainingLog, as_scalars, check_trackers

# Longest time that processes wait for one another, for instance while the first one scores the validation data.
LONGEST_EVALUATION = timedelta(hours=2)
# Version of the training state in last/; another one is refused.
STATE_VERSION = 4


def in_groups(batches: Iterator[TrainingBatch], size: int) -> Iterator[list[TrainingBatch]]:
    """The batches of one update after the other; the last group of an epoch may be smaller."""
    while group := list(islice(batches, size)):
        yield group


class TrainingRun:
    """Model, optimiser, data and progress of one run of a task, and the loop over them.

    Until `train` has ended, no other run can begin in its folder.

    Raises:
        ValueError, OSError: for bad input, before anything is written, and where another run has the folder.
    """

    def __init__(self, task: Task):
        self.task, self.recipe, self.progress = task, task.recipe, Progress()
        run = self.recipe.run
        self.output_dir = Path(run.output_dir)
        self.last, self.best = self.output_dir / "last", self.output_dir / "best"
        if run.num_threads:
            torch.set_num_threads(run.num_threads)
        task.check()
        check_trackers(run.trackers)
        if self.recipe.model.model_code is not None:
            run_model_code(self.recipe.model.model_code)
        with ExitStack() as lock:
            self.accelerator = self._connected_processes()
            lock.enter_context(self._lock_output_dir())
            self._set_up()
            self._lock = lock.pop_all()

    def _connected_processes(self) -> Accelerator:
        """The processes of this run, once all of them are there."""
        run = self.recipe.run
        accelerator = Accelerator(
            mixed_precision=self.recipe.optimization.mixed_precision,
            log_with=run.trackers or None,
            project_dir=str(self.output_dir),
            kwargs_handlers=[InitProcessGroupKwargs(timeout=LONGEST_EVALUATION)],
        )
        started = int(os.environ.get("WORLD_SIZE", 1))
        if started > accelerator.num_processes:  # Accelerate would make as many runs of them
            raise ValueError(
                f"this is one of {started} processes, and Accelerate did not connect them: on CPUs set "
                "ACCELERATE_USE_CPU=true"
            )
        return accelerator

    @contextmanager
    def _lock_output_dir(self) -> Iterator[None]:
        """A block in which no other run can begin in the folder: the first process locks it for all."""
        problem: list[str | None] = [None]
        with ExitStack() as lock:
            if self.accelerator.is_main_process:
                try:
                    lock.enter_context(locked_folder(self.output_dir))
                except (ValueError, OSError) as error:
                    problem[0] = str(error)
            broadcast_object_list(problem)
            if problem[0] is not None:
                raise ValueError(problem[0])
            yield

    def _set_up(self) -> None:
        """Model, optimiser, data and log: those of the checkpoint if the run resumes."""
        resuming = find_checkpoint(self.output_dir, self.recipe.run.resume, self.accelerator)
        log_state = self._load(self.last if resuming else None)
        self.progress.total_steps = self._count_steps()

        num_classes = self.task.num_classes(self.accelerator.unwrap_model(self.model))
        self.counted_until = time.perf_counter()
        self.log = TrainingLog(
            self.accelerator, self.output_dir, self.progress, num_classes, self.task.unit, log_state
        )

    def _load(self, checkpoint: Path | None) -> dict | None:
        """Model, optimiser and data, of a checkpoint or new ones. Returns the state of the checkpoint's log."""
        task, arguments = self.task, self.recipe.optimization
        saved = None if checkpoint is None else self._read_training_state(checkpoint)
        # All processes start from the weights of the first one, but each draws its own dropout masks.
        set_seed(arguments.seed, device_specific=True)

        model = task.build_model(checkpoint)
        choose_implementation(model, self.recipe.model.implementation)
        self.averaged = average_of(model, arguments.average_decay) if arguments.averages else None
        self.model, self.optimizer = self.accelerator.prepare(model, build_optimizer(model, arguments))
        average_gradients(self.model)
        self.trained_model = self.model
        if arguments.torch_compile:
            # Dropout draws the same random numbers as without, and lengths of sequences are symbols.
            self.trained_model = torch.compile(self.model, dynamic=True, options={"fallback_random": True})
        if self.averaged is not None:
            self.averaged.to(self.accelerator.device)
        shard = ProcessShard(arguments.batch_size, self.accelerator.process_index, self.accelerator.num_processes)
        self.batches = task.load_data(model, shard)
        task.fingerprints |= code_fingerprint(self.recipe.model.model_code)
        return None if checkpoint is None else self._load_training_state(checkpoint, saved)

    def train(self) -> dict:
        """Runs until the recipe's end, and returns the content of `results.json` (in the first process).

        Raises:
            TrainingDiverged: when training cannot continue.
            OSError: where a file cannot be written, for instance because the disk is full.
        """
        with self._lock:
            with closing(self.log.bar):
                self._train()
            results = {}
            if self.accelerator.is_main_process:
                results = self._write_results()
            self._leave_other_processes()
        return results

    def _leave_other_processes(self) -> None:
        """Ends the connection, the model's part in it first.

        Where the reducer of DistributedDataParallel holds the connection last, it waits for gloo's threads without
        giving up Python's lock, for which a thread that still frees a tensor waits in turn: for ever
        (pytorch/pytorch issue 56297).
        """
        self.model = self.trained_model = self.accelerator.unwrap_model(self.model)
        self.accelerator.free_memory()
        self.accelerator.end_training()

    def _train(self) -> None:
        """Makes updates until the recipe's end."""
        run, arguments, progress = self.recipe.run, self.recipe.optimization, self.progress
        self.accelerator.init_trackers(self.task.name, config=as_scalars(self.recipe.fields()))
        on_cpu = self.accelerator.device.type == "cpu"
        if on_cpu and arguments.mixed_precision == "bf16" and (speed := bfloat16_speed()) <= 1:
            self.accelerator.print(
                f"mixed_precision is bf16, but this CPU multiplies matrices in it at {speed:.2g} times the speed of "
                "float32. --mixed_precision no is likely to be faster here"
            )
        if progress.total_steps is not None and arguments.warmup_steps >= progress.total_steps:
            self.accelerator.print(
                f"the learning rate never leaves its warm-up of {arguments.warmup_steps} updates: this run makes "
                f"{progress.total_steps}. Lower warmup_steps, or train longer"
            )
        if arguments.average_from_start and not progress.num_averaged:
            self._update_average()
        while not self._is_done():
            epoch, num_batches = progress.epoch, self.batches.num_batches(progress.epoch)
            batches = self.batches.batches(epoch, progress.batch)
            if num_batches is None:
                batches = in_lockstep(batches, self.accelerator)
            for group in in_groups(batches, arguments.gradient_accumulation_steps):
                self.update(group)
                progress.batch += len(group)
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
                if progress.epoch == epoch:  # the end of streamed text is not known before
                    progress.end_epoch()
                # A run that is resumed with a larger max_steps may have ended here, and validated then.
                if not run.eval_every_steps and progress.validated_at != progress.step:
                    self.validate()
        if progress.validated_at != progress.step:
            self.validate()

    def _write_results(self) -> dict:
        """Scores `best/`, and says what came out and where it is."""
        with quiet_transformers():
            results = self.task.write_results(self.output_dir, self.progress, self.accelerator.device)
        print(f"{self.task.summary(results)}\ncheckpoint  {self.best}\nresults     {self.output_dir / 'results.json'}")
        return results

    def _is_done(self) -> bool:
        arguments, progress = self.recipe.optimization, self.progress
        return (
            (progress.stalled and arguments.stop_when_averaging_stalls)
            or progress.epoch >= arguments.num_epochs
            or (arguments.max_steps is not None and progress.step >= arguments.max_steps)
        )

    def _count_steps(self) -> int | None:
        """Updates of the whole run, `None` where the length of streamed text and the end are unknown."""
        arguments = self.recipe.optimization
        if self.batches.num_batches(0) is None:
            return arguments.max_steps
        longest, steps = arguments.max_steps or math.inf, 0
        for epoch in range(arguments.num_epochs):
            steps += math.ceil(self.batches.num_batches(epoch) / arguments.gradient_accumulation_steps)
            if steps >= longest:  # the chunks of a large text take long to count
                return arguments.max_steps
        return steps

    @property
    def evaluated_model(self) -> PreTrainedModel:
        """The weights that count: the averaged ones once averaging has begun."""
        return self.averaged.module if self.progress.num_averaged else self.accelerator.unwrap_model(self.model)

    def update(self, batches: list[TrainingBatch]) -> None:
        """One update of the weights, from the gradients of all `batches`: a mean over their items."""
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
        """Takes the weights as they are into the average; the first ones start it."""
        self.averaged.update_parameters(self.accelerator.unwrap_model(self.model))
        self.progress.num_averaged += 1

    def validate(self) -> None:
        """Scores the validation data, keeps the best checkpoint, and writes `last/`."""
        progress = self.progress
        self._check_divergence()
        scores = self._score_validation()
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
            self._average_where_stalled()
        self.log.write_validation(scores)
        self._save(self.last)

    def _average_where_stalled(self) -> None:
        """NT-ASGD: begins to average where validation no longer improves; where it stalls again, the run may end."""
        arguments, progress = self.recipe.optimization, self.progress
        if has_stalled(progress.validation_losses, arguments.nonmonotone_interval):
            if not progress.num_averaged:
                self._update_average()
            else:
                progress.stalled = True

    def _score_validation(self) -> dict[str, float]:
        """The task's scores: the first process computes them and tells the others."""
        scores: list[dict[str, float] | None] = [None]
        with self.log.paused():
            if self.accelerator.is_main_process:
                scores[0] = self.task.validate(self.evaluated_model)
            (known,) = broadcast_object_list(scores)
        if "validation_loss" in known:
            self.log.check_loss(known["validation_loss"], "validation loss")
        return known

    def _check_divergence(self) -> None:
        """Raises `TrainingDiverged` where the loss, or the weights after the last update, are no good."""
        self.log.mean_losses()
        if not all_finite(self.model):
            raise self.log.diverged("the weights contain NaN or infinity")

    def _save(self, target: Path) -> None:
        """Writes a checkpoint folder: weights and tokenizer and, in `last/`, all that this run needs to resume."""
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

    def _read_training_state(self, checkpoint: Path) -> dict[str, Any]:
        """Reads which run `last/` belongs to, and how far it came.

        Raises:
            ValueError: if it is damaged, of another version, or was begun with other values of fixed fields.
        """
        check_checksums(checkpoint)
        state = json.loads((checkpoint / "training_state" / "run.json").read_text(encoding="utf-8"))
        if state.get("version") != STATE_VERSION:
            raise ValueError(
                f"the training state in {checkpoint} is of version {state.get('version')}, and this package resumes "
                f"version {STATE_VERSION}. Finish the run with the version of the package that began it, or start "
                "another output_dir"
            )
        if state["progress"]["validation_losses"]:
            check_checksums(self.best)
        state["recipe"] = self.recipe.defaults() | state["recipe"]  # of fields that came after the run began
        fixed = self.recipe.fields("fixed") | {"num_processes": self.accelerator.num_processes}
        if changed := changed_values(state["recipe"] | {"num_processes": state["num_processes"]}, fixed):
            values = "; ".join(f"{name} was {before} and is {after} now" for name, before, after in changed)
            raise ValueError(
                f"{self.last} is of another run: {values}. Go on as it began, or start another output_dir"
            )
        return state

    def _load_training_state(self, checkpoint: Path, state: dict[str, Any]) -> dict:
        """Goes on from `last/` as if the run had never stopped, on the same data. Returns the state of its log."""
        for name, before, after in changed_values(state["fingerprints"], self.task.fingerprints):
            raise ValueError(
                f"the {name} changed since {self.last} was written (their fingerprint was {before} and is {after} "
                "now). Go on with those that the run began with, or start another output_dir"
            )
        folder, process = checkpoint / "training_state", self.accelerator.process_index
        known = {field.name for field in fields(Progress)}  # earlier versions had more
        self.progress = Progress(**{name: value for name, value in state["progress"].items() if name in known})
        load(folder / f"random_states_{process}.pkl")  # load_state passes over one that it cannot read
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
    """Name, value before and value after, of what both have and is not the same."""
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
