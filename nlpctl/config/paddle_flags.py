"""Paddle's FLAGS_*: which exist, and how a recipe's value is written into the environment.

Paddle ignores an unknown FLAGS_ variable without a word, and reads a bad value ("yes", "maybe") as false.
So both are checked here against data/paddle_flags-RELEASE.json of the installed Paddle, which
scripts/update_paddle_flags.py writes.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from importlib import resources

from nlpctl.config.library_environment import KNOWN as ENVIRONMENT_VARIABLES
from nlpctl.errors import Problem, UserError
from nlpctl.names import nearest
from nlpctl.paddle_version import KNOWN, release

Scalar = str | int | float | bool | None

TRUE_WORDS = ("true", "1", "yes", "on")
FALSE_WORDS = ("false", "0", "no", "off")


def known_flags() -> dict[str, str]:
    """Flag name to type ("bool", "int", "float", "str") of the installed Paddle, CPU and GPU build together.

    Those of the newest known release if the installed one is not known.
    """
    return flags_of(release() if release() in KNOWN else KNOWN[-1])


@functools.cache
def flags_of(paddle: tuple[int, int]) -> dict[str, str]:
    """The flags of a known release, as in `known_flags`."""
    file = resources.files("nlpctl.config") / f"data/paddle_flags-{_number(paddle)}.json"
    known = json.loads(file.read_text(encoding="utf-8"))
    # gpu_flags are compiled in only under PADDLE_WITH_CUDA; the CPU build ignores them in the environment.
    return {**{name: "str" for name in known["python_flags"]}, **known["flags"], **known["gpu_flags"]}


def flag_environment(flags: Mapping[str, Scalar]) -> dict[str, str]:
    """Environment variables for `runtime.flags`, such as {"FLAGS_benchmark": "1"}.

    Raises UserError naming every unknown flag (with the nearest known one) and every bad value.
    """
    problems: list[Problem] = []
    environment: dict[str, str] = {}
    for name, value in flags.items():
        where = f"runtime.flags.{name}"
        kind = known_flags().get(name)
        if kind is None:
            problems.append(Problem(f"Paddle has no flag {name}", where, _nearest(name)))
            continue
        text = render(value, kind)
        if text is None:
            problems.append(Problem(f"{value!r} is no value for {name}", where, f"{name} takes {_EXPECTED[kind]}"))
        else:
            environment[name] = text
    if problems:
        raise UserError(problems=problems)
    return environment


_EXPECTED = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "a text"}


def render(value: Scalar, kind: str) -> str | None:
    """`value` as the text that Paddle reads from the environment; None if it does not fit `kind`."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(int(value)) if kind != "float" else None
    text = str(value).strip()
    if kind == "bool":
        return "1" if text.lower() in TRUE_WORDS else "0" if text.lower() in FALSE_WORDS else None
    if kind == "str":
        return text
    try:
        return str(int(text) if kind == "int" else float(text))
    except ValueError:
        return None


def _number(paddle: tuple[int, int]) -> str:
    return ".".join(map(str, paddle))


def _nearest(name: str) -> str:
    others = [_number(each) for each in KNOWN if name in flags_of(each)]
    if others:
        return f"remove it: Paddle {others[0]} has it, the installed {_number(release())} does not"
    if name.upper() in ENVIRONMENT_VARIABLES:
        return f"it is an environment variable: set runtime.env.{name.upper()}"
    known = sorted(known_flags())
    bare = name if name.startswith("FLAGS_") else f"FLAGS_{name}"
    close = bare if bare in known else nearest(bare, known)
    return f"did you mean {close}?" if close else "remove it; the known flags are in Paddle's documentation of FLAGS"
