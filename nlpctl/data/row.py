"""What a reader yields: a row, or what is wrong with it, with the place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nlpctl.names import did_you_mean, listed


class Row(NamedTuple):
    """One record: `values` maps column or key to what the file holds there.

    `line` is a line number, the path inside a nested document (data[3].paragraphs[0].qas[2]), or [3], the place in a
    list that a program gave.
    """

    source: str
    line: int | str
    values: Mapping[str, Any]


class BadRow(NamedTuple):
    """A record that cannot be used. `reason` reads "kind: details"; kinds are counted, details shown."""

    source: str
    line: int | str
    reason: str

    @property
    def kind(self) -> str:
        return self.reason.split(":", 1)[0]

    @property
    def where(self) -> str:
        line = str(self.line)
        return f"{self.source}{line}" if line.startswith("[") else f"{self.source}:{line}"


def missing_key(values: Mapping[str, Any], required: Sequence[str]) -> str | None:
    """The reason why `values` lacks a required key, or None."""
    for name in required:
        if name not in values:
            return f"missing key {name!r}: the keys are {listed(values)}{did_you_mean(name, values)}"
    return None
