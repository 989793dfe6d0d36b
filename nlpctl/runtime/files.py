"""Writing so that nothing is ever half there: aside first, then renamed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STAGING_PREFIX = ".staging-"


def write_text_atomic(path: Path, text: str) -> None:
    """Write `text` to `path`; a reader sees the old file or the whole new one, also after a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, staged = tempfile.mkstemp(dir=path.parent, prefix=STAGING_PREFIX, suffix=path.name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(staged, 0o666 & ~_umask())
        os.replace(staged, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(staged)
        raise


def write_json_atomic(path: Path, value: Any) -> None:
    """`write_text_atomic` of `value` as readable JSON."""
    write_text_atomic(path, json.dumps(value, ensure_ascii=False, indent=2) + "\n")


@contextlib.contextmanager
def staged_dir(final: Path) -> Iterator[Path]:
    """Yield a new directory beside `final`; on success it takes `final`'s name, on failure it is removed.

    A `final` that exists is replaced: it is moved out of the way first, so the new folder is whole
    or absent, never mixed with the old one.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    staged = Path(tempfile.mkdtemp(dir=final.parent, prefix=f"{STAGING_PREFIX}{final.name}-"))
    os.chmod(staged, 0o777 & ~_umask())
    try:
        yield staged
        _sync_tree(staged)
        if final.exists():
            old = Path(tempfile.mkdtemp(dir=final.parent, prefix=f"{STAGING_PREFIX}old-"))
            os.replace(final, old / final.name)
            os.replace(staged, final)
            shutil.rmtree(old, ignore_errors=True)
        else:
            os.replace(staged, final)
        _sync_path(final.parent)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise


def remove_leftovers(folder: Path) -> None:
    """Delete what an interrupted `staged_dir` or `write_text_atomic` left in `folder`."""
    for path in folder.glob(f"{STAGING_PREFIX}*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _sync_tree(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            _sync_path(path)
    _sync_path(folder)


def _sync_path(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
