"""Parameters that training leaves as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle

from nlpctl.errors import UserError
from nlpctl.models.parameters import named, select
from nlpctl.upstream.frozen_layers import pass_gradients


def freeze(network: paddle.nn.Layer, patterns: Sequence[str], where: str) -> list[str]:
    """Freeze what `patterns` mean, and return the names. Every name of a shared parameter is frozen with it.

    The optimizer passes over frozen parameters, weight decay included. A normalisation layer that keeps statistics
    of its inputs (batch norm) keeps those it has when all its parameters are frozen.

    UserError, blaming the key `where`: a pattern matches nothing, or nothing is left to train.
    """
    parameters = named(network)
    chosen = {id(parameters[name]) for name in select(patterns, parameters, where)}
    for parameter in parameters.values():
        if id(parameter) in chosen:
            parameter.stop_gradient = True
    if all(parameter.stop_gradient for parameter in parameters.values()):
        hint = "leave out the task head, such as classifier"
        raise UserError("every parameter is frozen: nothing is left to train", where=where, hint=hint)
    for layer in network.sublayers():
        if _keeps_statistics(layer) and all(parameter.stop_gradient for parameter in layer.parameters()):
            layer._use_global_stats = True
    pass_gradients(network)
    return [name for name, parameter in parameters.items() if id(parameter) in chosen]


def _keeps_statistics(layer: Any) -> bool:
    """Whether it is a batch norm: training moves its mean and variance, which no gradient reaches."""
    return isinstance(layer, paddle.nn.layer.norm._BatchNormBase | paddle.nn.BatchNorm)
