"""Atomic writes: to a temporary name first, then renamed."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from nlpctl.errors import UserError
from nlpctl.outputs import is_pipe, is_stream, open_stream, refuse_pipe

STAGING_PREFIX = ".staging-"
_OLD_PREFIX = f"{STAGING_PREFIX}old-"  # holds the folder that is being replaced, under its own name
_STAGED = re.compile("[a-z0-9_]{8}")  # what mkdtemp adds to a name
_HANDLES = "/proc/self/fd"
_DOOMED_PREFIX = f"{STAGING_PREFIX}deleted-"
LOCK_PREFIX = f"{STAGING_PREFIX}lock-"  # the lock file of one output (runtime/lock.py) and that output's name


@contextlib.contextmanager
def staged_file(final: Path) -> Iterator[BinaryIO]:
    """Yield a new binary file beside `final`; on success it takes `final`'s name, on failure it is removed.

    Of a process that is killed nothing stays, but on file systems without unnamed files. A `final` that is a device or
    a pipe is written into. UserError if it is a disk or a socket.
    """
    if is_stream(final):
        with open_stream(final) as stream:
            yield stream
        return
    final.parent.mkdir(parents=True, exist_ok=True)
    handle, staged = _new_file(final)
    try:
        with os.fdopen(handle, "w+b") as stream:
            yield stream
            stream.flush()
            os.fsync(handle)
            # It is for its owner only; other users of a shared folder must be able to read the result.
            os.fchmod(handle, 0o666 & ~_umask())
            staged = _named(handle, final.parent) if staged is None else staged
        os.replace(staged, final)
    except BaseException:
        if staged is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(staged)
        raise


def _new_file(final: Path) -> tuple[int, str | None]:
    """A file in the folder of `final`, since a rename across file systems is not atomic: its handle, and its name if it
    has one. OSError where `final` cannot be written."""
    with contextlib.suppress(FileNotFoundError):
        final.lstat()  # a name that is too long is told before the work, not after it
    with contextlib.suppress(OSError):  # a file system, or a container, that has no unnamed files
        if os.path.isdir(_HANDLES):
            return os.open(final.parent, os.O_TMPFILE | os.O_RDWR, 0o600), None
    return tempfile.mkstemp(dir=final.parent, prefix=STAGING_PREFIX, suffix=final.name)


def _named(handle: int, folder: Path) -> str:
    """Give an unnamed file of `folder` a name, under which it can be renamed."""
    name = str(folder / f"{STAGING_PREFIX}{secrets.token_hex(8)}")
    # src_dir_fd makes Python call linkat, which follows the link in /proc; link does not.
    os.link(f"{_HANDLES}/{handle}", name, src_dir_fd=handle)
    return name


@contextlib.contextmanager
def writing(path: Path, hint: str) -> Iterator[None]:
    """UserError that `path` cannot be written, for an OSError of the body; the body does nothing but write.

    A BrokenPipeError passes: the reader closed the pipe, which is no error, as on standard output.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UserError(f"cannot write here ({error.strerror or error})", where=str(path), hint=hint) from None


def write_text_atomic(path: Path, text: str) -> None:
    """Write `text` to `path`; a reader sees the old file or the whole new one, also after a crash."""
    with staged_file(path) as stream:
        stream.write(text.encode("utf-8"))


def write_json_atomic(path: Path, value: Any) -> None:
    """`write_text_atomic` of `value` as indented JSON."""
    write_text_atomic(path, json.dumps(value, ensure_ascii=False, indent=2) + "\n")


@contextlib.contextmanager
def staged_dir(final: Path) -> Iterator[Path]:
    """Yield a new directory beside `final`; on success it takes `final`'s name, on failure it is removed.

    A `final` that exists is replaced: it is moved out of the way first, so the new folder is whole or absent, never
    mixed with the old one. If the process is killed between these two moves, `remove_leftovers` restores the old
    folder. NotADirectoryError if `final` is not a folder: files and devices stay.
    """
    if final.exists() and not final.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(final))
    final.parent.mkdir(parents=True, exist_ok=True)
    staged = Path(tempfile.mkdtemp(dir=final.parent, prefix=f"{STAGING_PREFIX}{final.name}-"))
    os.chmod(staged, 0o777 & ~_umask())
    try:
        yield staged
        _sync_tree(staged)
        if final.exists():
            _replace_folder(staged, final)
        else:
            os.replace(staged, final)
        # The rename itself is lost in a power failure unless the folder is synced too.
        _sync_path(final.parent)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise


def remove_dir(folder: Path) -> None:
    """Delete `folder` if it exists. If killed, it is whole or gone; `remove_leftovers` deletes the rest."""
    if folder.exists():
        # Renamed first: a killed rmtree would leave half a folder under its own name.
        doomed = Path(tempfile.mkdtemp(dir=folder.parent, prefix=_DOOMED_PREFIX))
        os.rename(folder, doomed / folder.name)
        shutil.rmtree(doomed, ignore_errors=True)


def remove_leftovers(folder: Path) -> None:
    """Clean up what an interrupted `staged_dir`, `write_text_atomic` or `remove_dir` left in `folder`.

    The files of an output that another process has locked stay: that process is writing it.
    """
    busy = _locked_names(folder)
    for aside in folder.glob(f"{_OLD_PREFIX}*"):
        for old in aside.iterdir():
            if old.name not in busy and not (folder / old.name).exists():
                os.replace(old, folder / old.name)
    for path in folder.glob(f"{STAGING_PREFIX}*"):
        if any(_belongs(path, name) for name in busy):
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif not path.name.startswith(LOCK_PREFIX):
            path.unlink(missing_ok=True)


def remove_leftovers_of(output: Path) -> None:
    """`remove_leftovers` for one file or folder alone; nobody else may be writing it."""
    for aside in output.parent.glob(f"{_OLD_PREFIX}*"):
        if (aside / output.name).exists():
            if not output.exists():
                os.replace(aside / output.name, output)
            shutil.rmtree(aside, ignore_errors=True)
    for doomed in output.parent.glob(f"{_DOOMED_PREFIX}*"):
        if (doomed / output.name).exists():
            shutil.rmtree(doomed, ignore_errors=True)
    for path in output.parent.glob(f"{STAGING_PREFIX}*"):
        if _STAGED.fullmatch(path.name.removeprefix(f"{STAGING_PREFIX}{output.name}-")) and path.is_dir():
            shutil.rmtree(path, ignore_errors=True)


def _locked_names(folder: Path) -> list[str]:
    """The outputs in `folder` that other processes have locked. The lock files of ended processes are removed."""
    found = []
    for path in folder.glob(f"{LOCK_PREFIX}*"):
        try:
            handle = os.open(path, os.O_RDWR)
        except OSError:  # removed by its holder, another user's, or a folder that is no lock
            if path.is_file():
                found.append(path.name.removeprefix(LOCK_PREFIX))
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(handle), os.stat(path)):
                path.unlink()  # before the lock is released: another process may take it then
            else:  # its holder has ended since, and another one has come
                found.append(path.name.removeprefix(LOCK_PREFIX))
        except FileNotFoundError:  # its holder has ended since
            pass
        except OSError:  # held, or a file system without locks
            found.append(path.name.removeprefix(LOCK_PREFIX))
        finally:
            os.close(handle)
    return found


def _belongs(path: Path, name: str) -> bool:
    """Whether a staging path is of the output `name`."""
    if path.name.startswith(_OLD_PREFIX) and (path / name).exists():
        return True
    return _STAGED.fullmatch(path.name.removeprefix(f"{STAGING_PREFIX}{name}-")) is not None


def _replace_folder(staged: Path, final: Path) -> None:
    aside = Path(tempfile.mkdtemp(dir=final.parent, prefix=_OLD_PREFIX))
    old = aside / final.name
    try:
        os.replace(final, old)
        os.replace(staged, final)
    except BaseException:
        if old.exists() and not final.exists():
            os.rename(old, final)
        aside.rmdir()
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _sync_tree(folder: Path) -> None:
    for path in folder.rglob("*"):
        if not path.is_symlink():
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


def parse_json(text: str | bytes) -> Any:
    """`json.loads`, with a ValueError also for JSON that is nested too deeply to be read."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def regular(path: Path) -> Path:
    """`path`, which is read next. OSError if it is a pipe or a device: reading might never end."""
    if is_pipe(path):
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))
    return path


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises UserError when it cannot be read, is cut off, or is not an object."""
    again = "copy or download the model folder again"
    refuse_pipe(path)
    try:
        value = parse_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"is not valid JSON ({error})", where=str(path), hint=again) from error
    except OSError as error:
        hint = "check the path and its rights"
        raise UserError(f"cannot be read: {error.strerror}", where=str(path), hint=hint) from error
    if not isinstance(value, dict):
        raise UserError("must hold a JSON object", where=str(path), hint=again)
    return value


def sha256_of(path: Path) -> str:
    """Hex SHA-256 of a file's bytes, read in constant memory."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
