"""Upload of checkpoints and datasets to the Hugging Face Hub: checks, then a single commit."""

import re
from fnmatch import fnmatch
from pathlib import Path

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, DatasetCard, HfApi

from .export import check_license, folder_files, repository_files

DATASET_FILES = ("*.parquet", "*.jsonl", "README.md", "LICENSE")


def push_model(
    folder: str | Path,
    repository: str,
    private: bool = False,
    revision: str | None = None,
    token: str | None = None,
    results: str | Path | None = None,
) -> str:
    """Checks a checkpoint folder, and makes a model repository with exactly the files of `export_checkpoint`.

    Args:
        folder: see `export_checkpoint`.
        repository: `user/name`; created if it does not exist.
        private: whether the repository must be private.
        revision: branch to commit to, by default `main`; created if it does not exist.
        token: token with write access; by default from `hf auth login` or `HF_TOKEN`.
        results: results file for the card, which is uploaded too; by default `results.json` of the folder. Without
            results the folder's `README.md` is the card.

    Returns:
        The URL of the commit.

    Raises:
        FileNotFoundError, ValueError: if the folder cannot be shared.
        OSError: if the upload fails. The repository is unchanged, unless only the response was lost; a repository that
            this call created is empty. Pushing again is safe: nothing is committed twice.
    """
    _check_name(repository)
    files = repository_files(Path(folder), repository, results)
    if "README.md" not in files:
        raise FileNotFoundError(
            f"{folder} has no card: it has neither results.json of a model of this package (from training/release.py) "
            "nor a README.md; name the results of its training, or write a README.md that describes the training data"
        )
    return _push(files, repository, private, revision, token)


def push_dataset(
    folder: str | Path, repository: str, private: bool = False, revision: str | None = None, token: str | None = None
) -> str:
    """Makes a dataset repository from data files and a card, as written by `training/write_data.py`.

    Args:
        folder: `.parquet` or `.jsonl` files, and a `README.md` with a license in its metadata.
        repository, private, revision, token: see `push_model`, also for the result and the errors.
    """
    _check_name(repository)
    files = folder_files(folder)
    if unrelated := sorted(name for name in files if not any(fnmatch(name, pattern) for pattern in DATASET_FILES)):
        raise ValueError(f"{folder} has files that are no part of a dataset; remove them: {', '.join(unrelated)}")
    if "README.md" not in files:
        raise FileNotFoundError(f"{folder} has no README.md: write a card that states the source of the data")
    check_license(DatasetCard, files["README.md"])
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
    """Adds the files and deletes all others in one commit, and returns its URL.

    (`HfApi.upload_folder` may make several commits, so that a failure would leave a mixture of versions.)
    """
    api = HfApi(token=token)
    repo = {"repo_id": repository, "repo_type": repo_type}
    try:
        api.create_repo(**repo, private=private or None, exist_ok=True)
        if private and not api.repo_info(**repo).private:
            raise ValueError(f"{repository} is public: make it private in its settings, or omit --private")
        if revision is not None:
            api.create_branch(**repo, branch=revision, exist_ok=True)
        before = api.repo_info(**repo, revision=revision)
        removed = {file.rfilename for file in before.siblings} - files.keys() - {".gitattributes"}
        commit = api.create_commit(
            **repo,
            operations=[
                *(CommitOperationAdd(name, content) for name, content in files.items()),
                *map(CommitOperationDelete, sorted(removed)),
            ],
            commit_message="Upload with onlstm-hf",
            revision=revision,
            parent_commit=before.sha,  # prevents concurrent pushes from mixing
        )
    except ValueError:
        raise
    except Exception as error:  # from several libraries
        reason = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error
        reason = str(reason).rstrip(".")
        raise OSError(f"the upload to {repository} did not succeed: {reason}. Push again, which is safe") from error
    return commit.commit_url
