"""Checkpoints as their repositories on the Hub hold them: checked, with the code of the model and a card."""

import json
import os
import shutil
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path

import torch
import transformers
import yaml
from huggingface_hub import EvalResultEntry, ModelCard, eval_result_entries_to_yaml
from transformers import (
    CONFIG_MAPPING,
    AutoModelForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.dynamic_module_utils import get_relative_imports

from ..utils.checkpoints import load_checkpoint
from ..utils.files import written_folder
from ..utils.remote_code import model_code, refer_to
from .cards.language_model import eval_result_entries, model_card
from .cards.logic import LOGIC, logic_card

# Scores as the Hub shows them, see https://huggingface.co/docs/hub/eval-results.
EVAL_RESULTS = ".eval_results/onlstm_hf.yaml"
CHECKPOINT_FILES = (
    "README.md",
    "LICENSE",
    "config.json",
    "generation_config.json",
    "results.json",
    "*.safetensors",
    "*.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "*.svg",
    "*.png",
    EVAL_RESULTS,
)
# Files that Git, the Hub and Python put into folders on their own.
# SHA256SUMS is what a training run checks its own checkpoints by.
NEVER_SHARED = (".git", ".gitattributes", ".gitignore", ".cache", "__pycache__", "SHA256SUMS")
# Files that Trainer writes beside the model: its arguments, state and logs, and the checkpoints of the run.
TRAINER_FILES = (
    "training_args.bin",
    "trainer_state.json",
    "optimizer.pt",
    "optimizer.bin",
    "scheduler.pt",
    "scaler.pt",
    "rng_state*.pth",
    "*_results.json",
    "runs/*",
    "checkpoint-*/*",
)
# What a classifier is tried on. The brackets make binary trees, which some models of pairs need.
PAIR = ("( a ( and b ) )", "( not a )")


def export_checkpoint(checkpoint: str | os.PathLike, folder: str | os.PathLike) -> str:
    """Writes a checkpoint as its repository on the Hub would be, so that it loads where this package is not installed.

    Weights and tokenizer are copied as they are, without the files that Trainer leaves beside them. The code is the
    present one of this package, in the place of older code that the checkpoint carries; a checkpoint of another type
    of model keeps the code that it carries, which is not run. The card is written from `results.json`, or else it is
    the checkpoint's `README.md`.

    Args:
        checkpoint: a folder that `save_pretrained`, `Trainer`, `onlstm-hf convert` or `training/release.py` wrote.
        folder: where to write; it must not exist, and does not unless all of it is written.

    Returns:
        What was written, in one line.

    Raises:
        FileExistsError: if there is such a folder.
        FileNotFoundError, ValueError: if the checkpoint is not fit to be shared. The message says what to mend.
    """
    source, target = Path(checkpoint), Path(folder)
    if target.exists():
        raise FileExistsError(f"{target} exists; name a new folder")
    if target.parent.is_file():
        raise FileExistsError(f"{target.parent} is a file; name a new folder")
    files = repository_files(source, target.name)
    target.parent.mkdir(parents=True, exist_ok=True)
    with written_folder(target) as temporary:
        for name, content in files.items():
            (temporary / name).parent.mkdir(exist_ok=True)
            if isinstance(content, Path):
                shutil.copyfile(content, temporary / name)
            else:
                (temporary / name).write_bytes(content)
    num_modules = sum(name.endswith(".py") for name in files)
    card = "with its card" if "README.md" in files else f"without a card ({source} has no results.json or README.md)"
    return f"{target}: {len(files)} files, {num_modules} of them the code of the model, {card}"


def repository_files(
    checkpoint: Path, repository: str, results: str | os.PathLike | None = None
) -> dict[str, Path | bytes]:
    """The files that the repository of a checkpoint has, by name: places from where to copy them, or their contents.

    Args:
        checkpoint: a folder.
        repository: what the card calls it, and loads it by.
        results: the file of results that the card is written from, in the place of the checkpoint's `results.json`.

    Raises:
        FileNotFoundError, ValueError: if the checkpoint is not fit to be shared. The message says what to mend.
    """
    try:
        return _checked_files(checkpoint, repository, results)
    except (TypeError, AttributeError, LookupError, OverflowError, RuntimeError) as error:
        raise ValueError(
            f"a JSON file of {checkpoint} has other content than save_pretrained and training/release.py write "
            f"({type(error).__name__}: {error}): save the model again"
        ) from error


def _checked_files(checkpoint: Path, repository: str, results: str | os.PathLike | None) -> dict[str, Path | bytes]:
    files = {
        name: path
        for name, path in folder_files(checkpoint).items()
        if not any(fnmatch(name, pattern) for pattern in TRAINER_FILES)
    }
    if not any(name.endswith(".safetensors") for name in files):
        raise ValueError(f"{checkpoint} has no weights in a .safetensors file: save the model with save_pretrained")
    config = _read_config(checkpoint)
    carried = _carried_code(checkpoint, config)
    model_class = _package_class(checkpoint, config)
    if model_class is None:
        _check_foreign_code(checkpoint, config["model_type"], carried, files)
    known = {name for name in files if any(fnmatch(name, pattern) for pattern in CHECKPOINT_FILES)}
    known -= {name for name in known if "/" in name and name != EVAL_RESULTS}
    if stray := sorted(files.keys() - carried - known):
        raise ValueError(f"{checkpoint} has files that are no part of a checkpoint; remove them: {', '.join(stray)}")
    if results is not None:
        files["results.json"] = Path(results)

    if model_class is not None:
        code, references = model_code(model_class)
        files = {name: content for name, content in files.items() if name not in carried}
        files |= {name: text.encode() for name, text in code.items()}
        files["config.json"] = refer_to(references, files["config.json"].read_text(encoding="utf-8")).encode()
        model = _check_model(checkpoint, model_class)
        if "results.json" in files:
            card, entries = _card_of_results(repository, model, files["results.json"])
            files["README.md"] = str(card).encode()
            files.pop(EVAL_RESULTS, None)
            if entries:
                files[EVAL_RESULTS] = yaml.safe_dump(eval_result_entries_to_yaml(entries), sort_keys=False).encode()
            return files
    if "README.md" in files and not read_card(ModelCard, checkpoint / "README.md").data.license:
        raise ValueError(f"the metadata of {checkpoint / 'README.md'} name no license")
    return files


def folder_files(folder: str | os.PathLike) -> dict[str, Path | bytes]:
    """The files of a folder, by their path in it.

    Raises:
        FileNotFoundError: if there is no such folder.
        ValueError: if there is a symbolic link in it, which may lead to a file that nobody meant to share.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    paths = {path.relative_to(folder): path for path in sorted(folder.rglob("*"))}
    shared = {path.as_posix(): full for path, full in paths.items() if not set(path.parts) & set(NEVER_SHARED)}
    if links := [name for name, path in shared.items() if path.is_symlink()]:
        raise ValueError(
            f"{folder} has symbolic links, whose content would be shared: {', '.join(links)}; put files in their "
            f"place, for instance with `cp -rL {folder} COPY`"
        )
    return {name: path for name, path in shared.items() if path.is_file()}


def read_card(card_class: type, path: Path):
    """A card with its metadata.

    Raises:
        ValueError: if its metadata cannot be read.
    """
    try:
        return card_class.load(path)
    except Exception as error:  # of the YAML parser, or of what checks the metadata
        raise ValueError(f"the metadata at the head of {path} are not valid: {error}") from error


def _read_config(checkpoint: Path) -> dict:
    path = checkpoint / "config.json"
    if not path.is_file():
        raise FileNotFoundError(f"{checkpoint} is no checkpoint folder: it has no config.json")
    try:
        return {"model_type": None} | json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, TypeError) as error:  # of JSON or UTF-8, or JSON of something else
        raise ValueError(f"{path} is no configuration: {error}") from error


def _carried_code(checkpoint: Path, config: dict) -> set[str]:
    """The names of the modules that the configuration refers to, and of those that these import, there or not."""
    references = [*config.get("auto_map", {}).values()]
    references += [pipeline["impl"] for pipeline in config.get("custom_pipelines", {}).values()]
    names, waiting = set(), [f"{reference.partition('.')[0]}.py" for reference in references]
    while waiting:
        name = waiting.pop()
        if name not in names and (checkpoint / name).is_file():
            waiting += [f"{module}.py" for module in get_relative_imports(checkpoint / name)]
        names.add(name)
    return names


def _package_class(checkpoint: Path, config: dict) -> type[PreTrainedModel] | None:
    """The class of a checkpoint's model; `None` if this package has not its type of model."""
    model_type = config["model_type"]
    if model_type not in CONFIG_MAPPING or not CONFIG_MAPPING[model_type].__module__.startswith("onlstm_hf."):
        return None
    module = import_module(CONFIG_MAPPING[model_type].__module__.replace("configuration_", "modeling_"))
    classes = {name: cls for name, cls in vars(module).items() if getattr(cls, "auto_class_name", None)}
    for architecture in config.get("architectures") or ():
        if architecture in classes:
            return classes[architecture]
    raise ValueError(
        f"{checkpoint / 'config.json'} must name one of {', '.join(classes)} in architectures: save the model again"
    )


def _check_foreign_code(checkpoint: Path, model_type: str | None, carried: set[str], files: dict) -> None:
    """Raises `ValueError` if a model whose type this package has not does not carry its code."""
    if not carried:
        raise ValueError(
            f'{checkpoint} is of type "{model_type}", which this package has not, and carries no code: save the model '
            "where its class is imported from a Python file"
        )
    if missing := sorted(carried - files.keys()):
        raise ValueError(f"{checkpoint} lacks code that it refers to: {', '.join(missing)}; save the model again")


def _check_model(checkpoint: Path, model_class: type[PreTrainedModel]) -> PreTrainedModel:
    """The model, once it has loaded and done what models of its kind are for."""
    auto_class = getattr(transformers, model_class.auto_class_name)
    model, tokenizer = load_checkpoint(str(checkpoint), auto_class=auto_class)
    if auto_class is AutoModelForSequenceClassification:
        _check_classifies(checkpoint, model, tokenizer)
    elif model.induces_trees:
        ids = tokenizer.get_vocab()
        words = [token for token in sorted(ids, key=ids.get) if token not in tokenizer.all_special_tokens]
        model.parse(" ".join(words[:10]), tokenizer)
    return model


def _check_classifies(checkpoint: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises `ValueError` if `pipeline("text-classification")` could not classify a text, or what the model takes."""
    if model.takes_pairs and "token_type_ids" not in tokenizer.model_input_names:
        raise ValueError(
            f"the tokenizer of {checkpoint} does not tell the two texts of a pair apart: save one in its place that "
            "does (build_word_tokenizer with token_type_ids=True)"
        )
    with torch.no_grad():
        logits = model(
            **tokenizer(*(PAIR if model.takes_pairs else PAIR[:1]), return_tensors="pt").to(model.device)
        ).logits
    if not logits.isfinite().all():
        raise ValueError(f"the scores that {checkpoint} gives a text contain NaN or infinity")


def _card_of_results(repository: str, model: PreTrainedModel, path: Path) -> tuple[ModelCard, list[EvalResultEntry]]:
    """The card, and the scores that the Hub shows, from a file of results.

    Raises:
        FileNotFoundError, ValueError: if there is no such file, or it has not what the card of this model states.
    """
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # of JSON, or of UTF-8
        raise ValueError(f"the results {path} are no JSON: {error}") from error
    is_logic = results.get("task") == LOGIC
    try:
        card = (logic_card if is_logic else model_card)(repository, model.config, results)
        entries = [] if is_logic else eval_result_entries(results)
    except ValueError as error:
        raise ValueError(f"no card can be written from the results {path}: {error}") from error
    if results["parameters"] != model.num_parameters():
        raise ValueError(
            f"the results {path} are those of another model: it had {results['parameters']:,} parameters, this one "
            f"has {model.num_parameters():,}"
        )
    return card, entries
