"""A Hub on the loopback interface: what the real `huggingface_hub` client needs of its HTTP API, kept in memory.

It knows models and Spaces, branches and commits, files in Git and in Git LFS, and two tokens. It is strict where the
Hub is: a commit needs LFS files that were uploaded with the right checksum and the parent that it names, and becomes
visible as a whole. `HubServer.faults` make chosen requests fail.
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

TOKENS = {"hf_writer": "write", "hf_reader": "read"}
USER = "ada"


@dataclass
class Fault:
    """A fault of the first `times` requests of this method whose path matches the pattern.

    `action` is a status to answer with, or one of "cut" (the connection ends while the request is being read), "lost"
    (it ends after the work is done, before the answer), "overtaken" (somebody else commits a file `NEWS` first).
    """

    method: str
    pattern: str
    action: int | str
    times: int = 1
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Blob:
    """A file: its content, and how it is stored."""

    content: bytes
    is_lfs: bool

    @property
    def oid(self) -> str:
        """SHA-256 of a file in LFS, Git's hash of another: what the client sees as its ETag."""
        if self.is_lfs:
            return hashlib.sha256(self.content).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(self.content) + self.content).hexdigest()


@dataclass
class Repository:
    """Its commits (files by path), and the branches that point to them."""

    private: bool
    commits: dict[str, dict[str, Blob]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)

    def commit(self, branch: str, files: dict[str, Blob]) -> str:
        listing = json.dumps([len(self.commits), *((name, blob.oid) for name, blob in sorted(files.items()))])
        oid = hashlib.sha1(listing.encode()).hexdigest()
        self.commits[oid] = files
        self.branches[branch] = oid
        return oid


@dataclass
class Answer:
    """Body and headers of a success; a body that is not bytes is sent as JSON."""

    body: bytes | dict | list = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


class HubError(Exception):
    """An answer other than success."""

    def __init__(self, status: int, message: str, code: str | None = None, commit: str | None = None, **fields: str):
        headers = {"X-Error-Message": message, "X-Error-Code": code, "X-Repo-Commit": commit}
        self.answer = Answer(
            {"error": message, **fields}, status, {name: value for name, value in headers.items() if value}
        )


class HubServer:
    """The server, in a thread of its own while the `with` block runs.

    Attributes:
        url: for `HF_ENDPOINT`.
        repositories: by type and name, `("model", "ada/name")`.
        requests: method and path of each request, in order.
        faults: what goes wrong.
    """

    def __init__(self):
        self.repositories: dict[tuple[str, str], Repository] = {}
        self.uploads: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.faults: list[Fault] = []
        self.lock = threading.RLock()
        handler = type("Handler", (_Handler,), {"hub": self})
        self.http_server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.http_server.server_port}"
        self.storage_url = (
            f"http://localhost:{self.http_server.server_port}"  # another origin, as the Hub's storage is
        )

    def __enter__(self) -> "HubServer":
        threading.Thread(target=self.http_server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exception) -> None:
        self.http_server.shutdown()
        self.http_server.server_close()

    def files(self, name: str, repo_type: str = "model", revision: str = "main") -> dict[str, bytes]:
        """Returns the files of a repository by name; empty if there is none."""
        repository = self.repositories.get((repo_type, name))
        if repository is None:
            return {}
        return {path: blob.content for path, blob in repository.commits[repository.branches[revision]].items()}

    def next_fault(self, method: str, path: str) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if fault.times > 0 and fault.method == method and re.search(fault.pattern, path):
                    fault.times -= 1
                    return fault
        return None

    # The endpoints of the API, a method each. `read` returns the request's body.

    def whoami(self, token: str | None) -> Answer:
        if token not in TOKENS:
            raise HubError(401, "Invalid credentials in Authorization header")
        return Answer(
            {
                "type": "user",
                "name": USER,
                "auth": {"type": "access_token", "accessToken": {"displayName": "test", "role": TOKENS[token]}},
            }
        )

    def validate_card(self, read: Callable[[], bytes]) -> Answer:
        content = json.loads(read())["content"]
        if not content.startswith("---\n"):
            raise HubError(400, "the card has no metadata")
        return Answer({"errors": [], "warnings": []})

    def create_repository(self, token: str | None, read: Callable[[], bytes]) -> Answer:
        request = json.loads(read())
        name = f"{request.get('organization') or USER}/{request['name']}"
        repo_type = request.get("type") or "model"
        self.require_write(token, name)
        url = f"{self.url}/{'' if repo_type == 'model' else f'{repo_type}s/'}{name}"
        with self.lock:
            if (repo_type, name) in self.repositories:
                raise HubError(409, "You already created this repository", url=url)
            is_private = request.get("private") is True or request.get("visibility") == "private"
            repository = self.repositories[repo_type, name] = Repository(is_private)
            repository.commit("main", {".gitattributes": Blob(b"*.safetensors filter=lfs\n", False)})
        return Answer({"url": url, "name": name})

    def create_branch(self, token: str | None, repo_type: str, name: str, branch: str) -> Answer:
        repository = self.find(repo_type, name, token)
        self.require_write(token, name)
        if branch in repository.branches:
            raise HubError(409, "Reference already exists")
        repository.branches[branch] = repository.branches["main"]
        return Answer({})

    def describe(self, token: str | None, repo_type: str, name: str, revision: str) -> Answer:
        repository = self.find(repo_type, name, token)
        oid, files = self.snapshot(repository, revision)
        siblings = [{"rfilename": path} for path in sorted(files)]
        return Answer({"id": name, "sha": oid, "private": repository.private, "siblings": siblings, "tags": []})

    def refs(self, token: str | None, repo_type: str, name: str) -> Answer:
        branches = [
            {"name": branch, "ref": f"refs/heads/{branch}", "targetCommit": oid}
            for branch, oid in self.find(repo_type, name, token).branches.items()
        ]
        return Answer({"branches": branches, "tags": [], "converts": []})

    def tree(self, token: str | None, repo_type: str, name: str, revision: str) -> Answer:
        _, files = self.snapshot(self.find(repo_type, name, token), revision)
        entries = []
        for path, blob in sorted(files.items()):
            entry = {"type": "file", "path": path, "size": len(blob.content), "oid": blob.oid}
            if blob.is_lfs:
                entry["lfs"] = {"oid": blob.oid, "size": len(blob.content), "pointerSize": 134}
            entries.append(entry)
        return Answer(entries)

    def preupload(
        self, token: str | None, repo_type: str, name: str, revision: str, read: Callable[[], bytes]
    ) -> Answer:
        _, files = self.snapshot(self.find(repo_type, name, token), revision)
        self.require_write(token, name)
        modes = [
            {
                "path": file["path"],
                "uploadMode": "lfs" if file["path"].endswith(".safetensors") else "regular",
                "shouldIgnore": False,
                "oid": files[file["path"]].oid if file["path"] in files else None,
            }
            for file in json.loads(read())["files"]
        ]
        return Answer({"files": modes})

    def lfs_batch(self, token: str | None, name: str, read: Callable[[], bytes]) -> Answer:
        self.require_write(token, name)
        objects = []
        for wanted in json.loads(read())["objects"]:
            answer = {"oid": wanted["oid"], "size": wanted["size"]}
            if wanted["oid"] not in self.uploads:
                answer["actions"] = {
                    "upload": {"href": f"{self.url}/lfs/upload/{wanted['oid']}"},
                    "verify": {"href": f"{self.url}/lfs/verify"},
                }
            objects.append(answer)
        return Answer({"transfer": "basic", "objects": objects})

    def lfs_upload(self, oid: str, content: bytes) -> Answer:
        if hashlib.sha256(content).hexdigest() != oid:
            raise HubError(400, "the content does not have the checksum that was announced")
        self.uploads[oid] = content
        return Answer()

    def lfs_download(self, token: str | None, oid: str) -> Answer:
        if token is not None:
            raise HubError(400, "a token was sent to the storage, which is none of its business")
        return Answer(self.uploads[oid], headers={"ETag": f'"{oid}"'})

    def lfs_verify(self, read: Callable[[], bytes]) -> Answer:
        request = json.loads(read())
        if len(self.uploads.get(request["oid"], b"")) != request["size"]:
            raise HubError(400, "the upload is not complete")
        return Answer({})

    def commit(self, token: str | None, repo_type: str, name: str, branch: str, read: Callable[[], bytes]) -> Answer:
        repository = self.find(repo_type, name, token)
        self.require_write(token, name)
        lines = [json.loads(line) for line in read().splitlines()]
        with self.lock:
            parent, files = self.snapshot(repository, branch)
            files = dict(files)
            for line in lines:
                value = line["value"]
                if line["key"] == "header" and value.get("parentCommit") not in (None, parent):
                    raise HubError(412, "A commit has happened since. Please refresh and try again.")
                if line["key"] == "file":
                    files[value["path"]] = Blob(base64.b64decode(value["content"]), False)
                if line["key"] == "lfsFile":
                    if value["oid"] not in self.uploads:
                        raise HubError(400, f"{value['path']} points to an LFS object that was not uploaded")
                    files[value["path"]] = Blob(self.uploads[value["oid"]], True)
                if line["key"] == "deletedFile":
                    del files[value["path"]]
            oid = repository.commit(branch, files)
        return Answer({"commitOid": oid, "commitUrl": f"{self.url}/{name}/commit/{oid}", "success": True})

    def commit_by_another(self, path: str) -> None:
        """Adds a file to the repository that a request is about to commit to."""
        for (_, name), repository in self.repositories.items():
            if f"/{name}/commit/" in path:
                files = repository.commits[repository.branches["main"]]
                repository.commit("main", {**files, "NEWS": Blob(b"of somebody else", False)})

    def resolve(self, token: str | None, repo_type: str, name: str, revision: str, path: str) -> Answer:
        oid, files = self.snapshot(self.find(repo_type, name, token), revision)
        if path not in files:
            raise HubError(404, "Entry not found", "EntryNotFound", commit=oid)
        blob = files[path]
        headers = {"ETag": f'"{blob.oid}"', "X-Repo-Commit": oid}
        if not blob.is_lfs:
            return Answer(blob.content, headers=headers)
        linked = {"X-Linked-Size": str(len(blob.content)), "X-Linked-ETag": f'"{blob.oid}"'}
        return Answer(
            status=302, headers={**headers, **linked, "Location": f"{self.storage_url}/lfs/download/{blob.oid}"}
        )

    def find(self, repo_type: str, name: str, token: str | None) -> Repository:
        repository = self.repositories.get((repo_type, name))
        if token is not None and token not in TOKENS:
            raise HubError(401, "Invalid credentials in Authorization header")
        if repository is None or (repository.private and token is None):
            raise HubError(401 if token is None else 404, "Repository not found", "RepoNotFound")
        return repository

    def snapshot(self, repository: Repository, revision: str) -> tuple[str, dict[str, Blob]]:
        oid = repository.branches.get(revision, revision)
        if oid not in repository.commits:
            raise HubError(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return oid, repository.commits[oid]

    def require_write(self, token: str | None, name: str) -> None:
        if token is None:
            raise HubError(401, "Unauthorized")
        if TOKENS.get(token) != "write" or not name.startswith(f"{USER}/"):
            raise HubError(403, "You don't have the rights to write here")

    def answer(self, method: str, path: str, token: str | None, read: Callable[[], bytes]) -> Answer:
        """Finds the method for a request."""
        api = r"/api/(model|space|dataset)s/([^/]+/[^/]+)"
        for pattern, work in {
            r"GET /api/whoami-v2": lambda: self.whoami(token),
            r"POST /api/validate-yaml": lambda: self.validate_card(read),
            r"POST /api/repos/create": lambda: self.create_repository(token, read),
            rf"POST {api}/branch/([^/]+)": lambda *place: self.create_branch(token, *place),
            rf"GET {api}(?:/revision/([^/]+))?": lambda repo_type, name, revision: self.describe(
                token, repo_type, name, revision or "main"
            ),
            rf"GET {api}/refs": lambda *place: self.refs(token, *place),
            rf"GET {api}/tree/([^/]+)": lambda *place: self.tree(token, *place),
            rf"POST {api}/preupload/([^/]+)": lambda *place: self.preupload(token, *place, read),
            rf"POST {api}/commit/([^/]+)": lambda *place: self.commit(token, *place, read),
            r"POST /(?:datasets/)?([^/]+/[^/]+)\.git/info/lfs/objects/batch": lambda name: self.lfs_batch(
                token, name, read
            ),
            r"PUT /lfs/upload/(\w+)": lambda oid: self.lfs_upload(oid, read()),
            r"POST /lfs/verify": lambda: self.lfs_verify(read),
            r"GET /lfs/download/(\w+)": lambda oid: self.lfs_download(token, oid),
            r"GET /(spaces/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)": lambda space, *place: self.resolve(
                token, "space" if space else "model", *place
            ),
        }.items():
            if match := re.fullmatch(pattern, f"{method} {path}"):
                return work(*(group and unquote(group) for group in match.groups()))
        raise HubError(404, f"this server does not know {method} {path}")


class _Handler(BaseHTTPRequestHandler):
    """HTTP around `HubServer.answer`, and the faults."""

    hub: HubServer
    protocol_version = "HTTP/1.1"
    # Headers and body are two packets. By Nagle's algorithm the second would wait 40 ms for the receipt of the first.
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        self.hub.requests.append((self.command, path))
        fault = self.hub.next_fault(self.command, path)
        action = fault.action if fault else None
        if action == "cut":
            self.rfile.read(min(1000, int(self.headers.get("Content-Length") or 0)))
            self.close_connection = True
            return
        body = self.read_body()
        if action == "overtaken":
            self.hub.commit_by_another(path)
        if isinstance(action, int):
            self.send(Answer({"error": "a fault on purpose"}, action, fault.headers))
            return
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None
        try:
            answer = self.hub.answer("GET" if self.command == "HEAD" else self.command, path, token, lambda: body)
        except HubError as error:
            answer = error.answer
        if action == "lost":
            self.close_connection = True
            return
        self.send(answer)

    do_HEAD = do_POST = do_PUT = do_GET

    def read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            chunks = []
            while size := int(self.rfile.readline(), 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def send(self, answer: Answer) -> None:
        body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        status, headers = answer.status, dict(answer.headers)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *arguments) -> None:
        """Keeps the requests out of the tests' output; `HubServer.requests` has them."""
