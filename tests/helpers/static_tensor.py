"""A tensor in a file of its own, as Paddle 1.x and 2.x wrote parameters."""

from __future__ import annotations

from pathlib import Path

import paddle


def save_tensor(tensor: paddle.Tensor, file: Path) -> None:
    """Written by Paddle itself, whose function has another name since 3.0."""
    core = paddle.base.core
    save = core.save_dense_tensor if hasattr(core, "save_dense_tensor") else core.save_lod_tensor
    save(tensor.value().get_tensor(), str(file))
