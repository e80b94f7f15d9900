"""Export of checkpoints as for the Hub: checked, with the code of the model and a card."""

import json
import os
import shutil
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path

import torch
import yaml
from huggingface_hub import EvalResultEntry, ModelCard, eval_result_entries_to_yaml
from transformers import CONFIG_MAPPING, PreTrainedConfig, PreTrainedModel
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
)
# Files and folders of Git, the Hub and Python, the checksums by which a training run checks its checkpoints, and what
# Trainer saves with the model: its arguments, state, logs and checkpoints.
NEVER_SHARED = (
    ".git",
    ".gitattributes",
    ".gitignore",
    ".cache",
    "__pycache__",
    "SHA256SUMS",
    "training_args.bin",
    "trainer_state.json",
    "optimizer.pt",
    "optimizer.bin",
    "scheduler.pt",
    "scaler.pt",
    "rng_state*.pth",
    "*_results.json",
    "runs",
    "checkpoint-*",
)
# Input of the checks. The brackets form binary trees, which a Tree-LSTM needs.
PAIR = ("( a ( and b ) )", "( not a )")


def export_checkpoint(checkpoint: str | os.PathLike, folder: str | os.PathLike) -> str:
    """Writes a checkpoint as its repository on the Hub would be, so that it loads without this package.

    Weights and tokenizer are copied unchanged, without the files that Trainer saves with them. The current code of
    this package replaces older code in the checkpoint. A model type from elsewhere keeps its code, which is not run.
    The card is written from `results.json`; without results it is the checkpoint's `README.md`.

    Args:
        checkpoint: a folder from `save_pretrained`, `Trainer`, `onlstm-hf convert` or `training/release.py`.
        folder: a new folder, which is written atomically.

    Returns:
        A summary in one line.

    Raises:
        FileExistsError: if the folder exists.
        OSError, ValueError: if the checkpoint cannot be shared; the message says how to fix it.
    """
    source, target = Path(checkpoint), Path(folder)
    if target.exists():
        raise FileExistsError(f"{target} exists; name a new folder")
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
    """Returns the files of a checkpoint's repository by name, each as its source or its content.

    The card loads the model by the name `repository`. It is written from `results`, by default the checkpoint's
    `results.json`. For errors see `export_checkpoint`.
    """
    files = folder_files(checkpoint)
    if "config.json" not in files:
        raise FileNotFoundError(f"{checkpoint} is no checkpoint folder: it has no config.json")
    if not any(name.endswith(".safetensors") for name in files):
        raise ValueError(f"{checkpoint} has no weights in a .safetensors file: save the model with save_pretrained")
    config, _ = PreTrainedConfig.get_config_dict(checkpoint)
    code_files = _code_files(checkpoint, config)
    model_class = _package_class(checkpoint, config)
    if model_class is None and not code_files:
        raise ValueError(
            f'{checkpoint} is of type "{config.get("model_type")}", which is not in this package, and carries no '
            "code: define its class in a Python file that is imported, and save the model again"
        )
    if model_class is None and (missing := sorted(code_files - files.keys())):
        raise ValueError(f"{checkpoint} lacks code that it refers to: {', '.join(missing)}; save the model again")
    top_level = {name for name in files if "/" not in name}
    allowed = {name for name in top_level if any(fnmatch(name, pattern) for pattern in CHECKPOINT_FILES)}
    if unrelated := sorted(files.keys() - code_files - allowed - {EVAL_RESULTS}):
        names = ", ".join(unrelated)
        raise ValueError(f"{checkpoint} has files that are no part of a checkpoint; remove them: {names}")
    if results is not None:
        files["results.json"] = Path(results)

    if model_class is not None:
        code, entries = model_code(model_class)
        files = {name: content for name, content in files.items() if name not in code_files} | code
        files["config.json"] = refer_to(entries, checkpoint / "config.json").encode()
        model = _check_model(checkpoint, model_class)
        if "results.json" in files:
            card, scores = _card_of_results(repository, model, files["results.json"])
            files["README.md"] = str(card).encode()
            files.pop(EVAL_RESULTS, None)
            if scores:
                files[EVAL_RESULTS] = yaml.safe_dump(eval_result_entries_to_yaml(scores), sort_keys=False).encode()
            return files
    if "README.md" in files:
        check_license(ModelCard, checkpoint / "README.md")
    return files


def folder_files(folder: str | os.PathLike) -> dict[str, Path | bytes]:
    """Returns the files of a folder by their relative paths, without those of `NEVER_SHARED`."""
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    shared = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if not any(fnmatch(part, pattern) for part in name.parts for pattern in NEVER_SHARED):
            shared[name.as_posix()] = path
    if links := [name for name, path in shared.items() if path.is_symlink()]:  # may lead to private files
        raise ValueError(f"{folder} has symbolic links: {', '.join(links)}; share a copy by `cp -rL {folder} COPY`")
    return {name: path for name, path in shared.items() if path.is_file()}


def check_license(card_class: type, path: Path) -> None:
    """Raises a `ValueError` if the metadata of a card are invalid or name no license."""
    try:
        has_license = bool(card_class.load(path).data.get("license"))
    except Exception as error:  # from the YAML parser or the validation
        raise ValueError(f"the metadata at the top of {path} are not valid: {error}") from error
    if not has_license:
        raise ValueError(f"the metadata of {path} name no license")


def _code_files(checkpoint: Path, config: dict) -> set[str]:
    """Returns the files of the modules in the configuration and of their relative imports, also of missing ones."""
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
    """Returns the class of a checkpoint's model; `None` if its type is not from this package."""
    model_type = config.get("model_type")
    if model_type not in CONFIG_MAPPING or not CONFIG_MAPPING[model_type].__module__.startswith("onlstm_hf."):
        return None
    module = import_module(CONFIG_MAPPING[model_type].__module__.replace("configuration_", "modeling_"))
    architecture = (config.get("architectures") or ["nothing"])[0]
    if not hasattr(module, architecture):
        raise ValueError(f"{checkpoint / 'config.json'} names {architecture} in architectures: save the model again")
    return getattr(module, architecture)


def _check_model(checkpoint: Path, model_class: type[PreTrainedModel]) -> PreTrainedModel:
    """Loads the model, and tests that it parses or classifies."""
    model, tokenizer = load_checkpoint(str(checkpoint), auto_class=model_class)
    if model.auto_class_name == "AutoModelForSequenceClassification":
        if model.takes_pairs and "token_type_ids" not in tokenizer.model_input_names:
            hint = "build it by build_word_tokenizer with token_type_ids=True"
            raise ValueError(f"the tokenizer of {checkpoint} does not tell the two texts of a pair apart: {hint}")
        texts = PAIR if model.takes_pairs else PAIR[:1]
        with torch.no_grad():
            model(**tokenizer(*texts, return_tensors="pt").to(model.device))
    elif model.induces_trees:
        model.parse(PAIR[0], tokenizer)
    return model


def _card_of_results(repository: str, model: PreTrainedModel, path: Path) -> tuple[ModelCard, list[EvalResultEntry]]:
    """Builds the card, and the scores for the Hub, from a results file."""
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
        is_logic = results.get("task") == LOGIC
        card = (logic_card if is_logic else model_card)(repository, model.config, results)
        scores = [] if is_logic else eval_result_entries(results)
    except ValueError as error:
        raise ValueError(f"no card can be written from the results {path}: {error}") from error
    if results["parameters"] != model.num_parameters():
        sizes = f"{results['parameters']:,} parameters, and this one {model.num_parameters():,}"
        raise ValueError(f"the results {path} are of another model, which has {sizes}")
    return card, scores
