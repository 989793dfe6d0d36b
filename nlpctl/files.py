"""Atomic writes: to a temporary name first, then renamed.

What is being written to NAME is called `.staging-NAME-` and eight letters or digits, file or folder: by that a killed
command's leftovers are known.
"""

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
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from nlpctl.errors import UserError
from nlpctl.outputs import is_pipe, is_stream, open_stream, refuse_mounted, refuse_pipe

STAGING_PREFIX = ".staging-"
_OLD_PREFIX = f"{STAGING_PREFIX}old-"  # holds the folder that is being replaced, under its own name
_STAGED = re.compile("[a-z0-9_]{8}")  # what tempfile and `staged_path` add to a name
_LEFTOVER = re.compile(rf"{re.escape(STAGING_PREFIX)}.+-[a-z0-9_]{{8}}")
_LONGEST = 200  # bytes of an output's name in that of its leftovers: a name has 255 at most
_MOST_TEXT = 256 << 20  # bytes; a tokenizer of many languages has some 20 MB
MOST_PACKED = 64 << 20  # bytes that a small archive may become in memory (formats/bounds.py)
_STATUS = "/proc/self/status"
_HANDLES = "/proc/self/fd"
_DOOMED_PREFIX = f"{STAGING_PREFIX}deleted-"
LOCK_PREFIX = f"{STAGING_PREFIX}lock-"  # the lock file of one output (runtime/lock.py) and that output's name
_TAKEN = (_OLD_PREFIX, _DOOMED_PREFIX, LOCK_PREFIX)


def staging_prefix(name: str) -> str:
    """What the names begin with under which the output `name` is written."""
    encoded = os.fsencode(name)
    own = name if len(encoded) <= _LONGEST else hashlib.sha256(encoded).hexdigest()
    prefix = f"{STAGING_PREFIX}{own}-"
    return f"{STAGING_PREFIX}-{own}-" if prefix.startswith(_TAKEN) else prefix


def staged_path(final: Path) -> Path:
    """A new path beside `final` for a file that is to take its name."""
    return final.with_name(f"{staging_prefix(final.name)}{secrets.token_hex(4)}")


@contextlib.contextmanager
def staged_file(final: Path) -> Iterator[BinaryIO]:
    """Yield a new binary file beside `final`; on success it takes `final`'s name, on failure it is removed.

    A file that is whole but cannot take the name is kept: the OSError says where. Of a process that is killed nothing
    stays, but on file systems without unnamed files. A `final` that is a device or a pipe is written into. UserError if
    it is a disk or a socket.
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
            staged = _named(handle, final) if staged is None else staged
    except BaseException:
        if staged is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(staged)
        raise
    try:
        os.replace(staged, final)
    except OSError as error:
        if not os.path.exists(staged):
            raise
        raise _kept_error(error, _kept(staged, final), final) from error


def _kept(staged: str, final: Path) -> str:
    """Where a whole file is kept that cannot be `final`: it may be the work of hours, and no leftover."""
    kept = str(final.with_name(f"{final.name}.kept-{secrets.token_hex(4)}"))
    with contextlib.suppress(OSError):
        os.rename(staged, kept)
        return kept
    return staged


def _kept_error(error: OSError, kept: str, final: Path) -> OSError:
    return OSError(error.errno, f"{error.strerror}; what was written is kept in {kept}", str(final))


def _new_file(final: Path) -> tuple[int, str | None]:
    """A file in the folder of `final`, since a rename across file systems is not atomic: its handle, and its name if it
    has one. OSError where `final` cannot be written."""
    with contextlib.suppress(FileNotFoundError):
        final.lstat()  # a name that is too long is told before the work, not after it
    with contextlib.suppress(OSError):  # a file system, or a container, that has no unnamed files
        if os.path.isdir(_HANDLES):
            return os.open(final.parent, os.O_TMPFILE | os.O_RDWR, 0o600), None
    return tempfile.mkstemp(dir=final.parent, prefix=staging_prefix(final.name))


def _named(handle: int, final: Path) -> str:
    """Give an unnamed file beside `final` a name, under which it can be renamed; its content is copied where the file
    system gives none, in the worst case to the folder for temporary files (OSError, which names the copy)."""
    name = str(staged_path(final))
    try:
        # src_dir_fd makes Python call linkat, which follows the link in /proc; link does not.
        os.link(f"{_HANDLES}/{handle}", name, src_dir_fd=handle)
    except OSError as error:
        with contextlib.suppress(OSError):
            return _copied(handle, *tempfile.mkstemp(dir=final.parent, prefix=staging_prefix(final.name)))
        try:
            kept = _copied(handle, *tempfile.mkstemp(prefix="nlpctl-", suffix=final.suffix))
        except OSError:
            raise error from None
        raise _kept_error(error, kept, final) from error
    return name


def _copied(handle: int, copy: int, name: str) -> str:
    """`name`, that of the file `copy`, with the content and the rights of the file `handle`."""
    try:
        with os.fdopen(copy, "wb") as target, os.fdopen(os.dup(handle), "rb") as source:
            source.seek(0)
            shutil.copyfileobj(source, target)
            target.flush()
            os.fchmod(copy, os.fstat(handle).st_mode & 0o777)
            os.fsync(copy)
    except BaseException:
        os.unlink(name)
        raise
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
    folder. Where the whole folder cannot take the name, it is kept, and the OSError tells under which.

    NotADirectoryError if `final` is not a folder: files and devices stay. UserError if a file system is mounted there,
    such as a container's volume.
    """
    if final.exists() and not final.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(final))
    refuse_mounted(final)
    final.parent.mkdir(parents=True, exist_ok=True)
    staged = Path(tempfile.mkdtemp(dir=final.parent, prefix=staging_prefix(final.name)))
    os.chmod(staged, 0o777 & ~_umask())
    try:
        yield staged
        _sync_tree(staged)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise
    try:
        if final.exists():
            _replace_folder(staged, final)
        else:
            os.replace(staged, final)
    except OSError as error:
        raise _kept_error(error, _kept(str(staged), final), final) from error
    _sync_path(final.parent)  # else a power failure may lose the rename


def remove_dir(folder: Path) -> Path | None:
    """Delete `folder` if it exists. If killed, it is whole or gone; `remove_leftovers` deletes the rest.

    Returns where the rest lies, if something of it cannot be deleted; OSError if nothing can.
    """
    if not folder.exists():
        return None
    # Renamed first: a killed rmtree would leave half a folder under its own name.
    doomed = Path(tempfile.mkdtemp(dir=folder.parent, prefix=_DOOMED_PREFIX))
    try:
        os.rename(folder, doomed / folder.name)
    except OSError:
        doomed.rmdir()
        raise
    return remove_leftover(doomed)


def remove_leftovers(folder: Path) -> None:
    """Clean up what an interrupted `staged_dir`, `write_text_atomic` or `remove_dir` left in `folder`.

    The files of an output that another process has locked stay: that process is writing it.
    """
    busy = _locked_names(folder)
    for aside in folder.glob(f"{_OLD_PREFIX}*"):
        for old in aside.iterdir():
            if old.name not in busy and not (folder / old.name).exists():
                os.replace(old, folder / old.name)
    for path in leftovers(folder):
        remove_leftover(path)


def leftovers(folder: Path) -> list[Path]:
    """What `remove_leftovers` would delete; not an older output that it would put back, nor names that are not ours."""
    busy = _locked_names(folder)
    return [
        path
        for path in sorted(folder.glob(f"{STAGING_PREFIX}*"))
        if _LEFTOVER.fullmatch(path.name)
        and not any(_belongs(path, name) for name in busy)
        and (path.is_dir() or not path.name.startswith(LOCK_PREFIX))
        and not (path.name.startswith(_OLD_PREFIX) and any(not (folder / old.name).exists() for old in path.iterdir()))
    ]


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
        if _is_staged(path, output.name):
            remove_leftover(path)


def _is_staged(path: Path, name: str) -> bool:
    """Whether `path` is what the output `name` is, or was to be, written as."""
    prefix = staging_prefix(name)
    return path.name.startswith(prefix) and _STAGED.fullmatch(path.name[len(prefix) :]) is not None


def remove_leftover(path: Path) -> Path | None:
    """Delete one of `leftovers`; returns it if something of it cannot be deleted."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
    return path if path.exists() else None


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
    return _is_staged(path, name)


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
    """The rights that new files of this process lack."""
    with contextlib.suppress(OSError), open(_STATUS, "rb") as status:
        for line in status:
            if line.startswith(b"Umask:"):
                return int(line.split()[1], 8)
    # Elsewhere it must be set to be read. A file that another thread creates at that moment is its owner's alone.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def write_npz(stream: BinaryIO, arrays: Mapping[str, Any], compressed: bool = False) -> None:
    """Write arrays as numpy.savez does, byte for byte.

    Where a write fails, numpy.savez leaves the archive open, which then prints a traceback when it is collected.
    `compressed`: unless the arrays are large. Those may be all alike and shrink to a thousandth, and a reader could not
    tell them from an archive that is meant to fill the memory.
    """
    import zipfile

    import numpy as np

    compressed = compressed and sum(np.asanyarray(array).nbytes for array in arrays.values()) <= MOST_PACKED
    kind = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(stream, "w", kind, allowZip64=True) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asanyarray(array), allow_pickle=False)


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


def small_text(path: Path) -> str:
    """The text of a file that is read as a whole. OSError or ValueError: it is a pipe, not UTF-8, or has gigabytes."""
    if regular(path).stat().st_size > _MOST_TEXT:
        raise ValueError(f"it has more than {_MOST_TEXT >> 20} MB")
    return path.read_text(encoding="utf-8")


def json_of(path: Path) -> Any:
    """The content of a JSON file of nlpctl's own. OSError or ValueError: as of `small_text`, or it is not JSON."""
    return parse_json(small_text(path))


def content_of(file: Path) -> dict[str, Any]:
    """The JSON object of `file`; empty where there is none that can be read."""
    try:
        value = json_of(file)
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises UserError when it cannot be read, is cut off, or is not an object."""
    again = "copy or download the model folder again"
    refuse_pipe(path)
    try:
        value = json_of(path)
    except ValueError as error:
        raise UserError(f"is not valid JSON ({error})", where=str(path), hint=again) from error
    except OSError as error:
        hint = "check the path and its rights"
        raise UserError(f"cannot be read: {error.strerror}", where=str(path), hint=hint) from error
    if not isinstance(value, dict):
        raise UserError("must hold a JSON object", where=str(path), hint=again)
    return value
