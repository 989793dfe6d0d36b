"""Declaring a recipe key: type, default, and one-line help."""

from __future__ import annotations

from dataclasses import field
from typing import Any

Scalar = str | int | float | bool | None


def key(default: Any, help: str) -> Any:
    """A recipe key: its default and its one-line meaning (shown in help, schema and docs)."""
    return field(default=default, metadata={"help": help})


def mapping_key(help: str) -> Any:
    """A recipe key that holds free names, empty by default (a plain dict: it pickles and copies)."""
    return field(default_factory=dict, metadata={"help": help})
