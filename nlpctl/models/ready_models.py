"""The registry of ready models: networks that predict without training, by the name of what they do.

The entries are in ready_models.yaml. Imports neither Paddle nor NumPy; inference/ready_models.py makes the model
folders.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from nlpctl.errors import UserError
from nlpctl.names import did_you_mean

ENTRIES = Path(__file__).with_name("ready_models.yaml")
PREFIX = "task:"


@dataclass(frozen=True)
class ReadyModel:
    """One entry; ready_models.yaml explains the fields."""

    name: str
    task: str
    help: str
    source: str
    licence: str
    tested: str
    also: tuple[str, ...] = ()
    convert_to: str | None = None
    labels: tuple[str, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)


@functools.cache
def ready_models() -> tuple[ReadyModel, ...]:
    """All entries, in the order of the file."""
    entries = yaml.safe_load(ENTRIES.read_text(encoding="utf-8"))
    models = []
    for name, entry in entries.items():
        fields: dict[str, Any] = entry
        lists = {key: tuple(value) for key, value in fields.items() if isinstance(value, list)}
        models.append(ReadyModel(name, **(fields | lists)))
    return tuple(models)


def ready_model(name: str) -> ReadyModel:
    """The entry of `name`, which may be one of `also`. UserError that lists the names if there is none."""
    by_name = {each: entry for entry in ready_models() for each in (entry.name, *entry.also)}
    if name in by_name:
        return by_name[name]
    listed = "; ".join(f"{', '.join((entry.name, *entry.also))}: {entry.help}" for entry in ready_models())
    # All tasks of analysis end alike, so only a close spelling is worth showing.
    guess = did_you_mean(name, by_name, cutoff=0.8)
    message = f"there is no ready model {name!r}{guess}" if name else "needs the name of a task"
    raise UserError(message, "@[path]", f"there are {listed}")
