"""Libraries that write past Python, straight to the file descriptor."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def silent_stderr() -> Iterator[None]:
    """Inside, what C and C++ code writes to stderr is dropped; so is what other threads write there meanwhile.

    For calls that tell what went wrong by raising, and chatter besides.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
