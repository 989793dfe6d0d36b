"""Reads `pytorch_model.bin` without PyTorch: the zip format, and the older one (PyTorch < 1.6)."""

from __future__ import annotations

import io
import mmap
import zipfile
from pathlib import Path
from typing import Any, Literal

import numpy as np

from nlpctl.errors import UserError
from nlpctl.files import regular
from nlpctl.formats.bounds import are_whole, check_shape, check_zip
from nlpctl.formats.safe_pickle import BROKEN_HINT, RestrictedUnpickler, as_kind, guarded, mapped, ordered_dict

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
_NAMES = {np.dtype(dtype).name for dtype in _STORAGE_DTYPES.values()}
_BYTE_ORDERS: dict[bytes, Literal["<", ">"]] = {b"little": "<", b"big": ">"}


def load_torch_file(path: Path) -> dict[str, np.ndarray]:
    """Parameter name to array. Raises UserError for damaged files and for pickles that hold code."""

    def read() -> Any:
        if zipfile.is_zipfile(regular(path)):
            return _read_zip(path)
        with mapped(path) as stream:
            return _read_legacy(stream)

    loaded = guarded(path, read)
    # Training frameworks save {"state_dict": ..., "epoch": ...}.
    if isinstance(loaded, dict) and isinstance(loaded.get("state_dict"), dict):
        loaded = loaded["state_dict"]
    if not isinstance(loaded, dict):
        raise UserError("holds no parameters", where=str(path), hint=BROKEN_HINT)
    return {name: value for name, value in loaded.items() if isinstance(name, str) and isinstance(value, np.ndarray)}


def _read_zip(path: Path) -> Any:
    """PyTorch >= 1.6: PREFIX/data.pkl holds the structure, PREFIX/data/KEY the raw storages, PREFIX/byteorder theirs
    (PyTorch >= 2.1)."""
    with zipfile.ZipFile(path) as archive:
        check_zip(archive, path.stat().st_size)
        pickle_name = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
        prefix = pickle_name.removesuffix("data.pkl")
        written = archive.read(f"{prefix}byteorder") if f"{prefix}byteorder" in archive.namelist() else b"little"
        if written not in _BYTE_ORDERS:
            raise ValueError(f"byte order {written[:40]!r} is not known")
        storages: dict[str, np.ndarray] = {}

        def storage(saved: Any) -> np.ndarray:
            _, dtype, key, _, count = saved
            if as_kind(str, key) not in storages:
                raw = archive.read(f"{prefix}data/{key}")
                own = _checked(dtype, count, len(raw))
                stored = np.frombuffer(raw, own.newbyteorder(_BYTE_ORDERS[written]), count)
                storages[key] = stored.astype(own, copy=False)
            return storages[key]

        structure = archive.read(pickle_name)
        # What is packed in the archive has its size without the packing.
        size = len(structure) + sum(entry.file_size for entry in archive.infolist())
        return RestrictedUnpickler(io.BytesIO(structure), size, _ALLOWED, storage).load()


def _read_legacy(stream: mmap.mmap) -> Any:
    """Older: magic number, version, platform, structure and keys as pickles, then the raw storages in order."""
    stream.seek(0)
    size = len(stream)
    storages: dict[str, np.ndarray] = {}
    left = size

    def storage(saved: Any) -> np.ndarray:
        nonlocal left
        _, dtype, key, _, count, view = saved
        if view is not None:
            raise ValueError("views between storages are not supported")
        if as_kind(str, key) not in storages:
            # The data follow after the structure, so tensors are views of zeros that are filled below.
            storages[key] = np.zeros(count, dtype=_checked(dtype, count, left))
            left -= storages[key].nbytes
        return storages[key]

    unpickler = RestrictedUnpickler(stream, size, _ALLOWED, storage)
    magic, *_ = [unpickler.load() for _ in range(3)]
    if magic != 0x1950A86A20F9469CFC6C:
        raise ValueError("not written by torch.save")
    loaded = unpickler.load()
    for key in unpickler.load():
        values = storages.pop(key)
        count = int.from_bytes(stream.read(8), "little")
        if count != len(values):
            raise ValueError(f"a storage of {count} numbers where {len(values)} belong")
        values[:] = np.frombuffer(stream.read(values.nbytes), dtype=values.dtype, count=count)
    if storages:
        raise ValueError("it lacks a storage")
    return loaded


def _checked(dtype: Any, count: Any, available: int) -> np.dtype:
    """The number type of a storage. ValueError: it is none, or `count` of them are more than the `available` bytes."""
    if as_kind(str, dtype) not in _NAMES:
        raise ValueError("a storage of an unknown type")
    check_shape((count,), np.dtype(dtype).itemsize, available)
    return np.dtype(dtype)


def _tensor(storage: Any, offset: int, size: tuple, stride: tuple, *_: Any) -> np.ndarray:
    """A tensor as a read-only view of its storage; refuses to look outside it, or to be larger than it.

    A stride of 0 makes one number any number of them. PyTorch can save that, but no parameter is so.
    """
    # as_strided checks nothing: a forged stride would read foreign memory.
    check_shape(size, as_kind(np.ndarray, storage).itemsize, storage.nbytes)
    if not are_whole((offset, *as_kind(tuple, stride))):
        raise ValueError("a tensor whose stride is none")
    last = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    if 0 not in size and last >= len(storage):
        raise ValueError("a tensor reaches outside its storage")
    steps = [step * storage.itemsize for step in stride]
    return np.lib.stride_tricks.as_strided(storage[offset:], tuple(size), steps, writeable=False)


def _parameter(data: np.ndarray, *_: Any) -> np.ndarray:
    return data


_ALLOWED = {
    ("collections", "OrderedDict"): ordered_dict,
    ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    # Names, not dtype objects: a pickle could set the state of a dtype, which all arrays share.
    **{("torch", name): np.dtype(dtype).name for name, dtype in _STORAGE_DTYPES.items()},
}
