"""Writing a combined parameter file, as `nlpctl.formats.lod_tensor` describes and reads it."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from nlpctl.formats.lod_tensor import DTYPES

_CODES = {dtype: code for code, dtype in DTYPES.items()}


def write_tensors(file: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Write `tensors` in the order of their names, which Paddle reads a combined file by."""
    from paddle.base.proto import framework_pb2

    with file.open("wb") as stream:
        for name in sorted(tensors):
            array = np.ascontiguousarray(tensors[name])
            description = framework_pb2.VarType.TensorDesc(data_type=_CODES[array.dtype], dims=array.shape)
            raw = description.SerializeToString()
            stream.write(struct.pack("<IQIi", 0, 0, 0, len(raw)) + raw)
            stream.write(array.data)
