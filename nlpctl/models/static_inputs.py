"""The input specs of a network, for its translation to a static graph."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

import numpy as np
import paddle


def static_inputs(network: paddle.nn.Layer, batch: Mapping[str, np.ndarray]) -> list[paddle.static.InputSpec | None]:
    """The arrays of `batch` in the order in which `forward` takes them, of any size; None for one in between."""
    names = list(inspect.signature(network.forward).parameters)
    last = max(names.index(name) for name in batch)
    return [
        paddle.static.InputSpec([None] * batch[name].ndim, str(batch[name].dtype), name) if name in batch else None
        for name in names[: last + 1]
    ]
