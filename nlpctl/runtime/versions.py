"""The pins that nlpctl declares, and how the installed packages compare with them.

The pins are declared once, in pyproject.toml; an installed nlpctl carries them in its metadata.
"""

from __future__ import annotations

import importlib.metadata
import operator
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nlpctl import __version__, console
from nlpctl.errors import UserError
from nlpctl.paddle_version import KNOWN, WHEELS, release_of

ENGINES = ("paddlepaddle", "paddlepaddle-gpu", "onnxruntime", "onnxruntime-gpu")  # run networks and graphs
_PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
_REQUIREMENT = re.compile(r"^\s*([A-Za-z0-9._-]+)\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)\)?\s*(?:;(.*))?$")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")
_CLAUSE = re.compile(r"(==|!=|<=|>=|<|>)\s*([0-9][^,\s]*)")
_COMPARE: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


@dataclass(frozen=True)
class Pin:
    """A declared requirement: package, version bounds such as "==2.6.2" or "<2", and the extra it belongs to."""

    package: str
    bounds: str
    extra: str  # "" for the core, "train" for what everything that trains needs

    def allows(self, version: str) -> bool:
        """Whether `version` is within the bounds; release numbers only (Paddle's 2.6.2.post118 counts as 2.6.2)."""
        return all(_COMPARE[sign](*_aligned(version, bound)) for sign, bound in _CLAUSE.findall(self.bounds))

    def __str__(self) -> str:
        return f"{self.package}{self.bounds}"


def pins() -> tuple[Pin, ...]:
    """Every requirement of nlpctl, extras included, read from its metadata or from the checkout's pyproject.toml.

    An extra that includes another one names nlpctl itself, which is left out here.
    """
    return tuple(each for text in _requirements() if (each := _parse_requirement(text)).package != "nlpctl")


def pin(package: str) -> Pin:
    """The first pin of `package`. Raises KeyError for a package that nlpctl does not require."""
    for each in pins():
        if each.package == package:
            return each
    raise KeyError(package)


def installed_version(package: str) -> str | None:
    """Version of an installed package, None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def require_known_paddle(version: str | None, *, anyway: bool = False) -> None:
    """UserError for a version of Paddle that nlpctl was never tried with; `anyway`: a warning. None: not installed."""
    if version is None or release_of(version) in KNOWN:
        return
    message = f"nlpctl was never tried with Paddle {version}"
    if (release_of(version) or (0, 0)) >= (3, 2):
        message += ": from 3.2 on, recurrent layers and int8 graphs fail in the old program format, which nlpctl needs"
    if anyway:
        console.warn(f"{message}; runtime.any_paddle tries it")
        return
    hint = f"install {known_paddles()}; @[runtime.any_paddle=true] tries it anyway"
    raise UserError(message, hint=hint)


def known_paddles() -> str:
    """The pins of Paddle's CPU build, for a message."""
    return " or ".join(str(each) for each in pins() if each.package == WHEELS[0])


def installed_versions() -> dict[str, str]:
    """Package to version, of what nlpctl requires and is installed."""
    return {each.package: version for each in pins() if (version := installed_version(each.package))}


def engine_versions() -> dict[str, str]:
    """Package to version, of what makes and runs networks and graphs and is installed."""
    packages = ("paddlepaddle", "paddlepaddle-gpu", "paddlenlp", "paddle2onnx", *ENGINES[2:])
    return {name: version for name in packages if (version := installed_version(name))}


def graph_versions() -> dict[str, str]:
    """Versions of nlpctl and of the packages that make or run graphs, as exports keep them."""
    return {"nlpctl": __version__, **engine_versions()}


def _requirements() -> list[str]:
    """Every requirement as pip writes it, such as "numpy<2" or "ray>=2.40,<3; extra == 'cluster'"."""
    # A checkout comes first: the file is newer than the metadata of an earlier `pip install -e`.
    if _PYPROJECT.is_file() and sys.version_info >= (3, 11):
        import tomllib

        project = tomllib.loads(_PYPROJECT.read_text(encoding="utf-8"))["project"]
        if project["name"] == "nlpctl":
            extras = project["optional-dependencies"].items()
            marked = [f"{line}; extra == '{extra}'" for extra, lines in extras for line in lines]
            return [*project["dependencies"], *marked]
    return importlib.metadata.requires("nlpctl") or []


def _parse_requirement(requirement: str) -> Pin:
    match = _REQUIREMENT.match(requirement)
    if match is None:
        raise ValueError(f"not a requirement: {requirement}")
    package, bounds, marker = match.groups()
    extra = _EXTRA.search(marker or "")
    return Pin(package, bounds.strip().replace(" ", ""), extra.group(1) if extra else "")


def _aligned(left: str, right: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Both as numbers of equal length, so that 2 equals 2.0."""
    first, second = _release(left), _release(right)
    length = max(len(first), len(second))
    return first + (0,) * (length - len(first)), second + (0,) * (length - len(second))


def _release(version: str) -> tuple[int, ...]:
    """The numbers at the beginning of a version: (2, 6, 2) of 2.6.2.post118; () if there are none."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match.group().split(".")) if match else ()
