"""A file lock that the kernel releases when its holder ends, even after a crash."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from nlpctl.errors import UserError
from nlpctl.files import LOCK_PREFIX, remove_leftovers_of, writing
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
        raise UserError("this is the top of all folders", where=str(output), hint="name a folder in it: -o")
    refuse_lost_link(given)
    # Two paths to one folder, of which one leads through a link, have one lock.
    output = output.parent.resolve() / output.name
    file = output.with_name(f"{LOCK_PREFIX}{output.name}")
    made = [folder for folder in output.parents if not folder.exists()]
    with writing(given, "name another place: -o FOLDER"):
        output.parent.mkdir(parents=True, exist_ok=True)
        handle = _locked(file, given)
        remove_leftovers_of(output)
    try:
        yield
    finally:
        file.unlink(missing_ok=True)  # before the lock is released: another process may take it then
        os.close(handle)
        for folder in made:  # nothing was written
            with contextlib.suppress(OSError):
                folder.rmdir()


def _locked(file: Path, output: Path) -> int:
    """A descriptor of `file`, which is made and locked, with the number of this process in it."""
    while True:
        handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(handle, 32, 0).decode() or "unknown"
            os.close(handle)
            hint = "wait for it, or name another place: -o"
            raise UserError(f"process {holder} is writing this", where=str(output), hint=hint) from None
        except OSError:  # a file system without locks
            return handle
        # The one that held it has removed the file between our opening and locking it.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(file)):
                os.truncate(handle, 0)
                os.pwrite(handle, str(os.getpid()).encode(), 0)
                return handle
        os.close(handle)


def take_lock(path: Path, *, wait: bool = False) -> int | None:
    """Lock an existing file or folder for this process; None if another process holds the lock. `wait`: until it ends.

    Returns a descriptor: `os.close` releases the lock. On file systems without locks (some network mounts) the
    descriptor comes without one.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except OSError:
        pass
    return handle


def wait_until_free(path: Path, seconds: float) -> bool:
    """Wait until no process holds the lock of `path`, or it is not there; at most `seconds`. Whether that is so."""
    deadline = time.monotonic() + seconds
    while path.exists():
        handle = take_lock(path)
        if handle is not None:
            os.close(handle)
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True
