"""Which cards the installed Paddle has machine code for, read from its library without loading it.

nvcc puts the code into the section .nv_fatbin: one container per source file, each with an entry per compute
capability. NVIDIA publishes no description of it. Code for a capability X.Y runs on cards X.Z with Z of at least Y;
PTX, which the driver compiles, on every newer card.

The first containers are read, which takes 2 ms. Of the 666 in libphi.so of paddlepaddle-gpu 2.6.2 all but one hold
machine code for 6.1, 7.0, 7.5, 8.0 and 8.6; none holds PTX.
"""

from __future__ import annotations

import functools
import importlib.util
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

CONTAINERS = 20  # read per library
_CONTAINER = struct.Struct("<IHHQ")  # magic, version, size of this header, size of the entries
_ENTRY = struct.Struct("<HHIQ12xI")  # kind, version, size of this header, size of the code, 10 * capability
_MAGIC = 0xBA55ED50
_PTX, _MACHINE = 1, 2
_SECTION = struct.Struct("<IIQQQQ")  # name, type, flags, address, offset, size
_CODE = b".nv_fatbin"

Capability = tuple[int, int]


@dataclass(frozen=True)
class CudaCode:
    """The compute capabilities for which there is machine code, and those for which there is PTX; sorted."""

    machine: tuple[Capability, ...]
    ptx: tuple[Capability, ...] = ()

    def runs_on(self, card: Capability) -> bool:
        exact = any(major == card[0] and minor <= card[1] for major, minor in self.machine)
        return exact or any(each <= card for each in self.ptx)

    @property
    def newest(self) -> Capability:
        return max((*self.machine, *self.ptx))


@functools.cache
def installed_code() -> CudaCode | None:
    """That of the installed Paddle; None for a CPU build, and where it cannot be read."""
    found = importlib.util.find_spec("paddle")  # does not import it
    if found is None or found.origin is None:
        return None
    for library in sorted((Path(found.origin).parent / "libs").glob("libphi*.so")):
        code = code_of(library)
        if code is not None:
            return code
    return None


def code_of(library: Path) -> CudaCode | None:
    """That of a shared library; None if it holds none, or is not what nvcc writes."""
    try:
        with library.open("rb") as file:
            containers = list(_containers(file))
    except (OSError, struct.error, ValueError):
        return None
    if not containers:
        return None
    common = set.intersection(*containers)
    return CudaCode(_of_kind(common, _MACHINE), _of_kind(common, _PTX)) if common else None


def _of_kind(entries: set[tuple[int, int]], wanted: int) -> tuple[Capability, ...]:
    return tuple(sorted((number // 10, number % 10) for kind, number in entries if kind == wanted))


def _containers(file: BinaryIO) -> Iterator[set[tuple[int, int]]]:
    """Kind and number of the entries, of each of the first containers."""
    position, size = _code_section(file)
    end = position + size
    for _ in range(CONTAINERS):
        if position + _CONTAINER.size > end:
            return
        magic, _, header, length = _CONTAINER.unpack(_read(file, position, _CONTAINER.size))
        if magic != _MAGIC:
            return
        entry, position = position + header, position + header + length
        entries = set()
        while entry < position:
            kind, _, header, length, number = _ENTRY.unpack(_read(file, entry, _ENTRY.size))
            if header < _ENTRY.size:
                raise ValueError("no entry")
            entries.add((kind, number))
            entry += header + length
        yield entries
        position += -position % 8


def _code_section(file: BinaryIO) -> tuple[int, int]:
    """Offset and size of the section with the code. ValueError if the file is no 64-bit ELF file with one."""
    head = _read(file, 0, 64)
    if not head.startswith(b"\x7fELF\x02\x01"):
        raise ValueError("no ELF file")
    (table,) = struct.unpack_from("<Q", head, 40)
    size, count, names_at = struct.unpack_from("<HHH", head, 58)
    raw = _read(file, table, size * count)
    sections = [_SECTION.unpack_from(raw, size * index) for index in range(count)]
    names = _read(file, sections[names_at][4], sections[names_at][5])
    for name, _, _, _, offset, length in sections:
        if names[name : names.index(b"\0", name)] == _CODE:
            return offset, length
    raise ValueError("no CUDA code")


def _read(file: BinaryIO, position: int, size: int) -> bytes:
    file.seek(position)
    return file.read(size)
