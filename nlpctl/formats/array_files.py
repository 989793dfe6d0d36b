"""Reads files of arrays: NumPy's own, alone and several in one archive, and the pickles of `paddle.static.save`."""

from __future__ import annotations

import contextlib
import io
import math
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from nlpctl.errors import UserError
from nlpctl.files import regular
from nlpctl.formats.bounds import check_shape, check_zip
from nlpctl.formats.safe_pickle import BROKEN_HINT, guarded, load_state, mapped, reason_of

# uint16 holds the bits of a bfloat16
_DTYPES = ("float32", "float64", "float16", "uint16", "int8", "int16", "int32", "int64", "uint8", "bool")


def read_numpy(file: Path) -> np.ndarray:
    """The array of a .npy file, mapped. UserError: cut off, objects instead of numbers, larger than the file."""
    return checked(file, file.name, guarded(file, lambda: map_numpy(file)))


def map_numpy(file: Path) -> np.ndarray:
    """The array of a .npy file, mapped. OSError or ValueError: as of `read_npz`."""
    with _reading(), regular(file).open("rb") as stream:
        dtype, shape, _ = _npy_head(stream)
        check_shape(shape, dtype.itemsize, file.stat().st_size - stream.tell())
        return np.load(file, mmap_mode="r", allow_pickle=False)


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    """ValueError for whatever a damaged file raises, but OSError: zipfile and the parser of heads raise nearly
    anything."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise ValueError(reason_of(error)) from error


def _npy_head(stream: BinaryIO) -> tuple[np.dtype, tuple[int, ...], bool]:
    """Number type, shape, and whether the values stand by columns; `stream` then stands before the values. ValueError:
    it is no .npy, or one of Python objects."""
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, by_columns, dtype = np.lib.format.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, by_columns, dtype = np.lib.format.read_array_header_2_0(stream)
    else:
        raise ValueError(f"version {version[0]}.{version[1]} of NumPy's format, which arrays of numbers do not need")
    if dtype.hasobject:
        raise ValueError("it holds objects of Python, not numbers")
    return dtype, shape, by_columns


def read_npz(file: Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz file by their names: numbers and texts.

    OSError or ValueError: it cannot be read, is damaged, or claims more than a file of its size holds.
    """
    with _reading(), zipfile.ZipFile(regular(file)) as archive:
        check_zip(archive, file.stat().st_size)
        return {name.removesuffix(".npy"): _npy_of(archive.read(name)) for name in archive.namelist()}


def _npy_of(content: bytes) -> np.ndarray:
    stream = io.BytesIO(content)
    dtype, shape, by_columns = _npy_head(stream)
    if dtype.kind not in "fiubU":
        raise ValueError(f"values of the type {dtype}")
    checked_shape = check_shape(shape, dtype.itemsize, len(content) - stream.tell())
    count = math.prod(checked_shape)
    array = np.frombuffer(content, dtype, count, stream.tell()) if count else np.empty(0, dtype)
    # Python cannot hold such a text, and fails with a SystemError.
    if dtype.kind == "U" and (array.astype(dtype.newbyteorder("=")).view(np.uint32) > sys.maxunicode).any():
        raise ValueError("a text of characters that are none")
    return array.reshape(checked_shape, order="F" if by_columns else "C")


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
    if contents and all(isinstance(value, dict) and "stop_gradient" in value for value in contents.values()):
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
    with mapped(file) as content:
        # Paddle adds this table, from dygraph name to internal name, to the state_dict of a dygraph network
        is_dygraph = content.find(b"StructuredToParameterName@@") >= 0
    return Pickled(file, arrays, {name: name for name in arrays} if is_dygraph else {}, others, is_info=False)

