"""How a message names an option or a recipe key: as the command line takes it, or as nlpctl's Python module does.

Messages are written once, in a mark-up, and name no flag. What the reader would type is put in when a message is made
(`errors.Problem`), written (`console.note`, `console.warn`), or given to `spelled`:

    @[overwrite]                 --overwrite                      overwrite
    @[overwrite=true]            --overwrite                      overwrite=True
    @[budget=2]                  --budget 2                       budget=2
    @[runtime.device=cpu]        --device cpu                     device="cpu"
    @[training.max_steps=N]      --max_steps N                    max_steps=N
    @[data.dev=FILE]             --set data.dev=FILE              set={"data.dev": "FILE"}
    @[set=task=NAME]             --set task=NAME                  set={"task": "NAME"}

A name with a point is a key of a recipe; `set` spells any key in its long form. Other names are parameters: those of
nlpctl.api where it has them, else those of the command.

It is a mark-up and no function since many hints are constants of modules, made before anybody knows who will read them,
and it is no sign of Markdown or of wikis, since messages quote rows of data. A whole command, such as
`nlpctl train RUN --resume`, is written as it is: it is for a shell, whoever reads of it.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import re
from collections.abc import Callable, Mapping

Spelling = Callable[[str, str | None], str]  # of a name and its value, as in the mark-up

# Which spelling this process uses, as module:function. In the environment, so that processes which it starts, and whose
# messages it shows, have the same. The command line sets it; where nobody did, a program reads the messages.
VARIABLE, PYTHON, FLAGS = "NLPCTL_SPELLING", "nlpctl.spelling:python_argument", "nlpctl.cli.spelling:flag"

# Keys that are options and keyword arguments by a name of their own.
SHORTHANDS: Mapping[str, str] = {
    "device": "runtime.device",
    "devices": "runtime.devices",
    "nproc": "runtime.nproc",
    "threads": "runtime.threads",
    "deterministic": "runtime.deterministic",
    "cache_dir": "runtime.cache_dir",
    "labels": "data.labels",
    "trust_edits": "runtime.trust_edits",
}
_FIELD = re.compile(r"(?:training|compression)\.(\w+)")
# Two letters at least: @[a-z] is part of a regular expression, as in a row of data that a message quotes.
_MARK = re.compile(r"@\[([a-z]{2}[\w.-]*)(?:=(.*?))?\](?!\])", re.DOTALL)
_LITERALS = {"true": "True", "false": "False", "null": "None"}
_NUMBER = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?|[NK]")  # these stand for a number
_SEQUENCES = ("formats", "precisions")  # parameters of nlpctl.api that take no single text


def spelled(text: str) -> str:
    """`text` with each marked name as this process spells it."""
    return _MARK.sub(lambda mark: option(mark[1], mark[2]), text) if "@[" in text else text


def option(name: str, value: str | None = None) -> str:
    """The same for one name, with or without a value. For values of the user, which may hold any sign."""
    return _spelling(current())(name, value)


def settings(values: Mapping[str, str]) -> str:
    """The same for keys in their long form: --set A=1 --set B=2, or one `set` with all of them."""
    if current() == PYTHON:
        return _dict_argument(values)
    return " ".join(option("set", f"{key}={value}") for key, value in values.items())


def spell_as_flags() -> None:
    """From now on this process names flags, unless the one that started it chose otherwise."""
    os.environ.setdefault(VARIABLE, FLAGS)


def current() -> str:
    """The spelling of this process, as the processes that it starts take it in VARIABLE."""
    return os.environ.get(VARIABLE, PYTHON)


def short_name(key: str) -> str | None:
    """The name by which `key` is an option and a keyword argument; None if it has none."""
    for name, dotted in SHORTHANDS.items():
        if dotted == key:
            return name
    field = _FIELD.fullmatch(key)
    return field[1] if field is not None and field[1] not in SHORTHANDS else None


def python_argument(name: str, value: str | None) -> str:
    """The spelling of nlpctl.api: keyword arguments."""
    if name == "set" and value is not None:
        key, _, value = value.partition("=")
        return _dict_argument({key: value})
    keyword = short_name(name) if "." in name else name.replace("-", "_")
    if keyword is None:
        return name if value is None else _dict_argument({name: value})
    if value is None:
        return keyword
    return f"{keyword}=[{_literal(value)}]" if keyword in _SEQUENCES else f"{keyword}={_literal(value)}"


def _dict_argument(values: Mapping[str, str]) -> str:
    return f"set={{{', '.join(f'{json.dumps(key)}: {_literal(value)}' for key, value in values.items())}}}"


def _literal(value: str) -> str:
    """A value of the command line as a program writes it: 0,1 is [0, 1]."""
    if value in _LITERALS or value == "...":
        return _LITERALS.get(value, value)
    if _NUMBER.fullmatch(value) or value.startswith(("[", "{")):
        return value
    if "," in value:
        return f"[{', '.join(map(_literal, value.split(',')))}]"
    return json.dumps(value, ensure_ascii=False)


@functools.cache
def _spelling(path: str) -> Spelling:
    module, function = path.split(":")
    spelling: Spelling = vars(importlib.import_module(module))[function]
    return spelling
