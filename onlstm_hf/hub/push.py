"""Checkpoints and metrics shared on the Hugging Face Hub: checked first, then uploaded as one commit."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

import torch
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, ModelCard, SpaceCard
from huggingface_hub.hf_api import RepoFile
from transformers import AutoModelForSequenceClassification, PreTrainedModel, PreTrainedTokenizerBase
from transformers.dynamic_module_utils import get_relative_import_files

from ..utils.checkpoints import load_checkpoint
from ..utils.download_check import hub_checksum
from .cards.language_model import model_card
from .cards.logic import LOGIC, logic_card

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
# What Git, the Hub and Python put into folders on their own.
NEVER_UPLOADED = (".git", ".gitattributes", ".gitignore", ".cache", "__pycache__")
SENTENCE = "the company said it expects to report a loss"
# In brackets that make binary trees, which some models of pairs need.
PAIR = ("( a ( and b ) )", "( not a )")


def push_model(
    folder: str | Path,
    repository: str,
    private: bool = False,
    revision: str | None = None,
    token: str | None = None,
    results: str | Path | None = None,
) -> str:
    """Checks a checkpoint folder and makes a model repository that has its files, its card and nothing else.

    Args:
        folder: a checkpoint that `save_pretrained`, `onlstm-hf convert` or `training/release.py` wrote: a language
            model, or a classifier of sequence pairs.
        repository: `user/name`; it is created if it does not exist.
        private: whether only its owner can see it.
        revision: the branch to commit to, `main` by default; it is created if it does not exist.
        token: with write access; by default that of `hf auth login` or `HF_TOKEN`.
        results: the file of results that the card is written from, and that is shared with it; by default
            `results.json` of the folder, or else the folder's own `README.md` is the card.

    Returns:
        The address of the commit.

    Raises:
        FileNotFoundError, ValueError: if the folder is not fit to be shared. The message says what to mend.
        OSError: if the upload fails. The repository then is as it was; one that this call created is empty. Where the
            connection broke so that it is not known whether the commit was made, the message says so, and pushing
            again is safe: nothing is committed twice.
    """
    folder = Path(folder)
    _check_repository(repository)
    files = _files(folder)
    if results is not None:
        files["results.json"] = Path(results)
    _check_checkpoint_files(folder, files)
    model = _check_model(folder)

    card = None
    if "results.json" in files:
        card = _card_of_results(repository, model, files["results.json"])
    elif (folder / "README.md").is_file():
        card = _read_card(ModelCard, folder / "README.md")
    if card is None:
        raise FileNotFoundError(
            f"{folder} has neither results.json, which training/release.py writes and the card is made from, nor a "
            "README.md: name the results of its training, or write one that says what the model was trained on"
        )
    if not card.data.license:
        raise ValueError(f"the metadata of {folder / 'README.md'} name no license")
    files["README.md"] = str(card).encode()
    return _push(files, repository, "model", private, revision, token)


def push_metric(
    folder: str | Path,
    repository: str,
    private: bool = False,
    revision: str | None = None,
    token: str | None = None,
) -> str:
    """Makes a Space of a metric folder, where `evaluate.load(repository)` finds it.

    The arguments, the result and the errors are those of `push_model`.
    """
    folder = Path(folder)
    _check_repository(repository)
    files = _files(folder)
    module = f"{repository.partition('/')[2]}.py"
    expected = {"README.md", "app.py", "requirements.txt", module}
    if missing := sorted(expected - files.keys()):
        raise FileNotFoundError(
            f"{folder} lacks {', '.join(missing)}: a metric has a card, a page, requirements, and a module that is "
            "named as the Space"
        )
    if stray := sorted(files.keys() - expected):
        raise ValueError(f"{folder} has files that are no part of a metric; remove them: {', '.join(stray)}")
    card = _read_card(SpaceCard, folder / "README.md")
    if not card.data.sdk:
        raise ValueError(f"the metadata of {folder / 'README.md'} name no sdk, which a Space needs (gradio)")
    return _push(files, repository, "space", private, revision, token, space_sdk=card.data.sdk)


def _check_repository(repository: str) -> None:
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        raise ValueError(f"the repository must be named as user/name, not {repository!r}")


def _files(folder: Path) -> dict[str, Path | bytes]:
    """The files of a folder, by their path in it."""
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    paths = {path.relative_to(folder): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {
        path.as_posix(): full_path for path, full_path in paths.items() if not set(path.parts) & set(NEVER_UPLOADED)
    }


def _check_checkpoint_files(folder: Path, files: dict[str, Path | bytes]) -> None:
    """Raises `ValueError` for files that are missing or do not belong to a checkpoint."""
    if not any(name.endswith(".safetensors") for name in files):
        raise ValueError(f"{folder} has no weights in a .safetensors file: save the model with save_pretrained")
    carried = _carried_code(folder)
    if missing := sorted(carried - files.keys()):
        raise ValueError(f"{folder} lacks code that it refers to: {', '.join(missing)}; save the model again")
    known = [name for name in files if any(fnmatch(name, pattern) for pattern in CHECKPOINT_FILES) and "/" not in name]
    if stray := sorted(files.keys() - carried - set(known)):
        raise ValueError(f"{folder} has files that are no part of a checkpoint; remove them: {', '.join(stray)}")


def _check_model(folder: Path) -> PreTrainedModel:
    """The model, once it has loaded and done what models of its kind are for."""
    if "AutoModelForSequenceClassification" not in _configuration(folder).get("auto_map", {}):
        model, tokenizer = load_checkpoint(str(folder))
        if model.induces_trees:
            model.parse(SENTENCE, tokenizer)
        return model
    model, tokenizer = load_checkpoint(str(folder), auto_class=AutoModelForSequenceClassification)
    _check_classifies(folder, model, tokenizer)
    return model


def _check_classifies(folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises `ValueError` if `pipeline("text-classification")` could not classify a pair."""
    if "token_type_ids" not in tokenizer.model_input_names:
        raise ValueError(
            f"the tokenizer of {folder} does not tell the two texts of a pair apart: save one in its place that does "
            "(build_word_tokenizer with token_type_ids=True)"
        )
    with torch.no_grad():
        logits = model(**tokenizer(*PAIR, return_tensors="pt").to(model.device)).logits
    if not logits.isfinite().all():
        raise ValueError(f"the scores that {folder} gives a pair of texts contain NaN or infinity")


def _card_of_results(repository: str, model: PreTrainedModel, path: Path) -> ModelCard:
    """The card, written from a file of results.

    Raises:
        FileNotFoundError, ValueError: if there is no such file, or it has not what the card of this model states.
    """
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # of JSON, or of UTF-8
        raise ValueError(f"the results {path} are no JSON: {error}") from error
    write = logic_card if results.get("task") == LOGIC else model_card
    card = write(repository, model.config, results)
    if results["parameters"] != model.num_parameters():
        raise ValueError(
            f"the results {path} are those of another model: it had {results['parameters']:,} parameters, this one "
            f"has {model.num_parameters():,}"
        )
    return card


def _configuration(folder: Path) -> dict:
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


def _carried_code(folder: Path) -> set[str]:
    """The names of the modules that the configuration refers to, and of those that they import."""
    config = _configuration(folder)
    references = [*config.get("auto_map", {}).values()]
    references += [pipeline["impl"] for pipeline in config.get("custom_pipelines", {}).values()]
    if not references:
        raise ValueError(
            f"{folder} does not carry its code, so that it loads only where onlstm_hf is installed: load it with "
            "onlstm_hf imported and save it again"
        )
    names = {f"{reference.partition('.')[0]}.py" for reference in references}
    imported = [
        Path(path).name
        for name in names
        if (folder / name).is_file()
        for path in get_relative_import_files(folder / name)
    ]
    return names | set(imported)


def _read_card(card_class: type, path: Path):
    """The card with its metadata.

    Raises:
        ValueError: if its metadata cannot be read.
    """
    try:
        return card_class.load(path)
    except Exception as error:  # of the YAML parser, or of what checks the metadata
        raise ValueError(f"the metadata at the head of {path} are not valid: {error}") from error


def _push(
    files: dict[str, Path | bytes],
    repository: str,
    repo_type: str,
    private: bool,
    revision: str | None,
    token: str | None,
    **options,
) -> str:
    """Commits the files to the repository and removes others from it, in one commit; returns its address."""
    api = HfApi(token=token)
    place = {"repo_id": repository, "repo_type": repo_type}
    with _reported_failure(repository):
        api.whoami()
        url = api.create_repo(**place, private=private or None, exist_ok=True, **options)
        if private and not api.repo_info(**place).private:
            raise ValueError(
                f"{repository} exists and is public: make it private in its settings, or leave out --private"
            )
        if revision is not None:
            api.create_branch(**place, branch=revision, exist_ok=True)
        before = api.repo_info(**place, revision=revision)
        kept = {*files, ".gitattributes"}
        removed = [file.rfilename for file in before.siblings if file.rfilename not in kept]
        try:
            commit = api.create_commit(
                **place,
                operations=[
                    *(CommitOperationAdd(name, content) for name, content in files.items()),
                    *(CommitOperationDelete(name) for name in removed),
                ],
                commit_message="Upload with onlstm-hf",
                revision=revision,
                parent_commit=before.sha,  # so that two who push at once do not get a mixture
            )
        except Exception as error:  # which may be that only the answer was lost
            try:
                newest = api.repo_info(**place, revision=revision).sha
                is_made = newest != before.sha and _has_exactly(api, place, newest, files)
            except Exception:
                raise OSError(
                    f"{error}; whether the commit was made could not be asked either. Push again: what is there "
                    "already is not committed twice"
                ) from error
            if not is_made:
                raise
            return f"{url}/commit/{newest}"
    return commit.commit_url


def _has_exactly(api: HfApi, place: dict[str, str], commit: str, files: dict[str, Path | bytes]) -> bool:
    """Whether these are the files of the repository at this commit."""
    tree = api.list_repo_tree(**place, revision=commit, recursive=True)
    found = {file.path: file for file in tree if isinstance(file, RepoFile) and file.path != ".gitattributes"}
    return found.keys() == files.keys() and all(
        hub_checksum(content, file.lfs is not None) == (file.lfs.sha256 if file.lfs else file.blob_id)
        for content, file in ((files[name], file) for name, file in found.items())
    )


@contextmanager
def _reported_failure(repository: str) -> Iterator[None]:
    """Turns what a transfer raises, in exceptions of several libraries, into an `OSError` that says what it means."""
    try:
        yield
    except ValueError:
        raise
    except Exception as error:
        reason = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error
        raise OSError(f"the upload to {repository} did not succeed: {reason}") from error
