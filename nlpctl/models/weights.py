"""Reading the weights of a model folder, in any of the formats, as NumPy arrays."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nlpctl.errors import UserError
from nlpctl.models.safe_pickle import BROKEN_HINT, load_pdparams
from nlpctl.models.source import read_json, weights_file
from nlpctl.models.torch_file import load_torch_file

_SAFETENSORS_DTYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": np.uint16,  # the bits; widened by to_float32
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U8": np.uint8,
    "BOOL": np.bool_,
}


@dataclass(frozen=True)
class Weights:
    """What a weights file holds: parameter name to array, under the file's own names and layout."""

    file: Path
    arrays: Mapping[str, np.ndarray]


def read_weights(folder: Path) -> Weights:
    """Read the weights of a folder (all shards of them). Raises UserError when a file is missing or damaged."""
    file = weights_file(folder)
    if file is None:
        raise UserError("no weights in this folder", where=str(folder), hint="copy the model folder again")
    return read_weights_file(file)


def read_weights_file(file: Path) -> Weights:
    """Read one weights file, or the shards that an index file lists."""
    if file.stat().st_size == 0:
        raise UserError("the weights file is empty", where=str(file), hint=BROKEN_HINT)
    arrays = _read_shards(file) if file.name.endswith(".index.json") else _reader(file)(file)
    if not arrays:
        raise UserError("holds no parameters", where=str(file), hint=BROKEN_HINT)
    return Weights(file, arrays)


def to_float32(array: np.ndarray) -> np.ndarray:
    """Widen half precision to float32; unsigned 16-bit integers are the bits of a bfloat16."""
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32)


def read_safetensors(file: Path) -> dict[str, np.ndarray]:
    """Read a safetensors file; unlike safetensors.numpy this takes bfloat16, as its bits."""
    import safetensors

    try:
        entries = safetensors.deserialize(file.read_bytes())
    except safetensors.SafetensorError as error:
        raise UserError(f"is cut off or damaged ({error})", where=str(file), hint=BROKEN_HINT) from error
    unknown = sorted({entry["dtype"] for _, entry in entries} - set(_SAFETENSORS_DTYPES))
    if unknown:
        raise UserError(f"holds the number type {unknown[0]}", where=str(file), hint="convert the weights to float32")
    return {
        name: np.frombuffer(entry["data"], dtype=_SAFETENSORS_DTYPES[entry["dtype"]]).reshape(entry["shape"])
        for name, entry in entries
    }


def _reader(file: Path) -> Callable[[Path], dict[str, np.ndarray]]:
    readers = {".pdparams": load_pdparams, ".safetensors": read_safetensors, ".bin": load_torch_file}
    return readers[file.suffix]


def _read_shards(index: Path) -> dict[str, np.ndarray]:
    """Read every shard that the index names, and check that each parameter is where the index says."""
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise UserError("has no weight_map", where=str(index), hint=BROKEN_HINT)
    arrays: dict[str, np.ndarray] = {}
    for name in sorted(set(weight_map.values())):
        shard = index.parent / name
        if Path(name).name != name or shard.suffix not in (".pdparams", ".safetensors", ".bin"):
            raise UserError(f"names a shard outside the folder: {json.dumps(name)}", where=str(index), hint=BROKEN_HINT)
        if not shard.is_file():
            raise UserError(f"shard {name} is missing", where=str(index), hint="copy all shards of the weights")
        arrays.update(_reader(shard)(shard))
    missing = sorted(set(weight_map) - set(arrays))
    if missing:
        raise UserError(f"its shards lack {missing[0]} and {len(missing) - 1} more", where=str(index), hint=BROKEN_HINT)
    return arrays
