"""What a recipe changes about the parameters of a network before it is trained, in the order in which it is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nlpctl.config.schema import ModelSection
from nlpctl.models.add_tokens import AddedTokens
from nlpctl.models.freeze import freeze
from nlpctl.models.parameters import count, named, set_parameters
from nlpctl.models.tie import tie


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


def change_parameters(network: Any, model: ModelSection, added: AddedTokens | None) -> Changes:
    """Tie, set and freeze parameters as `model` says. UserError, blaming the key, for what does not fit."""
    return Changes(
        added,
        tie(network, model.tie, "model.tie"),
        set_parameters(network, model.set_parameters, "model.set_parameters"),
        freeze(network, model.freeze, "model.freeze"),
    )


def parameter_counts(network: Any) -> dict[str, int]:
    """How many numbers the network holds, and how many of them are trained and frozen."""
    parameters = named(network).values()
    frozen = count(parameter for parameter in parameters if parameter.stop_gradient)
    total = count(parameters)
    return {"total": total, "trainable": total - frozen, "frozen": frozen}


def describe_changes(network: Any, changes: Changes) -> list[str]:
    """For the console, line by line; nothing where nothing was changed."""
    lines = [] if changes.added is None else changes.added.describe()
    if changes.tied:
        first, second = changes.tied[0]
        lines.append(f"tied {len(changes.tied)} parameters, from {second} (now {first}) on")
    for pattern, names in changes.values.items():
        lines.append(f"set {names[0]}" + (f" and {len(names) - 1} more, as {pattern} says" if len(names) > 1 else ""))
    if changes.frozen:
        counts = parameter_counts(network)
        lines.append(
            f"frozen: {counts['frozen']:,} of {counts['total']:,} parameters, {changes.frozen[0]} to "
            f"{changes.frozen[-1]}; {counts['trainable']:,} are trained"
        )
    return lines
