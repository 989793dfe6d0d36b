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

# Which spelling this process uses. In the environment, so that processes which it starts, and whose messages it shows,
# have the same. The command line sets it; where nobody did, a program reads the messages.
VARIABLE, PYTHON, FLAGS = "NLPCTL_SPELLING", "python", "flags"

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
# What a mark may name: keys of a section of the recipe, and these parameters. Only they are replaced, since messages
# quote rows, labels and paths of the user, in which "@[somebody]" may stand.
_SECTIONS = "compression data decode distillation early_stopping few_shot guards inference loss masking model optimizer"
_SECTIONS += " prompt retrieval runtime search training"
_PARAMETERS = """
    against allow-missing api-key-file baseline budget by class cluster columns config continue count data details dev
    drop engine first float16 folds format formats group-by host html keep label labels language layer-outputs layout
    length license map master match max-drop max-rows method model name nnodes node_rank option output overfit-batch
    overwrite path plain plan pool port precision precisions queue resume rounds rows seeds set shares split strategy
    sure synonyms target-precision task test text-language time timing tls-cert tls-key to train trials value vocabulary
    wait workers write yes
"""
# Linear in the length of the text, which a stranger's request may have chosen: a value ends before the next mark.
_MARK = re.compile(
    rf"@\[((?:{'|'.join(_SECTIONS.split())})\.[\w.]+|{'|'.join(_PARAMETERS.split())})"
    r"(?:=((?:(?!@\[).)*?))?\](?!\])",
    re.DOTALL,
)
_LITERALS = {"true": "True", "false": "False", "null": "None"}
_NUMBER = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?|[NK]")  # these stand for a number
_SEQUENCES = ("formats", "precisions")  # parameters of nlpctl.api that take no single text


def spelled(text: str) -> str:
    """`text` with each marked name as this process spells it."""
    return _MARK.sub(lambda mark: option(mark[1], mark[2]), text) if "@[" in text else text


def option(name: str, value: str | None = None) -> str:
    """The same for one name, with or without a value. For values of the user, which may hold any sign."""
    spelling = _flag_spelling() if current() == FLAGS else python_argument
    return spelling(name, value)


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
    return FLAGS if os.environ.get(VARIABLE) == FLAGS else PYTHON


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
def _flag_spelling() -> Spelling:
    # By its name, since nothing below the commands imports them.
    flag: Spelling = importlib.import_module("nlpctl.cli.spelling").flag
    return flag
