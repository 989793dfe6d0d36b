"""Changes of a network's parameters before training, in the order in which they are applied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import paddle

from nlpctl.config.schema import ModelSection
from nlpctl.errors import UserError
from nlpctl.models.add_tokens import AddedTokens
from nlpctl.models.parameters import count, named, select, set_parameters
from nlpctl.names import counted
from nlpctl.upstream.frozen_layers import pass_gradients


@dataclass(frozen=True)
class Changes:
    """`tied`: pairs of names that are one parameter now. `values`: pattern to the names that were set.

    `frozen`: names of parameters that are not trained.
    """

    added: AddedTokens | None = None
    tied: Sequence[tuple[str, str]] = ()
    values: Mapping[str, Sequence[str]] = field(default_factory=dict)
    frozen: Sequence[str] = ()

    def summary(self) -> dict[str, Any]:
        """JSON-ready, for the manifest: how many parameters (names) were changed, and how."""
        return {
            "added_tokens": 0 if self.added is None else len(self.added.new),
            "tied": len(self.tied),
            "set": {pattern: len(names) for pattern, names in self.values.items()},
            "frozen_names": len(self.frozen),
        }


def change_parameters(network: Any, model: ModelSection, added: AddedTokens | None, seed: int) -> Changes:
    """Tie, set and freeze parameters as `model` says; `seed` is for values that are drawn.

    UserError, blaming the key, for what does not fit.
    """
    return Changes(
        added,
        tie(network, model.tie, "model.tie"),
        # config/checks.py refuses true, false and null here.
        set_parameters(network, cast(Mapping[str, float | str], model.set_parameters), "model.set_parameters", seed),
        freeze(network, model.freeze, "model.freeze"),
    )


def parameter_counts(network: Any) -> dict[str, int]:
    """The number of parameter elements: total, trainable and frozen."""
    parameters = named(network).values()
    frozen = count(parameter for parameter in parameters if parameter.stop_gradient)
    total = count(parameters)
    return {"total": total, "trainable": total - frozen, "frozen": frozen}


def describe_changes(network: Any, changes: Changes) -> list[str]:
    """For the console, line by line; nothing if nothing was changed."""
    lines = [] if changes.added is None else changes.added.describe()
    if changes.tied:
        first, second = changes.tied[0]
        lines.append(f"tied {counted(len(changes.tied), 'parameters')}, from {second} (now {first}) on")
    for pattern, names in changes.values.items():
        lines.append(f"set {names[0]}" + (f" and {len(names) - 1} more, by {pattern}" if len(names) > 1 else ""))
    if changes.frozen:
        counts = parameter_counts(network)
        lines.append(
            f"frozen: {counts['frozen']:,} of {counts['total']:,} parameters, {changes.frozen[0]} to "
            f"{changes.frozen[-1]}; {counts['trainable']:,} are trained"
        )
    return lines


def tie(network: Any, pairs: Sequence[Sequence[str]], where: str) -> list[tuple[str, str]]:
    """Ties the parameters of each pair's second pattern to those of its first, in order. Returns the pairs of names.

    The second may match several times as many: [[encoder.layers.0, encoder.layers.1-5]] shares one layer among six.
    A saved model has every value under both names. UserError, blaming the key `where`: a pattern matches nothing, the
    two do not match parameters of the same shapes, or the same parameter stands on both sides.
    """
    tied: list[tuple[str, str]] = []
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
        # RNNBase also lists its parameters in _all_weights; forward reads that list, so setattr would have no effect.
        layer = dict(network.named_sublayers(include_self=True))[each.rpartition(".")[0]]
        if isinstance(layer, paddle.nn.layer.rnn.RNNBase | paddle.nn.layer.rnn.RNNCellBase):
            hint = "tie other layers; Paddle's recurrent layers keep a second list of their parameters"
            raise UserError(f"{each} belongs to a recurrent layer, which cannot be tied", where=where, hint=hint)


def _replace(network: Any, old: Any, new: Any) -> None:
    """Replaces `old` by `new` under all of its names."""
    for layer in network.sublayers(include_self=True):
        for name, parameter in list(layer._parameters.items()):
            if parameter is old:
                setattr(layer, name, new)


def freeze(network: paddle.nn.Layer, patterns: Sequence[str], where: str) -> list[str]:
    """Freeze the parameters that match `patterns`, and return the names. Every name of a shared parameter is frozen
    with it.

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
        is_batch_norm = isinstance(layer, paddle.nn.layer.norm._BatchNormBase | paddle.nn.BatchNorm)
        if is_batch_norm and all(parameter.stop_gradient for parameter in layer.parameters()):
            # Frozen affine parameters alone would not do: running statistics move in every forward pass of training.
            layer._use_global_stats = True
    # After the freezing, since it looks at stop_gradient.
    pass_gradients(network)
    return [name for name, parameter in parameters.items() if id(parameter) in chosen]
