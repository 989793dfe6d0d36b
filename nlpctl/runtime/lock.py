"""One writer at a time: a lock that the kernel drops when its holder ends, however it ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def take_lock(path: Path) -> int | None:
    """Lock an existing file or folder for this process; None when another holder has it.

    Returns a descriptor: `os.close` gives the lock back. On file systems without locks (some network
    mounts) the descriptor comes without one.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    except OSError:
        pass
    return handle
