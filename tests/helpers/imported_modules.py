"""What a process has imported: asked in another process, so nothing is imported here."""

from __future__ import annotations

import sys
from typing import Any


def large_ones(subject: Any) -> set[str]:
    """Those that take seconds to import. `subject`: what a TimedProcess hands to whatever it is asked."""
    return {"paddle", "paddlenlp"} & sys.modules.keys()
