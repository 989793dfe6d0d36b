"""A file lock that the kernel releases when its holder ends, even after a crash."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


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
