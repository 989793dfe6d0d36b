"""Worker processes of a DataLoader that end with the process that started them."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

from nlpctl.parent import die_with_parent


def ended_with_parent() -> Callable[[int], None]:
    """The worker_init_fn of a DataLoader of this process.

    paddlepaddle, io/dataloader/worker.py:337: a worker asks for its parent between two waits for work of 5 seconds, but
    these are passed as `block`, so the first wait never ends. After a SIGKILL of the parent, or where the system
    lacked memory, its workers stay, with its standard streams and sockets.
    Test: tests/upstream/test_loader_workers.py.
    """
    return functools.partial(_begin, os.getpid())


def _begin(parent: int, worker: int) -> None:
    die_with_parent(parent)
