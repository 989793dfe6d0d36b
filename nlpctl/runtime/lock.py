"""A file lock that the kernel releases when its holder ends, even after a crash.

It is one of `flock`, since one of `fcntl.lockf` needs a file open for writing, which a folder never is, and is lost as
soon as the process closes any other descriptor of the file. `flock` locks what a forked process shares with its parent,
as the workers of a data loader do; so these close their copy at once. Programs that are started do not get one.

The package filelock would not do: it opens files for writing, and a run, a series, or a compression is locked as the
folder that it is. Nor does it leave the number of the holder where the next one can tell it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from nlpctl.errors import UserError
from nlpctl.files import LOCK_PREFIX, remove_leftovers_of, writing
from nlpctl.names import refuse_not_utf8
from nlpctl.outputs import refuse_lost_link

LET_GO = 60.0  # seconds in which a process on a node that was lost has ended too
_POLL_SECONDS = 0.2


@contextlib.contextmanager
def sole_writer(output: Path) -> Iterator[None]:
    """Only one process at a time writes the folder `output`, from its first check to its end.

    UserError that names the other one, or if nothing can be written there. What a killed one left behind is removed,
    or put back where it was the older folder.
    """
    given, output = output, Path(os.path.abspath(output))
    if not output.name:
        raise UserError("this is the top of all folders", where=str(output), hint="name a folder in it: @[output]")
    refuse_lost_link(given)
    # Two paths to one folder, of which one leads through a link, have one lock.
    output = output.parent.resolve() / output.name
    refuse_not_utf8(output)
    file = output.with_name(f"{LOCK_PREFIX}{output.name}")
    made = [folder for folder in output.parents if not folder.exists()]
    with writing(given, "name another place: @[output=FOLDER]"):
        output.parent.mkdir(parents=True, exist_ok=True)
        lock = _locked(file, given)
        remove_leftovers_of(output)
    try:
        yield
    finally:
        file.unlink(missing_ok=True)  # before the lock is released: another process may take it then
        lock.release()
        for folder in made:  # nothing was written
            with contextlib.suppress(OSError):
                folder.rmdir()


class Lock:
    """An opened file or folder, to be locked by this process alone: not by those that it forks."""

    def __init__(self, path: Path, flags: int):
        self.handle = os.open(path, flags, 0o666)
        _opened.add(self)

    def take(self, *, wait: bool = False) -> bool:
        """Whether no other process holds the lock. On file systems without locks (some network mounts) none does."""
        try:
            fcntl.flock(self.handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            pass
        return True

    def is_of(self, path: Path) -> bool:
        """Whether `path` is still what was opened. FileNotFoundError if there is nothing."""
        return os.path.samestat(os.fstat(self.handle), os.stat(path))

    def release(self) -> None:
        _opened.discard(self)
        os.close(self.handle)


_opened: set[Lock] = set()


def _close_copies() -> None:
    """In a process that was forked."""
    for lock in list(_opened):
        lock.release()


os.register_at_fork(after_in_child=_close_copies)


def _locked(file: Path, output: Path) -> Lock:
    """The lock of `file`, which is made, with the number of this process in it."""
    while True:
        lock = Lock(file, os.O_RDWR | os.O_CREAT)
        if not lock.take():
            holder = os.pread(lock.handle, 32, 0).decode() or "unknown"
            lock.release()
            hint = "wait for it, or name another place: @[output]"
            raise UserError(f"process {holder} is writing this", where=str(output), hint=hint)
        # The one that held it has removed the file between our opening and locking it.
        with contextlib.suppress(FileNotFoundError):
            if lock.is_of(file):
                os.truncate(lock.handle, 0)
                os.pwrite(lock.handle, str(os.getpid()).encode(), 0)
                return lock
        lock.release()


def take_lock(path: Path, *, wait: bool = False) -> Lock | None:
    """Lock an existing file or folder for this process; None if another process holds the lock. `wait`: until it
    ends."""
    lock = Lock(path, os.O_RDONLY)
    if lock.take(wait=wait):
        return lock
    lock.release()
    return None


@contextlib.contextmanager
def held(path: Path, *, wait: bool = False) -> Iterator[bool]:
    """Whether this process holds the lock of an existing file or folder inside the context; `wait`: as of `take_lock`.
    """
    lock = take_lock(path, wait=wait)
    try:
        yield lock is not None
    finally:
        if lock is not None:
            lock.release()


def wait_until_free(path: Path, seconds: float) -> bool:
    """Wait until no process holds the lock of `path`, or it is not there; at most `seconds`. Whether that is so."""
    deadline = time.monotonic() + seconds
    while path.exists():
        lock = take_lock(path)
        if lock is not None:
            lock.release()
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True
