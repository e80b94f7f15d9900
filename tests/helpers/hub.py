"""A Hub in memory, behind the interface of `HfApi`: repositories with branches and commits, and two tokens."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from unittest import mock

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

TOKENS = {"hf_writer": "write", "hf_reader": "read"}
USER = "ada"


class Refused(OSError):
    """An answer other than success."""


@dataclass
class Repository:
    """Commits, each with its files by path, and the branches that point to them."""

    private: bool
    commits: list[dict[str, bytes]] = field(default_factory=lambda: [{".gitattributes": b""}])
    branches: dict[str, int] = field(default_factory=lambda: {"main": 0})

    def commit(self, branch: str, changes: dict[str, bytes | None]) -> int:
        """Adds a commit in which the given files have new contents, and those with `None` are gone."""
        files = self.commits[self.branches[branch]] | changes
        self.commits.append({name: content for name, content in files.items() if content is not None})
        self.branches[branch] = len(self.commits) - 1
        return self.branches[branch]


class Hub:
    """The repositories, by type and name.

    Attributes:
        faults: by the name of a method of `HfApi` the error that it raises, or what happens before it is carried out.
    """

    def __init__(self):
        self.repositories: dict[tuple[str, str], Repository] = {}
        self.faults: dict[str, Exception | Callable] = {}

    def client(self, token: str | None = None) -> HfApi:
        """Stands in for `HfApi`: it has its methods, and refuses arguments that these do not have."""
        api = mock.create_autospec(HfApi, instance=True)
        for name in ("whoami", "create_repo", "repo_info", "create_branch", "create_commit"):
            getattr(api, name).side_effect = self._method(name, token or "hf_writer")
        return api

    def files(self, name: str, repo_type: str = "model", revision: str = "main") -> dict[str, bytes]:
        """The files of a repository by path; none if there is no such repository."""
        repository = self.repositories.get((repo_type, name))
        if repository is None:
            return {}
        files = repository.commits[repository.branches[revision]]
        return {path: content for path, content in files.items() if path != ".gitattributes"}

    def _method(self, name: str, token: str) -> Callable:
        def call(*arguments, **options):
            fault = self.faults.get(name)
            if isinstance(fault, Exception):
                raise fault
            if fault is not None:
                fault()
            return getattr(self, f"_{name}")(token, *arguments, **options)

        return call

    def _whoami(self, token: str) -> dict:
        if token not in TOKENS:
            raise Refused("401 Invalid user token")
        return {"name": USER}

    def _create_repo(self, token: str, *, repo_id: str, repo_type: str, private: bool | None, exist_ok: bool) -> None:
        if TOKENS.get(token) != "write" or not repo_id.startswith(f"{USER}/"):
            raise Refused("403 Forbidden")
        assert exist_ok
        self.repositories.setdefault((repo_type, repo_id), Repository(bool(private)))

    def _repo_info(self, token: str, *, repo_id: str, repo_type: str, revision: str | None = None) -> SimpleNamespace:
        repository = self.repositories[repo_type, repo_id]
        commit = repository.branches[revision or "main"]
        siblings = [SimpleNamespace(rfilename=path) for path in repository.commits[commit]]
        return SimpleNamespace(private=repository.private, sha=str(commit), siblings=siblings)

    def _create_branch(self, token: str, *, repo_id: str, repo_type: str, branch: str, exist_ok: bool) -> None:
        branches = self.repositories[repo_type, repo_id].branches
        branches.setdefault(branch, branches["main"])

    def _create_commit(
        self,
        token: str,
        *,
        repo_id: str,
        repo_type: str,
        operations: list[CommitOperationAdd | CommitOperationDelete],
        commit_message: str,
        revision: str | None,
        parent_commit: str,
    ) -> SimpleNamespace:
        repository, branch = self.repositories[repo_type, repo_id], revision or "main"
        if parent_commit != str(repository.branches[branch]):
            raise Refused("412 A commit has happened since")
        changes: dict[str, bytes | None] = {}
        for operation in operations:
            if isinstance(operation, CommitOperationDelete):
                assert operation.path_in_repo in repository.commits[repository.branches[branch]]
                changes[operation.path_in_repo] = None
                continue
            with operation.as_file() as file:
                changes[operation.path_in_repo] = file.read()
        number = repository.commit(branch, changes)
        return SimpleNamespace(commit_url=f"https://hub.test/{repo_id}/commit/{number}")
