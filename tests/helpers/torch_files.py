"""Files as torch.save writes them, made without PyTorch, so that they can lie about their shapes."""

from __future__ import annotations

import collections
import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np


class Storage(tuple):
    """What torch.save stores as a persistent id."""


class Global:
    def __init__(self, module: str, name: str):
        self.module, self.name = module, name


class Call:
    def __init__(self, function: Any, arguments: Any):
        self.function, self.arguments = function, arguments


def pickled(value: Any) -> bytes:
    buffer = io.BytesIO()
    pickler: Any = pickle._Pickler(buffer, protocol=2)  # type: ignore[attr-defined]
    pickler.persistent_id = lambda value: tuple(value) if isinstance(value, Storage) else None
    pickler.dispatch = dict(pickler.dispatch)
    pickler.dispatch[Global] = lambda self, value: self.write(f"c{value.module}\n{value.name}\n".encode())
    pickler.dispatch[Call] = lambda self, call: (self.save(call.function), self.save(call.arguments), self.write(b"R"))
    pickler.dump(value)
    return buffer.getvalue()


def torch_pickle(
    offset: int = 0,
    size: tuple = (2, 2),
    stride: tuple = (2, 1),
    kind: str = "FloatStorage",
    count: int = 4,
    legacy: bool = False,
) -> bytes:
    """A data.pkl with one tensor."""
    tensor = Global("torch._utils", "_rebuild_tensor_v2")
    view = (None,) if legacy else ()
    storage = Storage(("storage", Global("torch", kind), "0", "cpu", count, *view))
    return pickled({"w": Call(tensor, (storage, offset, size, stride, False, collections.OrderedDict()))})


def torch_zip(
    path: Path, structure: bytes, storage: bytes = b"", kind: int = zipfile.ZIP_STORED, byteorder: bytes | None = None
) -> None:
    with zipfile.ZipFile(path, "w", kind) as archive:
        archive.writestr("archive/data.pkl", structure)
        archive.writestr("archive/data/0", storage)
        if byteorder is not None:
            archive.writestr("archive/byteorder", byteorder)


def torch_legacy(path: Path, structure: bytes, storage: np.ndarray, keys: Any = ("0",)) -> None:
    """As PyTorch before 1.6: pickles, the last of the keys of the storages, and these storages."""
    heads = (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})
    raw = storage.size.to_bytes(8, "little") + storage.tobytes()
    path.write_bytes(b"".join([*map(pickled, heads), structure, pickled(list(keys)), raw]))
