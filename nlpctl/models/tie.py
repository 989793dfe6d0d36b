"""Parameters that become one: what one of them learns, the other has learnt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle

from nlpctl.errors import UserError
from nlpctl.models.parameters import named, select


def tie(network: Any, pairs: Sequence[Sequence[str]], where: str) -> list[tuple[str, str]]:
    """Let the parameters of each pair's second pattern be those of its first, in their order. Returns the names.

    The second may match several times as many: [[encoder.layers.0, encoder.layers.1-5]] shares one layer among six.
    A saved model has every value under both names. UserError, blaming the key `where`: a pattern matches nothing, the
    two do not match parameters of the same shapes, or the same parameter stands on both sides.
    """
    tied = []
    for first, second in pairs:
        parameters = named(network)
        kept, replaced = select([first], parameters, where), select([second], parameters, where)
        both = next((name for name in replaced if name in kept), None)
        if both is not None:
            hint = "name two different parameters or layers"
            raise UserError(f"{first!r} and {second!r} both match {both}", where=where, hint=hint)
        if len(replaced) % len(kept):
            raise UserError(
                f"{first!r} matches {len(kept)} parameters and {second!r} {len(replaced)}",
                where=where,
                hint="they are tied one by one, in their order: name layers that are built alike",
            )
        repeated = kept * (len(replaced) // len(kept))
        for keep, name in zip(repeated, replaced, strict=True):
            _check(network, keep, name, parameters, where)
        for keep, name in zip(repeated, replaced, strict=True):
            _replace(network, parameters[name], parameters[keep])
        tied += zip(repeated, replaced, strict=True)
    return tied


def _check(network: Any, keep: str, name: str, parameters: dict[str, Any], where: str) -> None:
    shapes = [parameters[each].shape for each in (keep, name)]
    if shapes[0] != shapes[1]:
        raise UserError(
            f"{keep} is {shapes[0]} and {name} is {shapes[1]}", where=where, hint="tie parameters of the same shape"
        )
    for each in (keep, name):
        layer = dict(network.named_sublayers(include_self=True))[each.rpartition(".")[0]]
        if isinstance(layer, paddle.nn.layer.rnn.RNNBase | paddle.nn.layer.rnn.RNNCellBase):
            hint = "tie other layers; Paddle's recurrent layers keep a second list of their parameters"
            raise UserError(f"{each} belongs to a recurrent layer, which cannot be tied", where=where, hint=hint)


def _replace(network: Any, old: Any, new: Any) -> None:
    """Put `new` in place of `old`, under every name that it has."""
    for layer in network.sublayers(include_self=True):
        for name, parameter in list(layer._parameters.items()):
            if parameter is old:
                setattr(layer, name, new)
