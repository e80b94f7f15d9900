"""Training task of a classifier, independent of the data."""

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from transformers import (
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    AutoConfig,
    AutoModelForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from onlstm_hf.utils.evaluation_mode import evaluation_mode
from onlstm_hf.utils.results_file import write_results
from training.classification.batches import Example, ExampleBatch, ExampleBatches, collate
from training.loop.model_setup import changed_config, trained_class
from training.loop.task import BatchSource, ProcessShard, Progress, Task


class Classification(Task):
    """Classification of sequences or pairs of sequences.

    Attributes:
        labels: all labels, in the order of their indices.
        takes_pairs: whether the models classify pairs of sequences.
        script: name of the training script, for the results.
        validation: validation examples, set by `load_examples`.
    """

    logs_learning_rate = True
    labels: ClassVar[Sequence[str]]
    takes_pairs: ClassVar[bool]
    script: ClassVar[str]

    validation: list[Example]

    @abstractmethod
    def build_tokenizer(self) -> PreTrainedTokenizerBase:
        """Builds a word tokenizer for all tokens of the data."""

    @abstractmethod
    def load_examples(self) -> list[Example]:
        """Reads all data; sets `validation` and `fingerprints`, and returns the training examples."""

    @abstractmethod
    def test_results(self, model: PreTrainedModel) -> dict[str, Any]:
        """Returns the task's own entries of `results.json`; `test` has the scores of the best model."""

    def build_model(self, checkpoint: Path | None) -> PreTrainedModel:
        self.tokenizer, arguments = self.build_tokenizer(), self.recipe.model
        model_class = trained_class(arguments.model_type, MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING, self.takes_pairs)
        fields = {
            "vocab_size": len(self.tokenizer),
            "pad_token_id": self.tokenizer.pad_token_id,
            "eos_token_id": self.tokenizer.eos_token_id,
            "id2label": dict(enumerate(self.labels)),
            "label2id": {label: index for index, label in enumerate(self.labels)},
        }
        model = model_class(changed_config(AutoConfig.for_model(arguments.model_type), fields, arguments.model))
        model.set_implementation(arguments.implementation)
        return model

    def load_data(self, model: PreTrainedModel, shard: ProcessShard) -> BatchSource:
        return ExampleBatches(self.load_examples(), shard, self.recipe.optimization.seed)

    def num_classes(self, model: PreTrainedModel) -> int:
        return len(self.labels)

    def loss(
        self, model: torch.nn.Module, batch: ExampleBatch, num_items: float, device: torch.device
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        mean_loss = model(**_to_device(collate(batch.examples), device)).loss
        loss = mean_loss * (len(batch.examples) / num_items)
        return loss, {"loss": loss}

    def validate(self, model: PreTrainedModel) -> dict[str, float]:
        predicted = predict_labels(model, self.validation, self.recipe.run.eval_batch_size)
        right = sum(p == self.labels[example.label] for p, example in zip(predicted, self.validation, strict=True))
        return {"validation_accuracy": right / len(predicted)}

    def validation_loss(self, scores: dict[str, float]) -> float:
        return -scores["validation_accuracy"]

    def write_results(self, output_dir: Path, progress: Progress, device: torch.device) -> dict:
        model = AutoModelForSequenceClassification.from_pretrained(output_dir / "best").to(device)
        model.set_implementation(self.recipe.model.implementation)
        results = {
            "task": self.name.replace("_", " "),
            "name": output_dir.name,
            "model_type": model.config.model_type,
            "parameters": model.num_parameters(),
            "validation_accuracy": -progress.best_loss,
            "best_epoch": progress.best_epoch,
            **self.test_results(model),
            **self.record(progress),
        }
        return write_results(output_dir / "results.json", results, f"training/{self.script}", self.command_line)

    def summary(self, results: dict) -> str:
        accuracies = {"validation": results["validation_accuracy"], "test": results["test"]["accuracy"]}
        return ", ".join(f"{name} accuracy {100 * accuracy:.1f} %" for name, accuracy in accuracies.items())


def predict_labels(model: PreTrainedModel, examples: Sequence[Example], batch_size: int) -> list[str]:
    """Returns the most probable label of each example, in evaluation mode."""
    predicted: list[str] = [""] * len(examples)
    with evaluation_mode(model):
        for rows in rows_by_length(examples, batch_size):
            inputs = _to_device(collate([examples[index] for index in rows]), model.device)
            for index, label in zip(rows, model(**inputs).logits.argmax(dim=-1).tolist(), strict=True):
                predicted[index] = model.config.id2label[label]
    return predicted


def rows_by_length(examples: Sequence[Example], batch_size: int) -> list[list[int]]:
    """Returns the indices of all examples in batches of similar length."""
    order = sorted(range(len(examples)), key=lambda index: examples[index].lengths)
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]


def _to_device(inputs: dict[str, torch.Tensor], device: torch.device) -> dict[str, torch.Tensor]:
    return {name: tensor.to(device) for name, tensor in inputs.items()}
