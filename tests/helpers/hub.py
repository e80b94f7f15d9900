"""In-memory Hub with the methods of `HfApi` that a push calls."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from unittest import mock

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi


@dataclass
class Repository:
    """Commits of each branch, the latest last; a commit is a dictionary of files by path."""

    private: bool
    branches: dict[str, list[dict[str, bytes]]] = field(default_factory=lambda: {"main": [{".gitattributes": b""}]})


class Hub:
    """Repositories by type and name.

    Attributes:
        faults: for methods of `HfApi`, by name, an error to raise or a function to call first.
        token: token of the latest client.
    """

    def __init__(self):
        self.repositories: dict[tuple[str, str], Repository] = {}
        self.faults: dict[str, Exception | Callable] = {}
        self.token: str | None = None

    def client(self, token: str | None = None) -> HfApi:
        """Stand-in for `HfApi`, which refuses arguments that the real methods do not have."""
        self.token = token
        api = mock.create_autospec(HfApi, instance=True)
        for name in ("create_repo", "repo_info", "create_branch", "create_commit"):
            getattr(api, name).side_effect = partial(self._call, name)
        return api

    def files(self, name: str, repo_type: str = "model", revision: str = "main") -> dict[str, bytes]:
        """Returns the files of a repository by path."""
        files = self.repositories[repo_type, name].branches[revision][-1]
        return {path: content for path, content in files.items() if path != ".gitattributes"}

    def _call(self, name: str, repo_id: str, repo_type: str, **options):
        fault = self.faults.get(name)
        if isinstance(fault, Exception):
            raise fault
        if fault is not None:
            fault()
        if name == "create_repo":
            return self.repositories.setdefault((repo_type, repo_id), Repository(bool(options["private"])))
        return getattr(self, f"_{name}")(self.repositories[repo_type, repo_id], **options)

    def _repo_info(self, repository: Repository, revision: str | None = None) -> SimpleNamespace:
        commits = repository.branches[revision or "main"]
        siblings = [SimpleNamespace(rfilename=path) for path in commits[-1]]
        return SimpleNamespace(private=repository.private, sha=str(len(commits)), siblings=siblings)

    def _create_branch(self, repository: Repository, branch: str, exist_ok: bool) -> None:
        repository.branches.setdefault(branch, list(repository.branches["main"]))

    def _create_commit(
        self, repository: Repository, operations: list, commit_message: str, revision: str | None, parent_commit: str
    ) -> SimpleNamespace:
        commits = repository.branches[revision or "main"]
        if parent_commit != str(len(commits)):
            raise OSError("412 A commit has happened since")
        files = dict(commits[-1])
        for operation in operations:
            if isinstance(operation, CommitOperationDelete):
                del files[operation.path_in_repo]
            elif isinstance(operation, CommitOperationAdd):
                with operation.as_file() as file:
                    files[operation.path_in_repo] = file.read()
        commits.append(files)
        return SimpleNamespace(commit_url=f"https://hub.test/commit/{len(commits)}")
