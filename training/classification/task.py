"""Training task and recipe of a classifier, independent of the data."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from transformers import (
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    AutoConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from onlstm_hf.utils.evaluation_mode import evaluation_mode
from onlstm_hf.utils.results_file import write_results
from training.classification.batches import Example, ExampleBatch, ExampleBatches, collate, rows_by_length
from training.loop.model_setup import changed_config, trained_class
from training.loop.recipe import (
    NewModelArguments,
    Recipe,
    RunArguments,
    UpdateArguments,
    parse_groups,
    recorded,
    with_default,
)
from training.loop.task import BatchSource, ProcessShard, Progress, Task


@dataclass
class ClassifierOptimizationArguments(UpdateArguments):
    """Adam. The learning rate is halved when validation does not improve."""

    optimizer: ClassVar[str] = "adam"
    average_from_start: ClassVar[bool] = False
    schedule: ClassVar[str] = "plateau"
    plateau_factor: ClassVar[float] = 0.5
    warmup_steps: ClassVar[int] = 0

    learning_rate: float = with_default(UpdateArguments, "learning_rate", 0.001)
    adam_epsilon: float = with_default(UpdateArguments, "adam_epsilon", 1e-9)
    max_grad_norm: float = with_default(UpdateArguments, "max_grad_norm", 1.0)
    batch_size: int = with_default(UpdateArguments, "batch_size", 128)
    num_epochs: int = with_default(UpdateArguments, "num_epochs", 50)
    patience: int = recorded("Halve the rate after more than this many validations without a gain.", 2, at_least=1)

    @property
    def plateau_patience(self) -> int:
        return self.patience


@dataclass
class ClassifierRunArguments(RunArguments):
    """Fields of every run."""

    eval_batch_size: int = with_default(RunArguments, "eval_batch_size", 512)


def parse_classifier_recipe(data: type, program: str, description: str, arguments: list[str]) -> Recipe:
    """Reads a recipe whose data fields are those of the dataclass `data`. See `parse_groups` for the errors."""
    groups = (data, NewModelArguments, ClassifierOptimizationArguments, ClassifierRunArguments)
    return Recipe(*parse_groups(arguments, groups, program, description))


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
        self.tokenizer, self.num_classes, arguments = self.build_tokenizer(), len(self.labels), self.recipe.model
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

    def loss(
        self, model: torch.nn.Module, batch: ExampleBatch, num_items: float, device: torch.device
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        loss = model(**collate(batch.examples, device)).loss * (len(batch.examples) / num_items)
        return loss, {"loss": loss}

    def validate(self, model: PreTrainedModel) -> dict[str, float]:
        predicted = self.predict_labels(model, self.validation)
        right = sum(p == self.labels[example.label] for p, example in zip(predicted, self.validation, strict=True))
        return {"validation_accuracy": right / len(predicted)}

    def validation_loss(self, scores: dict[str, float]) -> float:
        return -scores["validation_accuracy"]

    def write_results(self, model: PreTrainedModel, output_dir: Path, progress: Progress) -> dict:
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

    def predict_labels(self, model: PreTrainedModel, examples: Sequence[Example]) -> list[str]:
        """Returns the most probable label of each example, in evaluation mode."""
        predicted = [""] * len(examples)
        with evaluation_mode(model):
            for rows in rows_by_length(examples, self.recipe.run.eval_batch_size):
                inputs = collate([examples[index] for index in rows], model.device)
                for index, label in zip(rows, model(**inputs).logits.argmax(dim=-1).tolist(), strict=True):
                    predicted[index] = self.labels[label]
        return predicted
