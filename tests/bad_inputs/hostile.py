"""Hostile files: each makes a file, or what is none, at a path."""

from __future__ import annotations

import gzip
import os
import pickle
import stat
from collections.abc import Callable
from pathlib import Path

NOT_UTF8 = os.fsdecode(b"n\xff")  # a name
DEEP = "[" * 100_000 + "]" * 100_000


def put(content: bytes) -> Callable[[Path], None]:
    return lambda path: _fresh(path).write_bytes(content) and None


def _fresh(path: Path) -> Path:
    if path.is_symlink() or path.exists():
        path.unlink()
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _halved(path: Path) -> None:
    content = path.read_bytes() if path.is_file() else b"a,b\n"
    put(content[: len(content) // 2])(path)


def _sparse(path: Path) -> None:
    with _fresh(path).open("wb") as stream:
        stream.truncate(3 << 30)


def device(minor: int, name: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        try:
            os.mknod(_fresh(path), stat.S_IFCHR | 0o666, os.makedev(1, minor))
        except PermissionError:  # devices are made by root alone
            os.symlink(name, path)

    return make


def _locked(path: Path) -> None:
    """A file that nobody but root can read."""
    put(b"text\tlabel\na\tpos\n")(path)
    path.chmod(0)


FILES: dict[str, Callable[[Path], None]] = {
    "missing": lambda path: _fresh(path) and None,
    "empty": put(b""),
    "cut": _halved,
    "random": put(bytes((i * 197 + i // 7) % 256 for i in range(3000))),
    "NUL": put(b"\0" * 3000),
    "deep": put(DEEP.encode()),
    "a list": put(b"[1, 2]\n"),
    "a number": put(b"7\n"),
    "thousands of digits": put(b"9" * 5000 + b"\t" + b"9" * 5000 + b"\n"),
    "no keys": put(b"{}\n"),
    "NaN": put(b"NaN\n"),
    "UTF-16": put("text\tlabel\n好\tpos\n".encode("utf-16")),
    "GBK": put("text\tlabel\n好\tpos\n".encode("gbk")),
    "one long line": put(b"a" * 2_000_000),
    "many short lines": put(b"a\n" * 200_000),
    "gzip, cut": put(gzip.compress(b"a clean room\n" * 1000, mtime=0)[:40]),
    "gzip, one line of 100 MB": lambda path: put(gzip.compress(b"a" * 100_000_000, 1, mtime=0))(path),
    "a pickle": put(pickle.dumps({"a": 1})),
    "unreadable": _locked,
    "sparse": _sparse,
    "a folder": lambda path: _fresh(path).mkdir(),
    "a device": device(3, "/dev/null"),
    "an endless device": device(5, "/dev/zero"),
    "a circle of links": lambda path: _fresh(path).symlink_to(path.name),
    "a dangling link": lambda path: _fresh(path).symlink_to("nowhere"),
}
PIPE = {"a pipe": lambda path: os.mkfifo(_fresh(path))}  # waits for a writer, which is right where a pipe is taken
