"""A Hugging Face hub in memory: the calls by which huggingface_hub finds and downloads a model, and how they fail."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_a_token_of_the_tests"
Answer = Callable[[BaseHTTPRequestHandler], None]
LARGE = ".safetensors", ".bin", ".pdparams"  # kept in Git LFS, whose checksums are SHA-256


@dataclass
class Repository:
    """`commits`: the files by commit. `refs`: branches and tags. `gated`: files want TOKEN. `cut`: downloads of large
    files break off half-way. `answers`: what a hostile hub does with a request whose path holds a pattern."""

    commits: dict[str, Mapping[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    gated: bool = False
    cut: bool = False
    answers: Mapping[str, Answer] = field(default_factory=dict)

    def commit(self, files: Mapping[str, bytes], ref: str = "main") -> str:
        """A new commit of `files`, which the branch `ref` is at from now on."""
        commit = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        self.commits[commit], self.refs[ref] = files, commit
        return commit


class Hub:
    """`repositories` by name; `asked`: METHOD and path of every request."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.asked: list[str] = []
        self.endpoint = ""

    def add(self, name: str, files: Mapping[str, bytes], **flags: Any) -> Repository:
        """A new repository with one commit."""
        repository = self.repositories[name] = Repository(**flags)
        repository.commit(files)
        return repository


def says(content: bytes, status: int = 200, **headers: str) -> Answer:
    """An answer of a hostile hub: whatever is asked gets `content`; `headers` have _ for -."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {"Content_Length": str(len(content)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        if handler.command == "GET":
            handler.wfile.write(content)
        handler.close_connection = True

    return answer


def files_of(folder: Path) -> dict[str, bytes]:
    """The files of a folder, by their paths in it."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@contextmanager
def hugging_face_server() -> Iterator[Hub]:
    """A hub on a free port of this machine. Ends with the context."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.answer()

        def do_GET(self) -> None:
            self.answer()

        def answer(self) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.asked.append(f"{self.command} {path}")
            parts = path.strip("/").split("/")
            is_api = parts[:2] == ["api", "models"]
            parts = parts[2:] if is_api else parts
            repository = hub.repositories.get("/".join(parts[:2]))
            if repository is None:
                return self.refuse(401, "RepoNotFound")  # the hub does not tell whether there is a private one
            if hostile := next((each for part, each in repository.answers.items() if re.search(part, path)), None):
                return hostile(self)
            what, revision = parts[2:4] if len(parts) > 3 else ("revision", "main")
            commit = repository.refs.get(revision, revision)
            files = repository.commits.get(commit)
            if files is None:
                return self.refuse(404, "RevisionNotFound")
            if is_api:
                return self.send(self.described(commit, files, what))
            if repository.gated and self.headers.get("Authorization") != f"Bearer {TOKEN}":
                return self.refuse(401, "GatedRepo")
            name = "/".join(parts[4:])
            if name not in files:
                return self.refuse(404, "EntryNotFound")
            content = files[name]
            headers = {"X-Repo-Commit": commit, "ETag": f'"{git_sum(content)}"', "Accept-Ranges": "bytes"}
            if name.endswith(LARGE):
                linked = hashlib.sha256(content).hexdigest()
                headers |= {"X-Linked-Etag": f'"{linked}"', "X-Linked-Size": str(len(content))}
            self.send(content, headers, cut=repository.cut and name.endswith(LARGE))

        def described(self, commit: str, files: Mapping[str, bytes], what: str) -> bytes:
            if what == "tree":
                entries = [
                    {"type": "file", "path": name, "size": len(content), "oid": git_sum(content)}
                    | (
                        {"lfs": {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 1}}
                        if name.endswith(LARGE)
                        else {}
                    )
                    for name, content in files.items()
                ]
                return json.dumps(entries).encode()
            siblings = [{"rfilename": name} for name in files]
            return json.dumps({"id": "a/b", "modelId": "a/b", "sha": commit, "siblings": siblings}).encode()

        def send(self, content: bytes, headers: Mapping[str, str] | None = None, cut: bool = False) -> None:
            begin = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
            self.send_response(206 if begin else 200)
            for name, value in (headers or {"Content-Type": "application/json"}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content) - begin))
            if begin:
                self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content[begin : len(content) // 2] if cut else content[begin:])
            self.close_connection = self.close_connection or cut

        def refuse(self, status: int, code: str) -> None:
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.send_header("X-Error-Message", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


def git_sum(content: bytes) -> str:
    """Git's name for a file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
