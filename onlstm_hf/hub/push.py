"""Checkpoints and data sets shared on the Hugging Face Hub: checked first, then uploaded as one commit."""

import re
from fnmatch import fnmatch
from pathlib import Path

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, DatasetCard, HfApi

from .export import folder_files, read_card, repository_files

DATASET_FILES = ("*.parquet", "*.jsonl", "README.md", "LICENSE")


def push_model(
    folder: str | Path,
    repository: str,
    private: bool = False,
    revision: str | None = None,
    token: str | None = None,
    results: str | Path | None = None,
) -> str:
    """Checks a checkpoint folder and makes a model repository that has what `export_checkpoint` writes, nothing else.

    Args:
        folder: see `export_checkpoint`.
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
        OSError: if the upload fails. The repository is as it was, unless only the answer was lost; a repository that
            this call created is empty. Pushing again is safe: what is there already is not committed twice.
    """
    _check_name(repository)
    files = repository_files(Path(folder), repository, results)
    if "README.md" not in files:
        raise FileNotFoundError(
            f"{folder} has neither results.json of a model of this package, which training/release.py writes and the "
            "card is made from, nor a README.md: name the results of its training, or write one that says what the "
            "model was trained on"
        )
    return _push(files, repository, private, revision, token)


def push_dataset(
    folder: str | Path,
    repository: str,
    private: bool = False,
    revision: str | None = None,
    token: str | None = None,
) -> str:
    """Makes a dataset repository of a folder with data files and a card, as `training/write_data.py` writes them.

    Args:
        folder: `.parquet` or `.jsonl` files, and a `README.md` whose metadata name a license.
        repository, private, revision, token: see `push_model`.

    Returns:
        The address of the commit.

    Raises:
        FileNotFoundError, ValueError: if the folder is not fit to be shared. The message says what to mend.
        OSError: see `push_model`.
    """
    _check_name(repository)
    files = folder_files(folder)
    if stray := sorted(name for name in files if not any(fnmatch(name, pattern) for pattern in DATASET_FILES)):
        raise ValueError(f"{folder} has files that are no part of a data set; remove them: {', '.join(stray)}")
    if not any(name.endswith((".parquet", ".jsonl")) for name in files):
        raise ValueError(f"{folder} has no data: expected .parquet or .jsonl files")
    if "README.md" not in files:
        raise FileNotFoundError(f"{folder} has no README.md: write a card that says where the data come from")
    if not read_card(DatasetCard, files["README.md"]).data.get("license"):
        raise ValueError(f"the metadata of {files['README.md']} name no license")
    return _push(files, repository, private, revision, token, repo_type="dataset")


def _check_name(repository: str) -> None:
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        raise ValueError(f"the repository must be named as user/name, not {repository!r}")


def _push(
    files: dict[str, Path | bytes],
    repository: str,
    private: bool,
    revision: str | None,
    token: str | None,
    repo_type: str = "model",
) -> str:
    """Commits the files to the repository and removes others from it, in one commit; returns its address.

    (`HfApi.upload_folder` may make several commits, so that a failure would leave a mixture.)
    """
    api = HfApi(token=token)
    place = {"repo_id": repository, "repo_type": repo_type}
    try:
        api.create_repo(**place, private=private or None, exist_ok=True)
        if private and not api.repo_info(**place).private:
            raise ValueError(
                f"{repository} exists and is public: make it private in its settings, or leave out --private"
            )
        if revision is not None:
            api.create_branch(**place, branch=revision, exist_ok=True)
        before = api.repo_info(**place, revision=revision)
        removed = {file.rfilename for file in before.siblings} - files.keys() - {".gitattributes"}
        commit = api.create_commit(
            **place,
            operations=[
                *(CommitOperationAdd(name, content) for name, content in files.items()),
                *map(CommitOperationDelete, sorted(removed)),
            ],
            commit_message="Upload with onlstm-hf",
            revision=revision,
            parent_commit=before.sha,  # so that two who push at once do not get a mixture
        )
    except ValueError:
        raise
    except Exception as error:  # of several libraries
        reason = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error
        raise OSError(
            f"the upload to {repository} did not succeed: {str(reason).rstrip('.')}. Push again; what is "
            "there already is not committed twice"
        ) from error
    return commit.commit_url
