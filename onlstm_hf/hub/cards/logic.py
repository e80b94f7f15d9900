"""The card of a model of logical inference: the template `logic.md`, filled in with its results."""

from huggingface_hub import EvalResult, ModelCard, ModelCardData
from transformers import PreTrainedConfig

from ...logic.formulas import MAX_OPERATORS
from .template import complete_results, describe_model, fill_template

# Name of the task in results files.
LOGIC = "logical inference"


def logic_card(repository: str, config: PreTrainedConfig, results: dict) -> ModelCard:
    """Builds the card with metadata from the `results.json` of `training/train_logic.py`; see `model_card`."""
    description, name = describe_model(config, "classifiers"), repository.rpartition("/")[2]
    with complete_results("training/train_logic.py"):
        totals = [group["total"] for group in results["test"]["by_relation"].values()]
        return fill_template(
            "logic.md",
            _metadata(name, description["tags"], results["test"]),
            repository=repository,
            name=name,
            model=description,
            results=results,
            most_frequent=max(totals) / sum(totals),
            operators=_operators,
        )


def _operators(number: str) -> str:
    return f"{number} or more" if int(number) == MAX_OPERATORS else number


def _metadata(name: str, tags: list[str], test: dict) -> ModelCardData:
    groups = {"test accuracy": test["accuracy"]} | {
        f"test accuracy, pairs of {_operators(number)} operators": group["accuracy"]
        for number, group in test["by_operators"].items()
    }
    return ModelCardData(
        license="apache-2.0",
        library_name="transformers",
        pipeline_tag="text-classification",
        tags=[*tags, "logical-inference"],
        model_name=name,
        eval_results=[
            EvalResult(
                task_type="text-classification",
                task_name="Logical inference",
                dataset_type="propositional_logic",
                dataset_name="Pairs of formulas of propositional logic",
                dataset_split="test",
                metric_type="accuracy",
                metric_name=metric_name,
                metric_value=round(100 * accuracy, 2),
            )
            for metric_name, accuracy in groups.items()
        ],
    )
