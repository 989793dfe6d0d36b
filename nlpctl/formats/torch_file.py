"""Reads `pytorch_model.bin` without PyTorch: the zip format, and the older one (PyTorch < 1.6)."""

from __future__ import annotations

import collections
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from nlpctl.errors import UserError
from nlpctl.formats.safe_pickle import BROKEN_HINT, RestrictedUnpickler, guarded

_STORAGE_DTYPES = {
    "DoubleStorage": np.float64,
    "FloatStorage": np.float32,
    "HalfStorage": np.float16,
    "BFloat16Storage": np.uint16,  # bits of a bfloat16; widened by weights.to_float32
    "LongStorage": np.int64,
    "IntStorage": np.int32,
    "ShortStorage": np.int16,
    "CharStorage": np.int8,
    "ByteStorage": np.uint8,
    "BoolStorage": np.bool_,
}


def load_torch_file(path: Path) -> dict[str, np.ndarray]:
    """Parameter name to array. Raises UserError for damaged files and for pickles that hold code."""
    with path.open("rb") as stream:
        loaded = guarded(path, lambda: _read_zip(stream) if zipfile.is_zipfile(stream) else _read_legacy(stream))
    # Training frameworks save {"state_dict": ..., "epoch": ...}.
    if isinstance(loaded, dict) and isinstance(loaded.get("state_dict"), dict):
        loaded = loaded["state_dict"]
    if not isinstance(loaded, dict):
        raise UserError("holds no parameters", where=str(path), hint=BROKEN_HINT)
    return {name: value for name, value in loaded.items() if isinstance(name, str) and isinstance(value, np.ndarray)}


def _read_zip(stream: BinaryIO) -> Any:
    """PyTorch >= 1.6: PREFIX/data.pkl holds the structure, PREFIX/data/KEY the raw storages."""
    stream.seek(0)
    with zipfile.ZipFile(stream) as archive:
        pickle_name = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
        prefix = pickle_name.removesuffix("data.pkl")
        storages: dict[str, np.ndarray] = {}

        def storage(saved: tuple) -> np.ndarray:
            _, dtype, key, _, count = saved
            if key not in storages:
                storages[key] = np.frombuffer(archive.read(f"{prefix}data/{key}"), dtype=dtype, count=count)
            return storages[key]

        with archive.open(pickle_name) as structure:
            return _unpickle(structure, storage)


def _read_legacy(stream: BinaryIO) -> Any:
    """Older: magic number, version, platform, structure and keys as pickles, then the raw storages in order."""
    stream.seek(0)
    storages: dict[str, np.ndarray] = {}

    def storage(saved: tuple) -> np.ndarray:
        _, dtype, key, _, count, view = saved
        if view is not None:
            raise ValueError("views between storages are not supported")
        # The data follow after the structure, so tensors are views of zeros that are filled below.
        return storages.setdefault(key, np.zeros(count, dtype=dtype))

    magic, *_ = [_unpickle(stream, storage) for _ in range(3)]
    if magic != 0x1950A86A20F9469CFC6C:
        raise ValueError("not written by torch.save")
    loaded = _unpickle(stream, storage)  # tensors are views of the storages, which are filled below
    for key in _unpickle(stream, storage):
        count = int.from_bytes(stream.read(8), "little")
        raw = stream.read(count * storages[key].itemsize)
        storages[key][:] = np.frombuffer(raw, dtype=storages[key].dtype)
    return loaded


def _unpickle(stream: Any, storage: Any) -> Any:
    unpickler = RestrictedUnpickler(stream, _ALLOWED, encoding="utf-8")
    unpickler.persistent_load = storage
    return unpickler.load()


def _tensor(storage: np.ndarray, offset: int, size: tuple, stride: tuple, *_: Any) -> np.ndarray:
    """A tensor as a read-only view of its storage; refuses to look outside it."""
    # as_strided checks nothing: a forged stride would read foreign memory.
    last = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    if offset < 0 or min((*size, *stride, 0)) < 0 or (0 not in size and last >= len(storage)):
        raise ValueError("a tensor reaches outside its storage")
    steps = [step * storage.itemsize for step in stride]
    return np.lib.stride_tricks.as_strided(storage[offset:], tuple(size), steps, writeable=False)


def _parameter(data: np.ndarray, *_: Any) -> np.ndarray:
    return data


_ALLOWED = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    # Names, not dtype objects: a pickle could set the state of a dtype, which all arrays share.
    **{("torch", name): np.dtype(dtype).name for name, dtype in _STORAGE_DTYPES.items()},
}
