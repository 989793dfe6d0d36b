"""How the command line spells the options and keys that messages name (nlpctl/spelling.py)."""

from __future__ import annotations

import shlex

from nlpctl.spelling import SHORTHANDS, short_name

# Options that are called otherwise than the parameters of nlpctl.api. `path`: where it is that of a ready model.
_OPTIONS = {"output": "-o", "count": "-n", "formats": "--format", "precisions": "--precision", "path": "--task"}


def flag(name: str, value: str | None) -> str:
    """`--NAME VALUE`; a switch is "true" and stands alone. A key without a flag of its own is given by --set."""
    short = short_name(name) if "." in name else None
    if "." in name and short is None:
        name, value = "set", name if value is None else f"{name}={value}"
    elif short is not None:  # fields of PaddleNLP keep their underscores
        name = short.replace("_", "-") if short in SHORTHANDS else short
    if name == "set" and value is not None:
        value = shlex.quote(value)
    spelled = _OPTIONS.get(name, f"--{name}")
    return spelled if value in (None, "true") else f"{spelled} {value}"
