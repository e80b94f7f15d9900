"""Trains a model of logical inference: `accelerate launch training/train_logic.py RECIPE.yaml [--name value ...]`.

The protocol is that of Shen et al. (2019): train on pairs of few operators, test on pairs of up to twelve.

A run leaves in its `output_dir`:
    best/         the checkpoint with the highest validation accuracy, for `from_pretrained`
    last/         the newest checkpoint, also for `from_pretrained`, with the training state to resume from
    log.jsonl     one line for every log entry and validation
    results.json  the scores of best/ on the test pairs by number of operators, with the recipe
"""

import json
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, load, set_seed
from torch.optim.lr_scheduler import ReduceLROnPlateau
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedModel, PreTrainedTokenizerBase

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from onlstm_hf.logic.formulas import RELATIONS
from onlstm_hf.logic.scores import score_logic
from onlstm_hf.utils.files import write_json
from onlstm_hf.utils.process_memory import keep_freed_memory
from onlstm_hf.utils.results_file import write_results
from training.language_models.text_batches import Share
from training.logic.batches import (
    EncodedPair,
    LogicBatches,
    build_logic_tokenizer,
    collate,
    encode_pairs,
    load_logic_splits,
)
from training.logic.recipe import FIXED_BY_A_RUN, LogicRecipe, parse_logic_recipe
from training.loop.checkpointing import find_checkpoint, replaced_folder, reported_damage, without_notices
from training.loop.model_setup import changed_config, run_model_code
from training.loop.optimization import all_finite
from training.loop.training_log import TrainingDiverged, TrainingLog
from training.train_lm import as_scalars, check_trackers


@dataclass
class LogicProgress:
    """What a run counts. Saved with every checkpoint.

    Attributes:
        epoch: epochs that are finished.
        step: updates made.
        best_accuracy: highest validation accuracy.
        best_epoch: when it was reached, counted from 1.
        log_size: bytes of `log.jsonl`.
    """

    epoch: int = 0
    step: int = 0
    best_accuracy: float = -1.0
    best_epoch: int = 0
    log_size: int = 0


class LogicRun:
    """One run: model, optimiser, pairs and progress, and the loop over them.

    Args:
        recipe: what to do.
        command_line: the arguments that the recipe was read from, which the results record.
    """

    def __init__(self, recipe: LogicRecipe, command_line: Sequence[str]):
        self.recipe, self.command_line, self.progress = recipe, command_line, LogicProgress()
        arguments, run = recipe.optimization, recipe.run
        self.output_dir = Path(run.output_dir)
        if run.num_threads:
            torch.set_num_threads(run.num_threads)
        check_trackers(run.trackers)
        if recipe.model.model_code is not None:
            run_model_code(recipe.model.model_code)
        self.accelerator = Accelerator(
            mixed_precision=arguments.mixed_precision,
            log_with=run.trackers or None,
            project_dir=str(self.output_dir),
        )
        resuming = find_checkpoint(self.output_dir, run.resume, self.accelerator)
        # All processes start from the weights of the first one, but each draws its own dropout masks.
        set_seed(arguments.seed, device_specific=True)

        self.tokenizer = build_logic_tokenizer()
        model = build_pair_model(recipe, self.tokenizer)
        optimizer = torch.optim.Adam(
            model.parameters(),
            lr=arguments.learning_rate,
            betas=(arguments.adam_beta1, arguments.adam_beta2),
            eps=arguments.adam_epsilon,
            weight_decay=arguments.weight_decay,
            fused=True,
        )
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)
        self.scheduler = ReduceLROnPlateau(
            self.optimizer.optimizer, "max", factor=0.5, patience=arguments.patience, threshold=0
        )
        self.accelerator.register_for_checkpointing(self.scheduler)
        self.splits = load_logic_splits(recipe.data)
        share = Share(arguments.batch_size, self.accelerator.process_index, self.accelerator.num_processes)
        self.batches = LogicBatches(encode_pairs(self.splits.train, self.tokenizer), share, arguments.seed)
        self.validation = encode_pairs(self.splits.validation, self.tokenizer)
        log_state = self._load_training_state() if resuming else None
        if self.accelerator.is_main_process:
            self.output_dir.mkdir(parents=True, exist_ok=True)
        total_steps = arguments.num_epochs * len(self.batches)
        self.log = TrainingLog(
            self.accelerator, self.output_dir, self.progress, len(RELATIONS), total_steps, log_state, unit="pairs"
        )

    @property
    def last(self) -> Path:
        return self.output_dir / "last"

    def train(self) -> dict:
        """Runs until the recipe's end, and returns the content of `results.json` (in the first process)."""
        self.accelerator.init_trackers("logical_inference", config=as_scalars(self.recipe.fields()))
        with closing(self.log):
            while self.progress.epoch < self.recipe.optimization.num_epochs:
                for pairs, weight in self.batches.batches(self.progress.epoch):
                    self._update(pairs, weight)
                    if self.progress.step % self.recipe.run.log_every_steps == 0:
                        self.log.write_training(self.optimizer.param_groups[0]["lr"])
                self.progress.epoch += 1
                self._validate()
        results = self._evaluate_best() if self.accelerator.is_main_process else {}
        self.accelerator.end_training()
        return results

    def _update(self, pairs: list[EncodedPair], weight: float) -> None:
        self.model.train()
        loss = self.model(**_to_device(collate(pairs), self.accelerator.device)).loss
        self.accelerator.backward(loss * weight)
        self.accelerator.clip_grad_norm_(self.model.parameters(), self.recipe.optimization.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.progress.step += 1
        self.log.add(loss.detach(), len(pairs))

    def _validate(self) -> None:
        """Scores the validation pairs, keeps the best checkpoint, and writes `last/`."""
        self.log.mean_loss()
        if not all_finite(self.model):
            raise self.log.diverged("the weights contain NaN or infinity")
        accuracies: list[float | None] = [None]
        with self.log.paused():
            if self.accelerator.is_main_process:
                model = self.accelerator.unwrap_model(self.model)
                predicted = predict_relations(model, self.validation, self.recipe.run.eval_batch_size)
                right = sum(p == RELATIONS[pair.label] for p, pair in zip(predicted, self.validation, strict=True))
                accuracies[0] = right / len(predicted)
            (accuracy,) = broadcast_object_list(accuracies)
        learning_rate = self.optimizer.param_groups[0]["lr"]
        self.scheduler.step(accuracy)
        if accuracy > self.progress.best_accuracy:
            self.progress.best_accuracy, self.progress.best_epoch = accuracy, self.progress.epoch
            self._save(self.output_dir / "best")
        self.log.write_validation({"validation_accuracy": accuracy, "learning_rate": learning_rate})
        self._save(self.last)

    def _save(self, target: Path) -> None:
        """Writes a checkpoint folder: weights and tokenizer and, in `last/`, all that this run needs to go on."""
        with self.log.paused(), without_notices(), replaced_folder(target, self.accelerator) as folder:
            if self.accelerator.is_main_process:
                self.accelerator.unwrap_model(self.model).save_pretrained(folder)
                self.tokenizer.save_pretrained(folder)
            if target == self.last:
                state = folder / "training_state"
                self.accelerator.save_state(str(state))
                if self.accelerator.is_main_process:
                    self.progress.log_size = self.log.size()
                    write_json(state / "run.json", {"progress": asdict(self.progress), "fixed": self._fixed_fields()})
                torch.save(self.log.state_dict(), state / f"log_{self.accelerator.process_index}.pt")

    def _load_training_state(self) -> dict:
        """Goes on from `last/` as if the run had never stopped. Returns the state of its log."""
        folder, process = self.last / "training_state", self.accelerator.process_index
        with reported_damage(f"the training state {folder}"):
            state = json.loads((folder / "run.json").read_text(encoding="utf-8"))
            for name, value in self._fixed_fields().items():
                if state["fixed"][name] != value:
                    raise ValueError(f"{name} was {state['fixed'][name]} and is {value} now")
            self.progress = LogicProgress(**state["progress"])
            load(folder / f"random_states_{process}.pkl")  # load_state passes over one that it cannot read
            self.accelerator.load_state(str(folder))
            log_state = torch.load(folder / f"log_{process}.pt", weights_only=True)
        self.accelerator.print(f"resumed after {self.progress.epoch} epochs")
        return log_state

    def _fixed_fields(self) -> dict:
        """What must not change when the run is resumed."""
        fields = self.recipe.fields()
        pairs = {"training pairs": len(self.splits.train), "num_processes": self.accelerator.num_processes}
        return {name: fields[name] for name in FIXED_BY_A_RUN} | pairs

    def _evaluate_best(self) -> dict:
        """Scores `best/` on the test pairs, and writes `results.json`."""
        model = AutoModelForSequenceClassification.from_pretrained(self.output_dir / "best")
        model = model.to(self.accelerator.device)
        predictions, references, num_operators = [], [], []
        for number, pairs in self.splits.test.items():
            encoded = encode_pairs(pairs, self.tokenizer)
            predictions += predict_relations(model, encoded, self.recipe.run.eval_batch_size)
            references += [pair.relation for pair in pairs]
            num_operators += [number] * len(pairs)
        results = {
            "task": "logical inference",
            "name": self.output_dir.name,
            "model_type": model.config.model_type,
            "parameters": model.num_parameters(),
            "test": score_logic(predictions, references, num_operators).to_dict(),
            "validation_accuracy": self.progress.best_accuracy,
            "best_epoch": self.progress.best_epoch,
            "epochs": self.progress.epoch,
            "updates": self.progress.step,
            "training_pairs": len(self.splits.train),
            "recipe": self.recipe.fields(),
        }
        return write_results(self.output_dir / "results.json", results, "training/train_logic.py", self.command_line)


def build_pair_model(recipe: LogicRecipe, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """A new classifier of the recipe's type, whose labels are the relations."""
    known = AutoConfig.for_model(recipe.model.model_type)
    fields = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "id2label": dict(enumerate(RELATIONS)),
        "label2id": {relation: index for index, relation in enumerate(RELATIONS)},
    }
    config = changed_config(known, fields, recipe.model.model)
    return AutoModelForSequenceClassification.from_config(config)


@torch.no_grad()
def predict_relations(model: PreTrainedModel, pairs: list[EncodedPair], batch_size: int) -> list[str]:
    """The most probable relation of each pair, in evaluation mode; pairs of similar length run together."""
    model.eval()
    order = sorted(range(len(pairs)), key=lambda index: pairs[index].lengths)
    predicted: list[str] = [""] * len(pairs)
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        inputs = _to_device(collate([pairs[index] for index in rows]), model.device)
        for index, label in zip(rows, model(**inputs).logits.argmax(dim=-1).tolist(), strict=True):
            predicted[index] = model.config.id2label[label]
    return predicted


def _to_device(inputs: dict[str, torch.Tensor], device: torch.device) -> dict[str, torch.Tensor]:
    return {name: tensor.to(device) for name, tensor in inputs.items()}


def main(arguments: list[str] | None = None) -> dict:
    """Trains by the recipe and overrides of a command line, and returns the content of `results.json`.

    Raises:
        ValueError, OSError: for bad input, before training begins.
        TrainingDiverged: where training cannot go on.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    return LogicRun(parse_logic_recipe(arguments), arguments).train()


if __name__ == "__main__":
    keep_freed_memory()
    try:
        main()
    except (ValueError, OSError, TrainingDiverged) as error:
        sys.exit(f"train_logic.py: {error}")
    except KeyboardInterrupt:
        sys.exit("train_logic.py: interrupted; --resume goes on from the last checkpoint")
