"""The outputs of inner layers of a network, collected by forward hooks."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import paddle

from nlpctl.data.batches.collate import Batch
from nlpctl.errors import UserError
from nlpctl.models.hooks import hooked
from nlpctl.models.network import max_positions
from nlpctl.models.parameters import no_match, whole_name


class LayerOutputs:
    """The outputs of the layers that match `patterns` (full names, like parameter names without the last part).

    A layer with several output tensors has NAME.0, NAME.1, ... UserError: a pattern matches no layer.
    """

    def __init__(self, network: paddle.nn.Layer, patterns: Sequence[str]):
        network.eval()
        self.network = network
        self._layers = _chosen(dict(network.named_sublayers()), patterns)
        self._token_axes: dict[str, int | None] | None = None
        self.left_out: dict[str, str] = {}  # name -> reason, known after the first batch

    def of(self, batch: Batch) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """The outputs of one padded batch: those per row [rows, ...], and those per token [tokens, ...].

        The tokens of all rows are concatenated without padding. UserError if no output has rows or tokens.
        """
        if self._token_axes is None:
            self._token_axes = self._find_axes(batch)
        outputs = self._run(batch)
        by_row, by_token = {}, {}
        lengths = token_counts(batch, self.network.config.pad_token_id)
        for name, axis in self._token_axes.items():
            if axis is None:
                by_row[name] = outputs[name]
            else:
                rows = np.moveaxis(outputs[name], axis, 1)
                by_token[name] = np.concatenate([row[:length] for row, length in zip(rows, lengths, strict=True)])
        return by_row, by_token

    def _find_axes(self, batch: Batch) -> dict[str, int | None]:
        """Output -> its axis of tokens, None for an output per row.

        Found with a second batch that has twice the rows and one column more (or less) of padding. The shapes of a
        single batch could match by chance.
        """
        first, second = self._run(batch), self._run(_altered(batch, self.network))
        axes: dict[str, int | None] = {}
        for name in first:
            one, other = first[name].shape, second[name].shape
            moved = [axis for axis in range(1, len(one)) if len(one) == len(other) and one[axis] != other[axis]]
            if not one or len(one) != len(other) or other[0] != 2 * one[0]:
                self.left_out[name] = "it has no entry per row"
            elif len(moved) > 1:
                self.left_out[name] = "it has one entry per two tokens"
            else:
                axes[name] = moved[0] if moved else None
        if not axes:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in self.left_out.items())
            hint = "name layers such as those of the encoder, or the classifier"
            message = f"no output to write ({reasons or 'the network never calls these layers'})"
            raise UserError(message, where="@[layer-outputs]", hint=hint)
        return axes

    @paddle.no_grad()
    def _run(self, batch: Batch) -> dict[str, np.ndarray]:
        with self._caught() as caught:
            self.network(**{name: paddle.to_tensor(array) for name, array in batch.items()})
        return {
            f"{layer}.{i}" if len(tensors) > 1 else layer: tensor.numpy()
            for layer, tensors in caught.items()
            for i, tensor in enumerate(tensors)
        }

    @contextlib.contextmanager
    def _caught(self) -> Iterator[dict[str, list[paddle.Tensor]]]:
        """Layer -> its output tensors inside the context."""
        caught: dict[str, list[paddle.Tensor]] = {}

        def hook(name: str) -> Any:
            def keep(layer: paddle.nn.Layer, inputs: Any, output: Any) -> None:
                if name in caught:
                    # A second call would overwrite the first, and which of them is meant is unknown.
                    message = f"{name} runs several times per text"
                    hint = "name the enclosing layer, which runs once"
                    raise UserError(message, where="@[layer-outputs]", hint=hint)
                caught[name] = _tensors(output)

            return keep

        with hooked(layer.register_forward_post_hook(hook(name)) for name, layer in self._layers.items()):
            yield caught


def token_counts(batch: Batch, pad_id: int) -> np.ndarray:
    """Tokens of each row, int64 [rows], up to the last one that is not padding."""
    real = batch["input_ids"] != pad_id
    return np.where(real.any(1), real.shape[1] - real[:, ::-1].argmax(1), 0)


def _chosen(layers: Mapping[str, paddle.nn.Layer], patterns: Sequence[str]) -> dict[str, paddle.nn.Layer]:
    chosen: set[str] = set()
    for pattern in patterns:
        expression = re.compile(whole_name(pattern))
        matching = {name for name in layers if expression.fullmatch(name)}
        if not matching:
            raise no_match(pattern, list(layers), "@[layer-outputs]", "layer")
        chosen |= matching
    return {name: layer for name, layer in layers.items() if name in chosen}


def _altered(batch: Batch, network: Any) -> Batch:
    """`batch` repeated twice, with one more column of padding; at the maximum length, with one column less."""
    ids = batch["input_ids"]
    most = max_positions(network)
    shrinks = most is not None and ids.shape[1] >= most
    altered = {}
    for name, array in batch.items():
        if array.shape == ids.shape:
            padding = network.config.pad_token_id if name == "input_ids" else 0
            array = array[:, :-1] if shrinks else np.pad(array, ((0, 0), (0, 1)), constant_values=padding)
        altered[name] = np.concatenate([array, array])
    return altered


def _tensors(output: Any) -> list[paddle.Tensor]:
    """The tensors in a layer's return value, in order."""
    if isinstance(output, paddle.Tensor):
        return [output]
    if isinstance(output, Mapping):
        output = list(output.values())
    return [tensor for part in output for tensor in _tensors(part)] if isinstance(output, list | tuple) else []
