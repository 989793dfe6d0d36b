"""What a pickle claims to need, compared with its size before Python's unpickler believes it.

`LONG_BINPUT 2147483647` is five bytes, and makes the unpickler clear a table of 34 GB; lengths of strings and
frames are allocated before they are read. Python's own pickler writes neither.
"""

from __future__ import annotations

import mmap
import pickletools
from pathlib import Path

_MEMO = ("PUT", "BINPUT", "LONG_BINPUT")


def check_sizes(path: Path) -> None:
    """Raise ValueError when the pickle in `path` is cut off, or claims more than a file of its size can hold."""
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        for opcode, argument, position in pickletools.genops(mapped):  # reads no further than the file goes
            too_far = opcode.name in _MEMO and argument > len(mapped)
            too_long = opcode.name == "FRAME" and argument > len(mapped) - position
            if too_far or too_long:
                raise ValueError(f"{opcode.name} at byte {position} claims {argument} in {len(mapped)} bytes")
