"""Paddle's raw tensor format: one parameter per file (`save_params`), or many, one after the other (`__params__`).

Little-endian throughout, as `SerializeToStream` of paddle/fluid/framework/lod_tensor.cc writes it:

    uint32  version of the LoD tensor, 0
    uint64  LoD levels; for each: uint64 bytes, and so many bytes of offsets (parameters have none)
    uint32  version of the tensor, 0
    int32   length of the description; the description: protobuf, field 1 the number type, field 2 the sizes
    data    product of the sizes x width of the type, row by row

Names stand in no such file. Every length is compared with the file before anything is read or allocated.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from nlpctl.errors import UserError
from nlpctl.formats.safe_pickle import BROKEN_HINT
from nlpctl.outputs import refuse_pipe

# VarType.Type of framework.proto
DTYPES: dict[int, np.dtype] = {
    0: np.dtype("bool"),
    1: np.dtype("<i2"),
    2: np.dtype("<i4"),
    3: np.dtype("<i8"),
    4: np.dtype("<f2"),
    5: np.dtype("<f4"),
    6: np.dtype("<f8"),
    20: np.dtype("u1"),
    21: np.dtype("i1"),
    22: np.dtype("<u2"),  # the bits of a bfloat16
}
_OTHER_TYPES = {8: "SELECTED_ROWS, sparse rows", 19: "SIZE_T", 23: "complex64", 24: "complex128"}
_LARGEST_RANK = 9  # Paddle's own limit
_LARGEST_DESCRIPTION = 4096
_MOST_LEVELS = 16
_MOST_TENSORS = 100_000  # of a file; each has a view of its own, many times as large as the smallest tensor
_SHORTEST = 20 + 2 + 1  # bytes of a file that holds one bool


class _Damaged(Exception):
    """`str()` says what is wrong, without the place."""


def looks_like_tensor(head: bytes, size: int) -> bool:
    """Whether a file of `size` bytes that begins with `head` (its first 64 bytes) holds a raw tensor.

    True also for damaged ones, so that reading them can say what is wrong.
    """
    if head[:4] != b"\0\0\0\0":
        return False
    if size < _SHORTEST or head[:20] == bytes(20):
        return True  # cut off, or wiped
    # A big-endian file is recognised too, so that reading it can name the mistake.
    for order in "<>":
        levels = struct.unpack_from(f"{order}Q", head, 4)[0]
        if levels == 0:
            version, length = struct.unpack_from(f"{order}Ii", head, 12)
            if version == 0 and 0 < length <= _LARGEST_DESCRIPTION and head[20:21] in (b"\x08", b"\x10", b"\x12"):
                return True
        elif levels <= _MOST_LEVELS and 0 < struct.unpack_from(f"{order}Q", head, 12)[0] <= size:
            return True
    return False


def read_tensors(file: Path) -> list[np.ndarray]:
    """All tensors of `file`, as read-only views of the mapped file, in its order. bfloat16 as uint16 bits.

    UserError with the offset: the file is cut off, is no such file, names a number type that is unknown, or
    claims a shape that does not fit into it.
    """
    refuse_pipe(file)
    size = file.stat().st_size
    if size == 0:
        raise UserError("is empty, so it is not a parameter file", where=str(file), hint=BROKEN_HINT)
    # Mapped, not read: a file may hold gigabytes, of which --plan needs only the shapes.
    data = np.asarray(np.memmap(file, dtype=np.uint8, mode="r"))
    tensors: list[np.ndarray] = []
    offset = 0
    while offset < size:
        try:
            if len(tensors) == _MOST_TENSORS:
                raise _Damaged(f"more tensors than the {_MOST_TENSORS:,} that are read")
            tensor, end = _read_one(data, offset)
        except _Damaged as error:
            number = f"tensor {len(tensors) + 1}, " if tensors else ""
            raise UserError(f"{number}at byte {offset}: {error}", where=str(file), hint=BROKEN_HINT) from None
        tensors.append(tensor)
        offset = end
    return tensors


def _read_one(data: np.ndarray, start: int) -> tuple[np.ndarray, int]:
    """The tensor at `start` and the offset behind it."""
    reader = _Reader(data, start)
    version = reader.number("<I", "the version")
    if version != 0:
        raise _Damaged(f"not a Paddle tensor (version {version}, expected 0)")
    levels = reader.number("<Q", "the number of LoD levels")
    if levels > _MOST_LEVELS:
        raise _Damaged(f"{levels} LoD levels{_swapped(levels, 8, _MOST_LEVELS)}")
    for _ in range(levels):
        reader.take(reader.number("<Q", "the length of a LoD level"), "a LoD level")
    version = reader.number("<I", "the version of the tensor")
    if version != 0:
        raise _Damaged(f"not a Paddle tensor (inner version {version}, expected 0)")
    length = reader.number("<i", "the length of the description")
    if not 0 < length <= _LARGEST_DESCRIPTION:
        raise _Damaged(f"a description of {length} bytes{_swapped(length, 4, _LARGEST_DESCRIPTION)}")
    code, shape = _description(reader.take(length, "the description").tobytes())
    if code not in DTYPES:
        raise _Damaged(f"number type {code} ({_OTHER_TYPES.get(code, 'unknown')}) is none that parameters have")
    dtype = DTYPES[code]
    # math.prod of Python integers cannot overflow, as NumPy's int64 product could for a forged shape.
    needed = math.prod(shape) * dtype.itemsize
    if needed > reader.left:
        name = "bfloat16" if dtype == np.uint16 else dtype.name
        raise _Damaged(f"shape {list(shape)} of {name} needs {needed} bytes, and {reader.left} are left in the file")
    values = reader.take(needed, "the values")
    # NumPy's behaviour is undefined for a bool that is neither 0 nor 1.
    if dtype.kind == "b" and values.size and values.max() > 1:
        raise _Damaged("of type bool, but its bytes are not all 0 or 1")
    return values.view(dtype).reshape(shape), reader.offset


class _Reader:
    """Reads forward through the mapped file and never behind its end."""

    def __init__(self, data: np.ndarray, offset: int):
        self._data, self.offset = data, offset

    @property
    def left(self) -> int:
        return len(self._data) - self.offset

    def take(self, count: int, what: str) -> np.ndarray:
        if count > self.left:
            raise _Damaged(f"cut off: {what} takes {count} bytes, and {self.left} are left in the file")
        self.offset += count
        return self._data[self.offset - count : self.offset]

    def number(self, form: str, what: str) -> int:
        return struct.unpack(form, self.take(struct.calcsize(form), what).tobytes())[0]


def _swapped(value: int, width: int, limit: int) -> str:
    """A note for a number that makes sense when its bytes are read the other way round."""
    other = int.from_bytes(value.to_bytes(width, "little", signed=value < 0), "big")
    return ": its byte order is swapped (big-endian), Paddle's is little-endian" if 0 < other <= limit else ""


def _description(raw: bytes) -> tuple[int, tuple[int, ...]]:
    """Number type and shape out of the protobuf message TensorDesc."""
    code: int | None = None
    shape: list[int] = []
    fields = iter(raw)
    for tag in fields:
        if tag == 0x08:
            code = _varint(fields)
        elif tag == 0x10:
            shape.append(_varint(fields))
        elif tag == 0x12:  # packed
            packed = iter(bytes(_next(fields) for _ in range(_varint(fields))))
            for first in packed:
                shape.append(_varint(packed, first))
        else:
            raise _Damaged(f"its description has an unknown field (tag {tag})")
    if code is None:
        raise _Damaged("its description names no number type")
    if len(shape) > _LARGEST_RANK or any(not 0 < count < 1 << 62 for count in shape):
        # Negative sizes are stored as their two's complement in 64 bits.
        sizes = ", ".join(str(count - (1 << 64) if count >= 1 << 63 else count) for count in shape[:_LARGEST_RANK])
        raise _Damaged(f"shape [{sizes}] is none that a parameter has")
    return code, tuple(shape)


def _varint(stream: Iterator[int], first: int | None = None) -> int:
    value = shift = 0
    byte = _next(stream) if first is None else first
    while byte & 0x80:
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > 63:
            raise _Damaged("its description is damaged (a number without end)")
        byte = _next(stream)
    return value | byte << shift


def _next(stream: Iterator[int]) -> int:
    try:
        return next(stream)
    except StopIteration:
        raise _Damaged("its description is cut off") from None


def write_tensors(file: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Write `tensors` in the order of their names, which Paddle reads a combined file by."""
    from paddle.base.proto import framework_pb2

    codes = {dtype: code for code, dtype in DTYPES.items()}
    with file.open("wb") as stream:
        for name in sorted(tensors):
            array = np.ascontiguousarray(tensors[name])
            description = framework_pb2.VarType.TensorDesc(data_type=codes[array.dtype], dims=array.shape)
            raw = description.SerializeToString()
            stream.write(struct.pack("<IQIi", 0, 0, 0, len(raw)) + raw)
            stream.write(array.data)
