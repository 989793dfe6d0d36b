"""Keywords of the Python module as the command line would give them: learning_rate=3e-5 is --learning_rate 3e-5."""

from __future__ import annotations

import json
import numbers
import os
from collections.abc import Mapping, Sequence
from typing import Any

from nlpctl.cli.field_flags import field_flags, similar_fields
from nlpctl.config.keys import CUTOFF, all_keys
from nlpctl.config.load import Override
from nlpctl.errors import Problem, UserError
from nlpctl.names import nearest


def overrides_of(keys: Mapping[str, Any] | None, fields: Mapping[str, Any]) -> list[Override]:
    """Values of dotted keys, and of keywords named like flags. UserError lists every unknown keyword."""
    known = field_flags()
    problems = [_unknown(name) for name in fields if name not in known]
    if problems:
        raise UserError(problems=problems)
    found = [Override(key, _text(value, key), key) for key, value in (keys or {}).items()]
    return found + [Override(known[name].dotted, _text(value, name), name) for name, value in fields.items()]


def command_line(source: str | Mapping[str, Any], changes: Sequence[Override], **flags: bool) -> list[str]:
    """The equivalent `nlpctl train` command line, for the manifest of the run."""
    words = ["nlpctl", "train", source if isinstance(source, str) else "(a dict)"]
    words += [f"--{name}" for name, wanted in flags.items() if wanted]
    for change in changes:
        assigned = f"{change.flag}={change.text}"
        words += ["--set", assigned] if "." in change.flag else [f"--{assigned}"]
    return words


def _unknown(name: str) -> Problem:
    elsewhere = [dotted for dotted in all_keys() if dotted.endswith(f".{name}")]
    near = nearest(name, field_flags(), CUTOFF)
    similar = similar_fields(name) or ([near] if near else [])
    if elsewhere:
        hint = f"this key is set by set={{{elsewhere[0]!r}: ...}}"
    elif similar:
        hint = f"did you mean {' or '.join(similar)}?"
    else:
        hint = "`nlpctl recipe flags` lists the fields; other keys are set by set={'data.max_seq_length': 48}"
    return Problem("there is no such keyword", where=name, hint=hint)


def _text(value: Any, name: str) -> str:
    """`value` as it would be written on the command line."""
    if isinstance(value, str | os.PathLike):
        return os.fspath(value)
    if value is None or isinstance(value, bool | list | tuple | dict):
        try:
            return json.dumps(value, ensure_ascii=False, default=os.fspath)
        except TypeError as error:
            raise UserError(f"a value cannot be part of a recipe: {error}", name, "give texts and numbers") from None
    if isinstance(value, numbers.Number):  # NumPy's too
        return str(value)
    hint = "give a text, a number, True, False, None, a list or a dict"
    raise UserError(f"a {type(value).__name__} cannot be the value of a key", name, hint)
