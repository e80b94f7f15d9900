"""Trains a language model of this package: `accelerate launch training/train_lm.py RECIPE.yaml [--name value ...]`.

A run leaves in its `output_dir`:
    best/         the checkpoint with the lowest validation perplexity, for `from_pretrained`
    last/         the newest checkpoint, also for `from_pretrained`, with the training state to resume from
    log.jsonl     one line for every log entry and validation
    results.json  validation and test perplexity (and parsing F1) of best/, with the recipe
Both checkpoints hold the weights that are evaluated: the averaged ones once averaging has begun.
"""

import json
import math
import sys
from collections.abc import Iterator
from contextlib import closing, nullcontext
from dataclasses import asdict, replace
from datetime import timedelta
from itertools import islice
from pathlib import Path

import torch
from accelerate import Accelerator, InitProcessGroupKwargs
from accelerate.tracking import get_available_trackers
from accelerate.utils import broadcast_object_list, load, set_seed
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

import onlstm_hf
from onlstm_hf.models.recurrent.state import ModelState
from onlstm_hf.scoring.treebank import parse_treebank
from onlstm_hf.utils.files import write_json
from onlstm_hf.utils.process_memory import keep_freed_memory
from training.language_models.text_batches import (
    Batch,
    BatchSource,
    SentenceBatches,
    Share,
    StreamBatches,
    StreamedTextBatches,
    check_files,
    encode_lines,
    encode_text,
    load_texts,
)
from training.language_models.validation import load_gold_trees, load_held_out_text
from training.loop.checkpointing import find_checkpoint, replaced_folder, reported_damage, without_notices
from training.loop.model_setup import build_model, build_tokenizer, check_model_arguments, run_model_code
from training.loop.optimization import all_finite, average_of, build_optimizer, has_stalled, learning_rate_factor
from training.loop.progress import Progress
from training.loop.recipe import FIXED_BY_A_RUN, ModelArguments, Recipe, parse_recipe
from training.loop.training_log import TrainingDiverged, TrainingLog

# The other processes wait while the first one scores the test text row by row.
LONGEST_EVALUATION = timedelta(hours=24)


def build_batches(recipe: Recipe, tokenizer: PreTrainedTokenizerBase, share: Share) -> BatchSource:
    """The training batches of one process."""
    data, seed = recipe.data, recipe.optimization.seed
    texts = load_texts(data, "train")
    if data.streaming:
        return StreamedTextBatches(texts, tokenizer, data.text_column, share, data.bptt_length, data.random_bptt, seed)
    if data.independent_sentences:
        sentences = list(encode_lines(texts, tokenizer, data.text_column))
        return SentenceBatches(sentences, tokenizer.eos_token_id, share, data.max_sentence_length, seed)
    stream = encode_text(texts, tokenizer, data.text_column, "training")
    return StreamBatches(stream, tokenizer.eos_token_id, share, data.bptt_length, data.random_bptt, seed)


def in_groups(batches: Iterator[Batch], size: int) -> Iterator[list[Batch]]:
    """The batches of one update after the other; the last group of an epoch may be smaller."""
    while group := list(islice(batches, size)):
        yield group


class TrainingRun:
    """One run: model, optimiser, data and progress, and the loop over them."""

    def __init__(self, recipe: Recipe):
        self.recipe, self.progress = recipe, Progress()
        data, model_arguments, arguments = recipe.data, recipe.model, recipe.optimization
        self.output_dir = Path(recipe.run.output_dir)
        if recipe.run.num_threads:
            torch.set_num_threads(recipe.run.num_threads)
        check_files(data)
        check_trackers(recipe.run.trackers)
        if model_arguments.model_code is not None:
            run_model_code(model_arguments.model_code)
        self.accelerator = Accelerator(
            mixed_precision=arguments.mixed_precision,
            log_with=recipe.run.trackers or None,
            project_dir=str(self.output_dir),
            kwargs_handlers=[InitProcessGroupKwargs(timeout=LONGEST_EVALUATION)],
        )
        resuming = find_checkpoint(self.output_dir, recipe.run.resume, self.accelerator)
        if resuming:
            data = replace(data, tokenizer=str(self.last))
            model_arguments = ModelArguments(init_from=str(self.last))
        check_model_arguments(model_arguments)
        # All processes start from the weights of the first one, but each draws its own dropout masks.
        set_seed(arguments.seed, device_specific=True)

        self.tokenizer = build_tokenizer(data, model_arguments.init_from)
        model = build_model(model_arguments, self.tokenizer)
        self.averaged = average_of(model) if arguments.optimizer == "nt-asgd" else None
        self.model, self.optimizer = self.accelerator.prepare(model, build_optimizer(model, arguments))
        if self.averaged is not None:
            self.averaged.to(self.accelerator.device)
        self.state: ModelState | None = None
        log_state = self._load_training_state() if resuming else None

        self.treebank = load_gold_trees(data)
        if self.treebank and not getattr(model, "induces_trees", False):
            raise ValueError(f'models of type "{model.config.model_type}" induce no trees: leave out the gold trees')
        self.validation = load_held_out_text(data, "validation", self.tokenizer)
        self.test = load_held_out_text(data, "test", self.tokenizer)
        share = Share(arguments.batch_size, self.accelerator.process_index, self.accelerator.num_processes)
        self.batches = build_batches(recipe, self.tokenizer, share)
        self.total_steps = self._count_steps()

        if self.accelerator.is_main_process:
            self.output_dir.mkdir(parents=True, exist_ok=True)
        self.log = TrainingLog(
            self.accelerator, self.output_dir, self.progress, model.config.vocab_size, self.total_steps, log_state
        )

    @property
    def last(self) -> Path:
        return self.output_dir / "last"

    def train(self) -> dict:
        """Runs until the recipe's end, and returns the content of `results.json` (in the first process)."""
        run, arguments, progress = self.recipe.run, self.recipe.optimization, self.progress
        self.accelerator.init_trackers("language_model", config=as_scalars(self.recipe.fields()))
        if arguments.average_from_start and not progress.num_averaged:
            self._update_average()
        with closing(self.log):
            while not self._is_done():
                batches = self.batches.batches(progress.epoch, progress.batch)
                for group in in_groups(batches, arguments.gradient_accumulation_steps):
                    self.update(group)
                    progress.batch += len(group)
                    if progress.step % run.log_every_steps == 0:
                        self.log.write_training(self.optimizer.param_groups[0]["lr"])
                    if run.eval_every_steps and progress.step % run.eval_every_steps == 0:
                        self._validate()
                    elif run.save_every_steps and progress.step % run.save_every_steps == 0:
                        self._save(self.last)
                    if self._is_done():
                        break
                else:
                    progress.epoch, progress.batch = progress.epoch + 1, 0
                    if not run.eval_every_steps:
                        self._validate()
            if progress.validated_at != progress.step:
                self._validate()
        results = self._evaluate_best() if self.accelerator.is_main_process else {}
        self.accelerator.end_training()
        return results

    def _is_done(self) -> bool:
        arguments, progress = self.recipe.optimization, self.progress
        return (
            progress.stalled
            or progress.epoch >= arguments.num_epochs
            or (arguments.max_steps is not None and progress.step >= arguments.max_steps)
        )

    def _count_steps(self) -> int | None:
        """Updates of the whole run, `None` where the length of streamed text and the end are unknown."""
        arguments = self.recipe.optimization
        if self.batches.num_batches(0) is None:
            return arguments.max_steps
        lengths = (self.batches.num_batches(epoch) for epoch in range(arguments.num_epochs))
        steps = sum(math.ceil(length / arguments.gradient_accumulation_steps) for length in lengths)
        return steps if arguments.max_steps is None else min(steps, arguments.max_steps)

    @property
    def evaluated_model(self) -> PreTrainedModel:
        """The weights that count: the averaged ones once averaging has begun."""
        return self.averaged.module if self.progress.num_averaged else self.accelerator.unwrap_model(self.model)

    def update(self, batches: list[Batch]) -> None:
        """One update of the weights, from the gradients of all `batches`: a mean over their tokens."""
        arguments, device = self.recipe.optimization, self.accelerator.device
        factor = learning_rate_factor(self.progress.step, arguments, self.total_steps, self.progress.validation_losses)
        factor *= sum(batch.lr_scale for batch in batches) / len(batches)
        for group in self.optimizer.param_groups:
            group["lr"] = arguments.learning_rate * factor

        num_items = sum(batch.num_items for batch in batches)
        cross_entropy = 0.0
        self.model.train()
        for number, batch in enumerate(batches, start=1):
            is_last = number == len(batches)
            with nullcontext() if is_last else self.accelerator.no_sync(self.model):
                output = self.model(
                    input_ids=batch.input_ids.to(device),
                    attention_mask=None if batch.attention_mask is None else batch.attention_mask.to(device),
                    shift_labels=batch.shift_labels.to(device),
                    state=self.state if batch.continues else None,
                    use_cache=True,
                    num_items_in_batch=num_items,
                    skip_logits=True,
                )
                self.accelerator.backward(output.loss)
            self.state = output.state.detach()
            cross_entropy += output.cross_entropy.detach()
        self.accelerator.clip_grad_norm_(self.model.parameters(), arguments.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.progress.step += 1
        if self.progress.num_averaged:
            self._update_average()
        self.log.add(cross_entropy, num_items)

    def _update_average(self) -> None:
        """Takes the weights as they are into the average; the first ones start it."""
        self.averaged.update_parameters(self.accelerator.unwrap_model(self.model))
        self.progress.num_averaged += 1

    def _validate(self) -> None:
        """Scores the validation text (and gold trees), keeps the best checkpoint, and writes `last/`."""
        arguments, progress = self.recipe.optimization, self.progress
        self._check_divergence()
        scores = self._score_validation()
        loss = scores["validation_loss"]
        progress.validation_losses.append(loss)
        progress.validated_at = progress.step
        if loss < progress.best_loss:
            progress.best_loss = loss
            self._save(self.output_dir / "best")
        if arguments.optimizer == "nt-asgd":
            scores["averaged_steps"] = progress.num_averaged
            if has_stalled(progress.validation_losses, arguments.nonmonotone_interval):
                if not progress.num_averaged:
                    self._update_average()
                elif arguments.stop_when_averaging_stalls:
                    progress.stalled = True
        self.log.write_validation(scores)
        self._save(self.last)

    def _score_validation(self) -> dict[str, float]:
        """Validation loss, perplexity and parsing F1: the first process computes them and tells the others."""
        values: list[float | None] = [None, None]
        with self.log.paused():
            if self.accelerator.is_main_process:
                model = self.evaluated_model
                values[0] = self.validation.score(model, self.recipe.run.eval_batch_size).loss
                if self.treebank:
                    parsing = parse_treebank(model, self.tokenizer, self.treebank, progress=False)
                    values[1] = 100 * parsing.sentence_f1
            loss, parsing_f1 = broadcast_object_list(values)
        self.log.check_loss(loss, "validation loss")
        scores = {"validation_loss": loss, "validation_perplexity": math.exp(loss)}
        return scores if parsing_f1 is None else {**scores, "parsing_f1": parsing_f1}

    def _check_divergence(self) -> None:
        """Raises `TrainingDiverged` where the loss, or the weights after the last update, are no good."""
        self.log.mean_loss()
        if not all_finite(self.model):
            raise self.log.diverged("the weights contain NaN or infinity")

    def _save(self, target: Path) -> None:
        """Writes a checkpoint folder: weights and tokenizer and, in `last/`, all that this run needs to go on."""
        self._check_divergence()
        with self.log.paused(), without_notices(), replaced_folder(target, self.accelerator) as folder:
            if self.accelerator.is_main_process:
                self.evaluated_model.save_pretrained(folder)
                self.tokenizer.save_pretrained(folder)
            if target == self.last:
                self._save_training_state(folder / "training_state")

    def _save_training_state(self, folder: Path) -> None:
        self.accelerator.save_state(str(folder))
        if self.accelerator.is_main_process:
            self.progress.log_size = self.log.size()
            state = {"progress": asdict(self.progress), "fixed": self._fixed_fields()}
            write_json(folder / "run.json", state)
            if self.progress.num_averaged:
                torch.save(self.averaged.state_dict(), folder / "averaged.pt")
        process_state = {"model_state": self.state, "log": self.log.state_dict()}
        torch.save(process_state, folder / f"process_{self.accelerator.process_index}.pt")

    def _load_training_state(self) -> dict:
        """Goes on from `last/` as if the run had never stopped. Returns the state of its log."""
        folder, process = self.last / "training_state", self.accelerator.process_index
        with reported_damage(f"the training state {folder}"):
            state = json.loads((folder / "run.json").read_text(encoding="utf-8"))
            for name, value in self._fixed_fields().items():
                if state["fixed"][name] != value:
                    raise ValueError(f"{name} was {state['fixed'][name]} and is {value} now")
            self.progress = Progress(**state["progress"])
            load(folder / f"random_states_{process}.pkl")  # load_state passes over one that it cannot read
            self.accelerator.load_state(str(folder))
            if self.progress.num_averaged:
                self.averaged.load_state_dict(torch.load(folder / "averaged.pt", weights_only=True))
            process_state = torch.load(folder / f"process_{process}.pt", weights_only=True)
        if process_state["model_state"] is not None:
            self.state = process_state["model_state"].to(self.accelerator.device)
        self.accelerator.print(f"resumed after {self.progress.step} updates ({self.progress.epoch} epochs)")
        return process_state["log"]

    def _fixed_fields(self) -> dict:
        """What must not change when the run is resumed."""
        fields = self.recipe.fields()
        return {name: fields[name] for name in FIXED_BY_A_RUN} | {"num_processes": self.accelerator.num_processes}

    def _evaluate_best(self) -> dict:
        """Scores `best/` on validation and test text and gold trees, and writes `results.json`."""
        run = self.recipe.run
        model = AutoModelForCausalLM.from_pretrained(self.output_dir / "best").to(self.accelerator.device)
        results = {"validation_perplexity": self.validation.score(model, run.eval_batch_size).perplexity}
        if self.test is not None:
            results["test_perplexity"] = self.test.score(model, run.test_batch_size, progress=True).perplexity
        if self.treebank:
            results["parsing"] = parse_treebank(model, self.tokenizer, self.treebank).to_dict()
        results |= {
            "updates": self.progress.step,
            "parameters": model.num_parameters(),
            "onlstm_hf": onlstm_hf.__version__,
            "torch": torch.__version__,
            "recipe": self.recipe.fields(),
        }
        write_json(self.output_dir / "results.json", results)
        return results


def check_trackers(names: list[str]) -> None:
    """Raises a `ValueError` for a tracker that is not installed, which Accelerate would leave out in silence."""
    available = [str(tracker) for tracker in get_available_trackers()]
    for name in names:
        if name not in available:
            raise ValueError(f"the tracker {name} is not known or not installed; there are: {', '.join(available)}")


def as_scalars(fields: dict) -> dict:
    """Fields of a recipe as trackers take them: lists, mappings and `None` as text."""
    return {
        name: value if isinstance(value, (str, int, float)) else json.dumps(value) for name, value in fields.items()
    }


def main(arguments: list[str] | None = None) -> dict:
    """Trains by the recipe and overrides of a command line, and returns the content of `results.json`.

    Raises:
        ValueError, OSError: for bad input, before training begins.
        TrainingDiverged: where training cannot go on.
    """
    recipe = parse_recipe(sys.argv[1:] if arguments is None else arguments)
    return TrainingRun(recipe).train()


if __name__ == "__main__":
    keep_freed_memory()
    try:
        main()
    except (ValueError, OSError, TrainingDiverged) as error:
        sys.exit(f"train_lm.py: {error}")
    except KeyboardInterrupt:
        sys.exit("train_lm.py: interrupted; --resume goes on from the last checkpoint")
