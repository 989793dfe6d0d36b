"""How much the files of a stranger may become in memory: as much as their bytes can hold, and little more.

A few bytes can claim gigabytes: a shape that no values follow, one stored number that is broadcast, an archive of
zeros, a value that stands in a file once and is used a million times. The limits here grow with the file; what breaks
one of them raises ValueError before anything is allocated.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence
from typing import Any

from nlpctl.files import MOST_PACKED

MOST_SHARED = 8  # tied weights stand in a file once and are several parameters
MOST_GROWTH = 8  # of an archive whose files are used as they are; parameters hardly compress
_RANK = 32  # NumPy's limit
# How files in a zip may be packed: zipfile unpacks bzip2 and LZMA without a limit, a thousand times what is wanted.
PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class Allowance:
    """How much may still be taken of what a file holds."""

    def __init__(self, amount: int, what: str):
        self._left, self._what = amount, what

    def take(self, amount: int) -> None:
        """ValueError: it is more than what is left."""
        self._left -= amount
        if self._left < 0:
            raise ValueError(f"it claims more {self._what} than a file of its size holds")


def are_whole(numbers: Sequence[Any]) -> bool:
    """Whether all are whole numbers, and none is negative."""
    return all(type(number) is int and number >= 0 for number in numbers)


def check_shape(shape: Any, itemsize: int, available: int) -> tuple[int, ...]:
    """`shape`, if values of `itemsize` bytes in this shape fit into `available` bytes; else ValueError.

    Python's integers cannot overflow, as NumPy's product could. An array without values has a size too: code that walks
    its rows would walk a million million of them.
    """
    if not isinstance(shape, tuple | list) or len(shape) > _RANK:
        raise ValueError("a shape that no array has")
    if not are_whole(shape):
        raise ValueError("a shape that is not of whole numbers")
    needed = math.prod(max(1, length) for length in shape) * itemsize
    if itemsize < 1 or needed > (max(available, 1 << 20) if 0 in shape else available):
        sizes = ", ".join(str(length)[:20] for length in shape[:9])
        raise ValueError(f"shape [{sizes}] needs more bytes than the {available:,} that are there")
    return tuple(shape)


def check_zip(archive: zipfile.ZipFile, size: int) -> None:
    """ValueError: an archive of `size` bytes claims more than it may become, or is packed in a way without bounds.

    Claims suffice: zipfile hands out no more bytes than the archive claims.
    """
    entries: Sequence[zipfile.ZipInfo] = archive.infolist()
    for entry in entries:
        if entry.compress_type not in PACKINGS:
            raise ValueError(f"{entry.filename[:80]!r} is packed in another way than deflate")
    packed, claimed = sum(entry.compress_size for entry in entries), sum(entry.file_size for entry in entries)
    if packed > size or claimed > MOST_PACKED + MOST_GROWTH * size:
        raise ValueError(f"its files claim {claimed:,} bytes, and the archive has {size:,}")
