"""Reads the weights of a model folder as NumPy arrays: .pdparams, safetensors, PyTorch, sharded or not."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nlpctl.errors import UserError
from nlpctl.files import parse_json, read_json
from nlpctl.formats.bounds import Allowance, are_whole, check_shape
from nlpctl.formats.safe_pickle import BROKEN_HINT, load_pdparams, reason_of
from nlpctl.formats.torch_file import load_torch_file
from nlpctl.outputs import refuse_pipe


@dataclass(frozen=True)
class Weights:
    """The content of a weights file: parameter name -> array, in the names and layout of the file."""

    file: Path
    arrays: Mapping[str, np.ndarray]


def read_weights_file(file: Path) -> Weights:
    """Read one weights file, or the shards that an index file lists. UserError: one is missing or damaged."""
    if file.stat().st_size == 0:
        raise UserError("the weights file is empty", where=str(file), hint=BROKEN_HINT)
    arrays = _read_shards(file) if file.name.endswith(".index.json") else _reader(file)(file)
    if not arrays:
        raise UserError("holds no parameters", where=str(file), hint=BROKEN_HINT)
    return Weights(file, arrays)


def weights_size(file: Path) -> int:
    """The bytes of a weights file, or of the shards beside an index file."""
    if not file.name.endswith(".index.json"):
        return file.stat().st_size
    return sum(path.stat().st_size for path in file.parent.iterdir() if path.suffix in _SUFFIXES and path.is_file())


_SUFFIXES = (".pdparams", ".safetensors", ".bin")


def _reader(file: Path) -> Callable[[Path], dict[str, np.ndarray]]:
    readers = {".pdparams": load_pdparams, ".safetensors": read_safetensors, ".bin": load_torch_file}
    return readers[file.suffix]


def _read_shards(index: Path) -> dict[str, np.ndarray]:
    """Read every shard that the index names, with parameters that it does not list. UserError: one is missing, or lies
    in two of them with different values."""
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise UserError("has no weight_map", where=str(index), hint=BROKEN_HINT)
    arrays: dict[str, np.ndarray] = {}
    for name in sorted(set(weight_map.values())):
        shard = index.parent / name
        # An index from elsewhere could name ../../secret or a file that is unpickled.
        if Path(name).name != name or shard.suffix not in _SUFFIXES:
            raise UserError(f"names a shard outside the folder: {json.dumps(name)}", where=str(index), hint=BROKEN_HINT)
        if not shard.is_file():
            raise UserError(f"shard {name} is missing", where=str(index), hint="copy all shards of the weights")
        for parameter, array in _reader(shard)(shard).items():
            if parameter in arrays and not np.array_equal(arrays[parameter], array):
                reason = f"{parameter} lies in two shards, with different values; one is {name}"
                raise UserError(reason, where=str(index), hint=BROKEN_HINT)
            arrays[parameter] = array
    missing = sorted(set(weight_map) - set(arrays))
    if missing:
        raise UserError(f"its shards lack {missing[0]} and {len(missing) - 1} more", where=str(index), hint=BROKEN_HINT)
    return arrays


def to_float32(array: np.ndarray) -> np.ndarray:
    """Widen half precision to float32; unsigned 16-bit integers are the bits of a bfloat16."""
    if array.dtype == np.uint16:
        # A bfloat16 is the upper half of a float32.
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32)


# -- safetensors ------------------------------------------------------------------------------------------------------

_LONGEST_HEADER = 16 << 20  # bytes: some 150,000 tensors
_SAFETENSORS_DTYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": np.uint16,  # the bits; widened by to_float32
    "U16": np.uint16,  # how PaddleNLP writes bfloat16
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U8": np.uint8,
    "BOOL": np.bool_,
}


def read_safetensors(file: Path) -> dict[str, np.ndarray]:
    """Read a safetensors file as views of the mapped file.

    Layout: 8 bytes with the length of the header, a JSON header of dtype, shape and offsets, the data.
    The safetensors library gives no bfloat16 to NumPy, and its low-level calls change between versions.
    """
    refuse_pipe(file)
    try:
        data = np.memmap(file, dtype=np.uint8, mode="r")
        length = int.from_bytes(data[:8].tobytes(), "little")
        if length > min(_LONGEST_HEADER, len(data)):
            raise ValueError(f"a header of {length:,} bytes")
        header = parse_json(data[8 : 8 + length].tobytes())
        # Free text of the writer, such as {"format": "pt"}; every other entry is a tensor.
        header.pop("__metadata__", None)
        values = data[8 + length :]
        left = Allowance(len(values), "values")  # no two tensors are the same bytes: each could be copied
        return {name: _tensor(values, entry, left) for name, entry in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"is cut off or damaged ({reason_of(error)})", where=str(file), hint=BROKEN_HINT) from error


def _tensor(data: np.ndarray, entry: Mapping[str, Any], left: Allowance) -> np.ndarray:
    begin, end = entry["data_offsets"]
    if entry["dtype"] not in _SAFETENSORS_DTYPES:
        raise ValueError(f"number type {str(entry['dtype'])[:40]} is not supported")
    if not are_whole((begin, end)) or not begin <= end <= len(data):
        raise ValueError(f"{len(data)} bytes of data where {str(end)[:40]} are needed")
    left.take(end - begin)
    dtype = np.dtype(_SAFETENSORS_DTYPES[entry["dtype"]])
    return np.frombuffer(data[begin:end], dtype=dtype).reshape(check_shape(entry["shape"], dtype.itemsize, end - begin))
