"""The card of a model of logical inference: the template `logic.md`, filled in with its results."""

from pathlib import Path

from huggingface_hub import EvalResult, ModelCard, ModelCardData
from transformers import PreTrainedConfig

from ...logic.formulas import MAX_OPERATORS
from .model_descriptions import ClassifierDescription, describe_classifier

# The name of this task in the results of its training.
LOGIC = "logical inference"


def logic_card(repository: str, config: PreTrainedConfig, results: dict) -> ModelCard:
    """The card, metadata included.

    Args:
        repository: the name that loads the model: one on the Hub, or that of the folder.
        config: the configuration of the model.
        results: what `training/train_logic.py` writes to `results.json`.

    Raises:
        ValueError: if there is no description of this type of model, or the results lack something.
    """
    description, name = describe_classifier(config), repository.rpartition("/")[2]
    try:
        return _filled_template(repository, name, description, results)
    except KeyError as error:
        raise ValueError(
            f"these results lack {error}, which the card states: training/train_logic.py writes them all"
        ) from error


def _filled_template(repository: str, name: str, description: ClassifierDescription, results: dict) -> ModelCard:
    test, recipe = results["test"], results["recipe"]
    totals = [group["total"] for group in test["by_relation"].values()]
    return ModelCard.from_template(
        _metadata(name, description, test),
        template_path=str(Path(__file__).parent / "logic.md"),
        repository=repository,
        name=name,
        model=description,
        millions=f"{results['parameters'] / 1e6:.1f}",
        version=results["versions"]["onlstm_hf"],
        training_pairs=f"{results['training_pairs']:,}",
        pairs=_source_of_pairs(recipe),
        max_train_operators=recipe["max_train_operators"],
        num_pairs=f"{test['num_pairs']:,}",
        rows=[
            {"operators": _operators(number), "pairs": f"{group['total']:,}", "accuracy": _percent(group["accuracy"])}
            for number, group in test["by_operators"].items()
        ],
        accuracy=_percent(test["accuracy"]),
        macro_accuracy=_percent(test["macro_accuracy"]),
        most_frequent=_percent(max(totals) / sum(totals)),
        validation_accuracy=_percent(results["validation_accuracy"]),
        best_epoch=results["best_epoch"],
        epochs=results["epochs"],
        updates=f"{results['updates']:,}",
        date=results["date"][:10],
        torch=results["versions"]["torch"],
        command=results["command"].replace(" --", " \\\n    --"),
    )


def _source_of_pairs(recipe: dict) -> str:
    if recipe["pairs"] is None:
        return f"of the {recipe['num_pairs']:,} that onlstm_hf generates with seed {recipe['pairs_seed']}"
    return f"of `{recipe['pairs']}`"


def _operators(number: str) -> str:
    return f"{number} or more" if int(number) == MAX_OPERATORS else number


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def _metadata(name: str, description: ClassifierDescription, test: dict) -> ModelCardData:
    groups = {"test accuracy": test["accuracy"]} | {
        f"test accuracy, pairs of {_operators(number)} operators": group["accuracy"]
        for number, group in test["by_operators"].items()
    }
    return ModelCardData(
        license="apache-2.0",
        library_name="transformers",
        pipeline_tag="text-classification",
        tags=[*description.tags, "logical-inference"],
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
