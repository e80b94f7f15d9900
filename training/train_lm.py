"""Trains a language model of this package: `accelerate launch training/train_lm.py RECIPE.yaml [--name value ...]`.

A run leaves in its `output_dir`:
    best/         the checkpoint with the lowest validation perplexity, for `from_pretrained`
    last/         the newest checkpoint, with the training state to resume from
    log.jsonl     one line for every log entry and validation
    results.json  validation and test perplexity (and parsing F1) of best/, with the recipe
"""

import dataclasses
import json
import math
import sys
import time
from pathlib import Path

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.utils import set_seed
from checkpointing import recover_folder, replaced_folder, write_text
from optimization import build_optimizer, has_stalled, learning_rate_factor
from recipe import Recipe, parse_recipe
from text_batches import (
    Batch,
    BatchSource,
    SentenceBatches,
    Share,
    StreamBatches,
    StreamedDatasetBatches,
    encode_lines,
    encode_stream,
    load_texts,
)
from torch.optim.swa_utils import AveragedModel
from tqdm.auto import tqdm
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

import onlstm_hf
from onlstm_hf.evaluation import parse_treebank, stream_log_likelihood
from onlstm_hf.recurrent_state import RecurrentState
from onlstm_hf.treebank import GoldTree, read_treebank

DIVERGED_ABOVE_UNIFORM = 2.0


class TrainingDiverged(RuntimeError):
    """The loss is not finite, or far above that of guessing."""


@dataclasses.dataclass
class Progress:
    """Where a run stands. Saved with every checkpoint."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    num_averaged: int = 0
    best_loss: float = math.inf
    validation_losses: list[float] = dataclasses.field(default_factory=list)
    finished: bool = False

    def state_dict(self) -> dict:
        return dataclasses.asdict(self)

    def load_state_dict(self, state: dict) -> None:
        for name, value in state.items():
            setattr(self, name, value)


def build_tokenizer(recipe: Recipe) -> PreTrainedTokenizerBase:
    """The recipe's tokenizer: loaded, taken from the checkpoint that is finetuned, or built from the training text."""
    data = recipe.data
    if data.tokenizer or recipe.model.init_from:
        return AutoTokenizer.from_pretrained(data.tokenizer or recipe.model.init_from)
    return onlstm_hf.build_word_tokenizer(
        load_texts(data, "train"),
        vocab_size=data.vocab_size,
        min_count=data.min_count,
        lowercase=data.lowercase,
        digits_to_n=data.digits_to_n,
        split=data.split,
        text_column=data.text_column,
    )


def build_model(recipe: Recipe, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """A new model for the tokenizer's vocabulary, or the checkpoint that is finetuned."""
    token_ids = {name: getattr(tokenizer, name) for name in ("eos_token_id", "pad_token_id")}
    if recipe.model.init_from:
        model = AutoModelForCausalLM.from_pretrained(recipe.model.init_from, **recipe.model.model)
    else:
        known = AutoConfig.for_model(recipe.model.model_type)
        unknown = sorted(name for name in recipe.model.model if not hasattr(known, name))
        if unknown:
            raise ValueError(f"{type(known).__name__} has no fields {', '.join(unknown)}")
        fields = {"vocab_size": len(tokenizer), **token_ids, **recipe.model.model}
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(recipe.model.model_type, **fields))
    if len(tokenizer) > model.config.vocab_size:
        raise ValueError(
            f"the tokenizer has {len(tokenizer)} tokens, the model's vocabulary only {model.config.vocab_size}"
        )
    return model


def build_batches(recipe: Recipe, tokenizer: PreTrainedTokenizerBase, share: Share) -> BatchSource:
    """The training batches of one process."""
    data, seed = recipe.data, recipe.optimization.seed
    texts = load_texts(data, "train")
    if data.independent_sentences:
        sentences = list(encode_lines(texts, tokenizer, data.text_column))
        return SentenceBatches(sentences, tokenizer.eos_token_id, share, data.max_sentence_length, seed)
    if data.streaming:
        return StreamedDatasetBatches(
            texts, tokenizer, data.text_column, share, data.bptt_length, data.random_bptt, seed
        )
    stream = encode_stream(texts, tokenizer, data.text_column, "training")
    return StreamBatches(stream, tokenizer.eos_token_id, share, data.bptt_length, data.random_bptt, seed)


class TrainingRun:
    """One run: model, optimiser, data and progress, and the loop over them."""

    def __init__(self, recipe: Recipe):
        self.recipe = recipe
        self.output_dir = Path(recipe.run.output_dir)
        if recipe.run.num_threads:
            torch.set_num_threads(recipe.run.num_threads)
        self.accelerator = Accelerator(
            mixed_precision=recipe.optimization.mixed_precision,
            gradient_accumulation_steps=recipe.optimization.gradient_accumulation_steps,
            log_with=recipe.run.trackers or None,
            project_dir=str(self.output_dir),
            dataloader_config=DataLoaderConfiguration(),
        )
        resuming = self._check_output_dir()
        set_seed(recipe.optimization.seed)

        self.tokenizer = (
            AutoTokenizer.from_pretrained(self.output_dir / "last") if resuming else build_tokenizer(recipe)
        )
        share = Share(recipe.optimization.batch_size, self.accelerator.process_index, self.accelerator.num_processes)
        self.batches = build_batches(recipe, self.tokenizer, share)
        self.validation = self._stream("validation")
        if self.validation is None:
            raise ValueError("training needs a validation text to select the best checkpoint by")
        self.test = self._stream("test")
        self.treebank = self._read_gold_trees()

        model = build_model(recipe, self.tokenizer)
        self.averaged = AveragedModel(model) if recipe.optimization.optimizer == "nt-asgd" else None
        self.model, self.optimizer = self.accelerator.prepare(model, build_optimizer(model, recipe.optimization))
        if self.averaged is not None:
            self.averaged.to(self.accelerator.device)
        self.progress = Progress()
        self.state: RecurrentState | None = None
        self.total_steps = self._count_steps()
        if resuming:
            self._load()

    def _check_output_dir(self) -> bool:
        """Whether the run goes on from `last/`; nothing is overwritten unasked."""
        exists = recover_folder(self.output_dir / "last") if self.accelerator.is_main_process else True
        self.accelerator.wait_for_everyone()
        exists = exists and (self.output_dir / "last").exists()
        if exists and not self.recipe.run.resume:
            raise FileExistsError(
                f"{self.output_dir / 'last'} holds a checkpoint of an earlier run: pass --resume true to go on from "
                "it, or choose another output_dir"
            )
        return exists

    def _stream(self, part: str) -> torch.Tensor | None:
        texts = load_texts(self.recipe.data, part)
        return None if texts is None else encode_stream(texts, self.tokenizer, self.recipe.data.text_column, part)

    def _read_gold_trees(self) -> list[GoldTree] | None:
        path = self.recipe.data.gold_trees
        return read_treebank(path) if path else None

    def _count_steps(self) -> int | None:
        """Updates of the whole run, `None` where a streamed dataset's length is unknown."""
        arguments = self.recipe.optimization
        if arguments.max_steps is not None:
            return arguments.max_steps
        if self.batches.num_batches(0) is None:
            return None
        batches = sum(self.batches.num_batches(epoch) for epoch in range(arguments.num_epochs))
        return batches // arguments.gradient_accumulation_steps

    @property
    def evaluated_model(self) -> PreTrainedModel:
        """The weights that count: the averaged ones once averaging has begun."""
        if self.averaged is not None and self.progress.num_averaged:
            return self.averaged.module
        return self.accelerator.unwrap_model(self.model)

    def train(self) -> dict:
        """Runs until the recipe's end, and returns the content of `results.json`."""
        run, arguments = self.recipe.run, self.recipe.optimization
        self.output_dir.mkdir(parents=True, exist_ok=True)
        self.accelerator.init_trackers("language_model", config=_flat(self.recipe))
        if arguments.average_from_start and not self.progress.num_averaged:
            self._start_averaging()
        with tqdm(
            total=self.total_steps,
            initial=self.progress.step,
            unit="step",
            disable=not self.accelerator.is_main_process,
        ) as bar:
            log = TrainingLog(self, bar)
            while not self._is_done():
                for batch in self.batches.batches(self.progress.epoch, self.progress.batch):
                    updated = self._train_on(batch, log)
                    self.progress.batch += 1
                    if not updated:
                        continue
                    if self.progress.step % run.log_every_steps == 0:
                        log.write()
                    if run.eval_every_steps and self.progress.step % run.eval_every_steps == 0:
                        self._validate(log)
                    elif run.save_every_steps and self.progress.step % run.save_every_steps == 0:
                        log.check()
                        self._save("last", self.accelerator.unwrap_model(self.model))
                    if self._is_done():
                        break
                else:
                    self.progress.epoch += 1
                    self.progress.batch = 0
                if not run.eval_every_steps or self._is_done():
                    self._validate(log)
        results = self._evaluate_best()
        self.accelerator.end_training()
        return results

    def _is_done(self) -> bool:
        arguments, progress = self.recipe.optimization, self.progress
        return (
            progress.finished
            or progress.epoch >= arguments.num_epochs
            or (arguments.max_steps is not None and progress.step >= arguments.max_steps)
        )

    def _train_on(self, batch: Batch, log: "TrainingLog") -> bool:
        """Adds one batch's gradients. Returns whether the weights were updated."""
        arguments = self.recipe.optimization
        device = self.accelerator.device
        self.model.train()
        with self.accelerator.accumulate(self.model):
            factor = learning_rate_factor(self.progress.step, arguments, self.total_steps) * batch.lr_scale
            for group in self.optimizer.param_groups:
                group["lr"] = arguments.learning_rate * factor
            output = self.model(
                input_ids=batch.input_ids.to(device),
                attention_mask=None if batch.attention_mask is None else batch.attention_mask.to(device),
                shift_labels=batch.shift_labels.to(device),
                state=self.state if batch.continues else None,
                use_cache=True,
                num_items_in_batch=batch.num_items,
            )
            self.state = output.state.detach()
            self.accelerator.backward(output.loss)
            log.add(output, batch)
            if self.accelerator.sync_gradients:
                self.accelerator.clip_grad_norm_(self.model.parameters(), arguments.max_grad_norm)
            self.optimizer.step()
            self.optimizer.zero_grad()
        if not self.accelerator.sync_gradients:
            return False
        self.progress.step += 1
        if self.progress.num_averaged:
            self._update_average()
        log.advance()
        return True

    def _start_averaging(self) -> None:
        self.averaged.n_averaged.zero_()
        self._update_average()

    def _update_average(self) -> None:
        self.averaged.update_parameters(self.accelerator.unwrap_model(self.model))
        self.progress.num_averaged += 1

    def _validate(self, log: "TrainingLog") -> None:
        """Scores the validation text (and gold trees), keeps the best checkpoint, and writes `last/`."""
        log.check()
        arguments, progress = self.recipe.optimization, self.progress
        model = self.evaluated_model
        score = stream_log_likelihood(model, self.validation, self.recipe.run.eval_batch_size)
        entry = {"validation_loss": score.loss, "validation_perplexity": score.perplexity}
        if self.treebank and self.accelerator.is_main_process:
            entry["parsing_f1"] = (
                100 * parse_treebank(model, self.tokenizer, self.treebank, progress=False).sentence_f1
            )
        progress.validation_losses.append(score.loss)
        if score.loss < progress.best_loss:
            progress.best_loss = score.loss
            self._save("best", model, training_state=False)
        if arguments.optimizer == "nt-asgd" and has_stalled(
            progress.validation_losses, arguments.nonmonotone_interval
        ):
            if not progress.num_averaged:
                self._start_averaging()
            elif arguments.stop_when_averaging_stalls:
                progress.finished = True
        log.write_entry(entry | {"averaged_steps": progress.num_averaged})
        self._save("last", self.accelerator.unwrap_model(self.model))

    def _save(self, name: str, model: PreTrainedModel, training_state: bool = True) -> None:
        """Writes a checkpoint folder: weights, tokenizer and, to resume, everything else of this run."""
        with replaced_folder(self.output_dir / name, self.accelerator) as folder:
            if self.accelerator.is_main_process:
                model.save_pretrained(folder)
                self.tokenizer.save_pretrained(folder)
            if not training_state:
                return
            states = folder / "training_state"
            self.accelerator.save_state(str(states))
            if self.accelerator.is_main_process:
                write_text(states / "progress.json", json.dumps(self.progress.state_dict()))
                if self.averaged is not None:
                    torch.save(self.averaged.state_dict(), states / "averaged.pt")
            layers = None if self.state is None else self.state.layers
            torch.save(layers, states / f"recurrent_state_{self.accelerator.process_index}.pt")

    def _load(self) -> None:
        """Goes on from `last/` as if the run had never stopped."""
        states = self.output_dir / "last" / "training_state"
        self.accelerator.load_state(str(states))
        self.progress.load_state_dict(json.loads((states / "progress.json").read_text(encoding="utf-8")))
        if self.averaged is not None:
            self.averaged.load_state_dict(torch.load(states / "averaged.pt", weights_only=True))
        layers = torch.load(states / f"recurrent_state_{self.accelerator.process_index}.pt", weights_only=True)
        self.state = None if layers is None else RecurrentState(layers).to(self.accelerator.device)
        self.accelerator.print(f"resumed after {self.progress.step} updates ({self.progress.epoch} epochs)")

    def _evaluate_best(self) -> dict:
        """Scores `best/` on validation and test text and gold trees, and writes `results.json`."""
        run = self.recipe.run
        results = {}
        if self.accelerator.is_main_process:
            model = AutoModelForCausalLM.from_pretrained(self.output_dir / "best").to(self.accelerator.device)
            results["validation_perplexity"] = stream_log_likelihood(
                model, self.validation, run.eval_batch_size
            ).perplexity
            if self.test is not None:
                results["test_perplexity"] = stream_log_likelihood(
                    model, self.test, run.test_batch_size, progress=True
                ).perplexity
            if self.treebank:
                results["parsing"] = parse_treebank(model, self.tokenizer, self.treebank).to_dict()
            results |= {
                "updates": self.progress.step,
                "parameters": model.num_parameters(),
                "onlstm_hf": onlstm_hf.__version__,
                "torch": torch.__version__,
                "recipe": _flat(self.recipe),
            }
            write_text(self.output_dir / "results.json", json.dumps(results, indent=2) + "\n")
        self.accelerator.wait_for_everyone()
        return results


class TrainingLog:
    """Loss, perplexity and speed since the last entry: on the progress bar, in `log.jsonl` and in the trackers."""

    def __init__(self, run: TrainingRun, bar: tqdm):
        self.run, self.bar = run, bar
        self.limit = DIVERGED_ABOVE_UNIFORM * math.log(run.accelerator.unwrap_model(run.model).config.vocab_size)
        self._clear()

    def _clear(self) -> None:
        self.cross_entropy = torch.zeros((), device=self.run.accelerator.device)
        self.num_batches = self.num_tokens = 0
        self.start = time.perf_counter()

    def add(self, output, batch: Batch) -> None:
        self.cross_entropy += output.cross_entropy.detach()
        self.num_batches += 1
        self.num_tokens += batch.num_items * self.run.accelerator.num_processes

    def advance(self) -> None:
        self.bar.update()

    def check(self) -> float | None:
        """The mean loss since the last entry.

        Raises:
            TrainingDiverged: if it is not finite or far above that of guessing.
        """
        if not self.num_batches:
            return None
        loss = self.run.accelerator.reduce(self.cross_entropy / self.num_batches, reduction="mean").item()
        if not math.isfinite(loss) or loss > self.limit:
            raise TrainingDiverged(
                f"training diverged before update {self.run.progress.step}: the mean loss is {loss:.3f} (guessing "
                f"gives {self.limit / DIVERGED_ABOVE_UNIFORM:.3f}). The last good checkpoint is kept in "
                f"{self.run.output_dir / 'last'}; try a lower learning_rate or max_grad_norm"
            )
        return loss

    def write(self) -> None:
        loss = self.check()
        speed = self.num_tokens / (time.perf_counter() - self.start)
        self.bar.set_postfix(loss=f"{loss:.3f}", ppl=f"{math.exp(loss):.1f}", tokens_per_s=f"{speed:.0f}")
        rate = self.run.optimizer.param_groups[0]["lr"]
        self.write_entry({"loss": loss, "perplexity": math.exp(loss), "tokens_per_s": speed, "learning_rate": rate})
        self._clear()

    def write_entry(self, values: dict[str, float]) -> None:
        progress = self.run.progress
        self.run.accelerator.log(values, step=progress.step)
        if not self.run.accelerator.is_main_process:
            return
        with open(self.run.output_dir / "log.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps({"step": progress.step, "epoch": progress.epoch, **values}) + "\n")
        if "validation_loss" in values:
            shown = ", ".join(f"{name} {value:.4g}" for name, value in values.items() if name != "averaged_steps")
            self.bar.write(f"update {progress.step}, epoch {progress.epoch}: {shown}")


def _flat(recipe: Recipe) -> dict:
    """A recipe's fields, groups merged, as trackers and JSON want them."""
    fields: dict = {}
    for group in dataclasses.asdict(recipe).values():
        fields |= group
    return {name: json.dumps(value) if isinstance(value, (dict, list)) else value for name, value in fields.items()}


def main(arguments: list[str] | None = None) -> dict:
    recipe = parse_recipe(sys.argv[1:] if arguments is None else arguments)
    return TrainingRun(recipe).train()


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError, TrainingDiverged) as error:
        sys.exit(f"train_lm.py: {error}")
