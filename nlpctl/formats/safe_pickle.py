"""Reads pickled weights without executing code in them.

`model_state.pdparams` and `pytorch_model.bin` are pickles; unpickling an untrusted file runs any code that it names.
Neither `paddle.load` nor PaddleNLP's own reader prevents that. nlpctl reads both with an unpickler that only accepts
arrays and plain containers.

NumPy's classes are never handed out: a pickle may set the state of the objects it builds, and a
forged dtype or array state could reach into memory. Small stand-ins take their place and become
arrays once everything is checked.
"""

from __future__ import annotations

import collections
import mmap
import pickle
import pickletools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from nlpctl.errors import UserError

_MEMO = ("PUT", "BINPUT", "LONG_BINPUT")


class ForbiddenGlobal(Exception):
    """A pickle named something that is not on the list. `str()` is its dotted name."""


class RestrictedUnpickler(pickle.Unpickler):
    """An unpickler that resolves only the globals it was given."""

    def __init__(self, stream: BinaryIO, allowed: Mapping[tuple[str, str], Any], **options: Any):
        super().__init__(stream, **options)
        self._allowed = allowed

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self._allowed[module, name]
        except KeyError:
            raise ForbiddenGlobal(f"{module}.{name}") from None


def load_pdparams(path: Path) -> dict[str, np.ndarray]:
    """Read a file written by `paddle.save(network.state_dict())`: parameter name to array.

    Raises UserError when the file is cut off, is no such file, or names anything but arrays.
    """
    loaded = _load_dict(path, "parameters")
    slices = loaded.pop(_SLICES, {})
    return _join_slices(path, {name: _array(path, name, value) for name, value in loaded.items()}, slices)


def load_state(path: Path) -> dict[str, Any]:
    """Read a dict written by `paddle.save`, such as the state of an optimizer: arrays, numbers, and dicts of them.

    Raises UserError as `load_pdparams` does.
    """
    loaded = _load_dict(path, "training state")
    slices = loaded.pop(_SLICES, {})
    return _join_slices(path, {name: _plain_state(path, name, value) for name, value in loaded.items()}, slices)


def _load_dict(path: Path, what: str) -> dict[str, Any]:
    with path.open("rb") as stream:
        guarded(path, lambda: _check_sizes(path))
        loaded = guarded(path, lambda: RestrictedUnpickler(stream, ALLOWED, encoding="latin1").load())
    if not isinstance(loaded, dict):
        raise UserError(f"holds no {what}", where=str(path), hint=BROKEN_HINT)
    # Names, not arrays: Paddle's table from dygraph to internal names.
    loaded.pop("StructuredToParameterName@@", None)
    return loaded


def _plain_state(path: Path, name: str, value: Any, depth: int = 0) -> Any:
    """Dicts inside dicts, but not deep: a few hundred bytes can nest them so that walking them never ends."""
    if isinstance(value, dict) and depth < 3:
        return {inner: _plain_state(path, f"{name}.{inner}", item, depth + 1) for inner, item in value.items()}
    return value if isinstance(value, bool | int | float | str | None) else _array(path, name, value)


def guarded(path: Path, read: Callable[[], Any]) -> Any:
    """Run `read`, turning every way in which a bad pickle fails into one UserError."""
    try:
        return read()
    except ForbiddenGlobal as error:
        raise UserError(
            f"refused: this weights file wants to load {error}, which is code, not an array",
            where=str(path),
            hint="the file may be malicious: do not load it elsewhere; ask its author for safetensors",
        ) from None
    except MemoryError as error:
        raise UserError("claims more data than fits into memory", where=str(path), hint=BROKEN_HINT) from error
    except Exception as error:  # a broken pickle may raise nearly anything
        reason = str(error) or type(error).__name__
        raise UserError(f"is cut off or damaged ({reason})", where=str(path), hint=BROKEN_HINT) from error


BROKEN_HINT = "copy or download the weights again and compare their size with the original"

# Paddle splits arrays above 1 GiB into slices when it saves with pickle protocol 2 or 3.
_SLICES = "UnpackBigParamInfor@@"


def _join_slices(path: Path, arrays: dict[str, np.ndarray], slices: Any) -> dict[str, np.ndarray]:
    def join() -> dict[str, np.ndarray]:
        for name, info in slices.items():
            # pop: a slice that is listed twice fails instead of filling the memory.
            parts = [arrays.pop(part) for part in info["slices"]]
            arrays[name] = np.concatenate(parts).reshape(info["OriginShape"])
        return arrays

    return guarded(path, join)


def _array(path: Path, name: Any, value: Any) -> np.ndarray:
    """The array of one entry; Paddle stores tensors as arrays or as (internal name, array)."""
    if isinstance(value, tuple) and len(value) == 2:
        value = value[1]
    if not isinstance(name, str) or not isinstance(value, _Array) or value.data is None:
        raise UserError(f"entry {str(name)[:80]!r} is not an array", where=str(path), hint=BROKEN_HINT)
    return value.data


class _Dtype:
    """Stand-in for numpy.dtype: numeric kinds only, and no state but the byte order."""

    def __init__(self, code: str, align: bool = False, copy: bool = False):
        self.dtype = np.dtype(str(code))
        # Object arrays would unpickle further objects; strings and records are no parameters.
        if self.dtype.kind not in "fiub":
            raise ForbiddenGlobal(f"numpy.dtype({code!r})")

    def __setstate__(self, state: tuple) -> None:
        # The rest of the state can describe sub-arrays and fields, by which a forged dtype reads out of bounds.
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


class _Array:
    """Stand-in for numpy.ndarray while it is being rebuilt."""

    data: np.ndarray | None = None

    def __setstate__(self, state: tuple) -> None:
        # frombuffer checks the length against shape and dtype; ndarray.__setstate__ would trust them.
        _, shape, dtype, fortran, raw = state
        self.data = _from_bytes(raw, dtype, shape, "F" if fortran else "C")


def _from_bytes(raw: bytes | str, dtype: _Dtype, shape: tuple, order: str) -> np.ndarray:
    raw = raw.encode("latin1") if isinstance(raw, str) else raw
    return np.frombuffer(raw, dtype=dtype.dtype).reshape(shape, order=order)


def _reconstruct(subtype: Any, shape: Any, typecode: Any) -> _Array:
    return _Array()


def _frombuffer(raw: Any, dtype: _Dtype, shape: tuple, order: str) -> _Array:
    array = _Array()
    array.data = _from_bytes(bytes(raw), dtype, shape, order)
    return array


def _encode(text: str, codec: str) -> bytes:
    if codec != "latin1":
        raise ForbiddenGlobal(f"_codecs.encode to {codec}")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    """Stands for bytes(), by which pickle protocol 2 writes b""."""
    return b""


_CORE = ("numpy.core", "numpy._core")  # NumPy 1 and NumPy 2
ALLOWED: Mapping[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("builtins", "tuple"): tuple,
    ("__builtin__", "tuple"): tuple,
    ("numpy", "ndarray"): "ndarray",  # only ever an argument of _reconstruct, which ignores it
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encode,
    ("__builtin__", "bytes"): _no_bytes,
    **{(f"{core}.multiarray", "_reconstruct"): _reconstruct for core in _CORE},
    **{(f"{core}.numeric", "_frombuffer"): _frombuffer for core in _CORE},
}


def _check_sizes(path: Path) -> None:
    """Raise ValueError when the pickle in `path` is cut off, or claims more than a file of its size can hold.

    `LONG_BINPUT 2147483647` is five bytes, and makes the unpickler clear a table of 34 GB; lengths of strings and
    frames are allocated before they are read. Python's own pickler writes neither.
    """
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        for opcode, argument, position in pickletools.genops(mapped):  # reads no further than the file goes
            too_far = opcode.name in _MEMO and argument > len(mapped)
            too_long = opcode.name == "FRAME" and argument > len(mapped) - position
            if too_far or too_long:
                raise ValueError(f"{opcode.name} at byte {position} claims {argument} in {len(mapped)} bytes")
