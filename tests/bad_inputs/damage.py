"""How the cases prepare their folders: one word per kind of damage, `WORD PATH [ARGUMENT]`."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any


def write(path: Path, content: str | dict[str, str]) -> None:
    """Text as UTF-8, or {ENCODING: text}, or {"hex": bytes}."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        content = {"utf-8": content}
    ((encoding, text),) = content.items()
    path.write_bytes(bytes.fromhex(text) if encoding == "hex" else text.encode(encoding))


def damage(folder: Path, sentence: str) -> None:
    """Carry out one sentence, such as `truncate model/model_state.pdparams`, in `folder`."""
    word, path, *rest = sentence.split(" ", 2)
    DAMAGE[word](folder / path, *rest)


def _copy(source: Path, target: str) -> None:
    top = next(parent for parent in source.parents if (parent / "good.yaml").exists())
    (top / target).parent.mkdir(parents=True, exist_ok=True)
    (shutil.copytree if source.is_dir() else shutil.copyfile)(source, top / target)


def _delete(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def _truncate(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


def _set(path: Path, assignment: str) -> None:
    """`a.b=JSON` in a JSON file."""
    dotted, _, text = assignment.partition("=")
    value = json.loads(path.read_text(encoding="utf-8"))
    *parents, last = dotted.split(".")
    inner: Any = value
    for name in parents:
        inner = inner[name]
    inner[last] = json.loads(text)
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


class _Trap:
    """Unpickling it would make the folder `trapped`."""

    def __reduce__(self) -> tuple[Callable, tuple]:
        return os.mkdir, ("trapped",)


def _trap(path: Path) -> None:
    path.write_bytes(pickle.dumps({"ernie.embeddings.word_embeddings.weight": _Trap()}, protocol=4))


def _rename_keys(path: Path, change: str) -> None:
    """`OLD=NEW` in the beginning of every parameter name of a weights file."""
    old, _, new = change.partition("=")
    arrays = pickle.loads(path.read_bytes())
    renamed = {new + name.removeprefix(old) if name.startswith(old) else name: arrays[name] for name in arrays}
    path.write_bytes(pickle.dumps(renamed))


def _sign(export: Path) -> None:
    """Write the checksums of an export's files as they are now."""
    file = export / "export.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    content["sha256"] = {name: hashlib.sha256((export / name).read_bytes()).hexdigest() for name in content["sha256"]}
    file.write_text(json.dumps(content), encoding="utf-8")


DAMAGE: dict[str, Callable[..., None]] = {
    "copy": _copy,
    "delete": _delete,
    "truncate": _truncate,
    "set": _set,
    "trap": _trap,
    "rename_keys": _rename_keys,
    "sign": _sign,
    "pipe": lambda path: os.mkfifo(path),
    "link": lambda path, target: path.symlink_to(target),
    "append": lambda path, text: path.write_bytes(path.read_bytes() + text.encode()),
    "deep": lambda path: path.write_text("[" * 100_000 + "]" * 100_000),
    "mkdir": lambda path: path.mkdir(parents=True),
}
