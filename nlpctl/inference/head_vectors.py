"""The vectors by which a network decides: what its last linear layer is given."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import numpy as np
import paddle

from nlpctl.data.collate import Batch
from nlpctl.errors import UserError
from nlpctl.inference.layer_outputs import token_counts


class HeadVectors:
    """Catches the input of the linear layer that runs last, in its context.

    Of a classifier that is the pooled vector of a text, of a tagger one of each token. Of an ensemble it is that of the
    last member.
    """

    def __init__(self, network: paddle.nn.Layer):
        """UserError: there is no linear layer, as a network of the user's own may have it."""
        self._pad_id = getattr(getattr(network, "config", None), "pad_token_id", 0)
        self._layers = [layer for layer in network.sublayers() if isinstance(layer, paddle.nn.Linear)]
        if not self._layers:
            message = "this network has no linear layer, whose input would be the vector of a text"
            raise UserError(message, where="MODEL", hint="give it one as its head: paddle.nn.Linear")
        self._handles: list[Any] = []
        self._caught: paddle.Tensor | None = None

    def __enter__(self) -> HeadVectors:
        self._handles = [layer.register_forward_pre_hook(self._keep) for layer in self._layers]
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for handle in self._handles:
            handle.remove()

    def _keep(self, layer: paddle.nn.Layer, inputs: tuple[paddle.Tensor, ...]) -> None:
        self._caught = inputs[0]

    def of(self, batch: Batch) -> np.ndarray:
        """The vectors of the batch that the network has just read, float32 [rows, width]; of tokens their mean."""
        assert self._caught is not None, "the network was not called"
        found = self._caught.numpy().astype(np.float32)
        if found.ndim == 2:
            return found
        found = found.reshape(found.shape[0], -1, found.shape[-1])
        if found.shape[1] != batch["input_ids"].shape[1]:
            return found.mean(1)
        lengths = token_counts(batch, self._pad_id)
        inside = np.arange(found.shape[1]) < lengths[:, None]
        return (found * inside[..., None]).sum(1) / np.maximum(lengths, 1)[:, None]
