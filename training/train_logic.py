"""Trains a model of logical inference: `accelerate launch training/train_logic.py RECIPE.yaml [--name value ...]`.

The protocol is that of Shen et al. (2019): train on pairs of few operators, test on pairs of up to twelve.

A run leaves in its `output_dir`:
    best/         the checkpoint with the highest validation accuracy, for `from_pretrained`
    last/         the newest checkpoint, also for `from_pretrained`, with the training state to resume from
    log.jsonl     one line for every log entry and validation
    results.json  the scores of best/ on the test pairs by number of operators, with the recipe
"""

import sys
from itertools import chain
from pathlib import Path

import torch
from transformers import (
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    AutoConfig,
    AutoModelForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout that this script belongs to

from onlstm_hf.logic.formulas import RELATIONS
from onlstm_hf.logic.scores import score_logic
from onlstm_hf.models.recurrent.pair_classification import ForSequencePairClassification
from onlstm_hf.utils.evaluation_mode import evaluation_mode
from onlstm_hf.utils.results_file import write_results
from training.logic.batches import (
    EncodedPair,
    LogicBatch,
    LogicBatches,
    build_logic_tokenizer,
    collate,
    encode_pairs,
    load_logic_splits,
)
from training.logic.recipe import LogicRecipe, parse_logic_recipe
from training.loop.model_setup import changed_config, trained_class
from training.loop.progress import Progress
from training.loop.run import TrainingRun, run_script
from training.loop.task import BatchSource, Share, Task, fingerprint


class LogicalInference(Task):
    """Tells the relation of two formulas of propositional logic."""

    name, unit, logs_learning_rate = "logical_inference", "pairs", True
    recipe: LogicRecipe

    def build_model(self, checkpoint: Path | None) -> PreTrainedModel:
        self.tokenizer = build_logic_tokenizer()
        return build_pair_model(self.recipe, self.tokenizer)

    def load_data(self, model: PreTrainedModel, share: Share) -> BatchSource:
        self.splits = load_logic_splits(self.recipe.data)
        self.validation = encode_pairs(self.splits.validation, self.tokenizer)
        train = encode_pairs(self.splits.train, self.tokenizer)
        test = chain.from_iterable(self.splits.test.values())
        parts = {"training": self.splits.train, "validation": self.splits.validation, "test": test}
        self.fingerprints = {f"{name} pairs": fingerprint(map(" ".join, pairs)) for name, pairs in parts.items()}
        return LogicBatches(train, share, self.recipe.optimization.seed)

    def num_classes(self, model: PreTrainedModel) -> int:
        return len(RELATIONS)

    def loss(
        self, model: torch.nn.Module, batch: LogicBatch, num_items: float, device: torch.device
    ) -> tuple[torch.Tensor, torch.Tensor]:
        mean_loss = model(**_to_device(collate(batch.pairs), device)).loss
        loss = mean_loss * (len(batch.pairs) / num_items)
        return loss, loss

    def validate(self, model: PreTrainedModel) -> dict[str, float]:
        predicted = predict_relations(model, self.validation, self.recipe.run.eval_batch_size)
        right = sum(p == RELATIONS[pair.label] for p, pair in zip(predicted, self.validation, strict=True))
        return {"validation_accuracy": right / len(predicted)}

    def validation_loss(self, scores: dict[str, float]) -> float:
        return -scores["validation_accuracy"]

    def write_results(self, output_dir: Path, progress: Progress, device: torch.device) -> dict:
        model = AutoModelForSequenceClassification.from_pretrained(output_dir / "best").to(device)
        predictions, references, num_operators = [], [], []
        for number, pairs in self.splits.test.items():
            encoded = encode_pairs(pairs, self.tokenizer)
            predictions += predict_relations(model, encoded, self.recipe.run.eval_batch_size)
            references += [pair.relation for pair in pairs]
            num_operators += [number] * len(pairs)
        results = {
            "task": "logical inference",
            "name": output_dir.name,
            "model_type": model.config.model_type,
            "parameters": model.num_parameters(),
            "test": score_logic(predictions, references, num_operators).to_dict(),
            "validation_accuracy": -progress.best_loss,
            "best_epoch": progress.best_epoch,
            "epochs": progress.epoch,
            "updates": progress.step,
            "training_pairs": len(self.splits.train),
            **self.record(progress),
        }
        return write_results(output_dir / "results.json", results, "training/train_logic.py", self.command_line)

    def summary(self, results: dict) -> str:
        accuracies = {"validation": results["validation_accuracy"], "test": results["test"]["accuracy"]}
        return ", ".join(f"{name} accuracy {100 * accuracy:.1f} %" for name, accuracy in accuracies.items())


def build_pair_model(recipe: LogicRecipe, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """A new classifier of the recipe's type, whose labels are the relations.

    Raises:
        ValueError: if models of this type classify no pairs.
    """
    known = AutoConfig.for_model(recipe.model.model_type)
    model_class = trained_class(known, MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING, ForSequencePairClassification)
    fields = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "id2label": dict(enumerate(RELATIONS)),
        "label2id": {relation: index for index, relation in enumerate(RELATIONS)},
    }
    return model_class(changed_config(known, fields, recipe.model.model))


def predict_relations(model: PreTrainedModel, pairs: list[EncodedPair], batch_size: int) -> list[str]:
    """The most probable relation of each pair, in evaluation mode; pairs of similar length run together."""
    order = sorted(range(len(pairs)), key=lambda index: pairs[index].lengths)
    predicted: list[str] = [""] * len(pairs)
    with evaluation_mode(model):
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
    return TrainingRun(LogicalInference(parse_logic_recipe(arguments), arguments)).train()


if __name__ == "__main__":
    run_script("train_logic.py", main)
