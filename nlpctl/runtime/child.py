"""What another Python process needs to be told."""

from __future__ import annotations

import os
import sys


def module_path() -> str:
    """PYTHONPATH for a process that is to find the same modules as this one."""
    return os.pathsep.join(entry or os.getcwd() for entry in sys.path)
