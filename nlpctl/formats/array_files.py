"""Reads files of named arrays: NumPy files, and the pickles of `paddle.static.save`."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nlpctl.errors import UserError
from nlpctl.formats.safe_pickle import BROKEN_HINT, guarded, load_state

# uint16 holds the bits of a bfloat16
_DTYPES = ("float32", "float64", "float16", "uint16", "int8", "int16", "int32", "int64", "uint8", "bool")


def read_numpy(file: Path) -> np.ndarray:
    """The array of a .npy file, mapped. UserError: cut off, objects instead of numbers, larger than the file."""
    return checked(file, file.name, guarded(file, lambda: np.load(file, mmap_mode="r", allow_pickle=False)))


def checked(file: Path, name: str, array: np.ndarray) -> np.ndarray:
    """The array in the byte order of this machine. UserError: of a type that parameters do not have."""
    if array.dtype.name not in _DTYPES:
        raise UserError(
            f"{name[:120]!r} is of type {array.dtype}, which parameters are not",
            where=str(file),
            hint="known types: bfloat16 (as uint16), " + ", ".join(name for name in _DTYPES if name != "uint16"),
        )
    array = np.asarray(array)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


@dataclass(frozen=True)
class Pickled:
    """The content of a pickle. `structured`: variable -> dygraph name, of a `.pdiparams.info` or dygraph `.pdparams`.

    `others`: entries that are no arrays, such as a scheduler's state.
    """

    file: Path
    arrays: Mapping[str, np.ndarray]
    structured: Mapping[str, str]
    others: tuple[str, ...]
    is_info: bool


def read_pickle(file: Path) -> Pickled:
    """Read a pickle of arrays, or of what `jit.save` notes about them. UserError: it names anything else."""
    contents = load_state(file)
    if contents and all(_is_note(value) for value in contents.values()):
        notes = {name: value["structured_name"] for name, value in contents.items() if "structured_name" in value}
        if not all(isinstance(name, str) for name in (*contents, *notes.values())):
            raise UserError("has a parameter whose name is not text", where=str(file), hint=BROKEN_HINT)
        return Pickled(file, {}, {**dict.fromkeys(contents, ""), **notes}, (), is_info=True)
    arrays = {
        name: checked(file, name, value)
        for name, value in contents.items()
        if isinstance(value, np.ndarray) and isinstance(name, str)
    }
    others = tuple(str(name)[:120] for name in contents if name not in arrays)
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        # Paddle adds this table, from dygraph name to internal name, to the state_dict of a dygraph network
        is_dygraph = mapped.find(b"StructuredToParameterName@@") >= 0
    return Pickled(file, arrays, {name: name for name in arrays} if is_dygraph else {}, others, is_info=False)


def _is_note(value: Any) -> bool:
    return isinstance(value, dict) and "stop_gradient" in value
