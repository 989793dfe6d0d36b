"""The fields of PaddleNLP's TrainingArguments and CompressionArguments, as data.

Those classes cannot be imported where recipes are parsed: they import paddle, which takes seconds and
fixes the device. scripts/update_catalogue.py writes the data; tests/config/test_catalogue.py compares
it field by field with the installed package.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nlpctl.config.key_use import ARGUMENT_PATHS, KeyUse, PathKind, use_of_argument

DATA = Path(__file__).parent / "data"

# Types as PaddleNLP declares them -> what a recipe holds. IntervalStrategy is an enum of strings.
_ANNOTATIONS: dict[str, Any] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "IntervalStrategy": str,
    "List[str]": tuple[str, ...],
    "List[int]": tuple[int, ...],
}


# Fields whose None PaddleNLP gives a meaning that its declared type does not tell: all calibration rows.
_OTHER_TYPES: dict[str, Any] = {"batch_num_list": tuple[int | None, ...] | None}


@dataclass(frozen=True)
class CatalogueField:
    """One field: its name, PaddleNLP's type and default, and what nlpctl makes of them."""

    name: str
    paddlenlp_type: str  # as declared: "float", "Optional[List[str]]", "IntervalStrategy"
    annotation: Any  # the Python type of the recipe value: float, int | None, tuple[str, ...] | None
    default: Any
    help: str
    choices: tuple[str, ...]  # empty: anything of the type
    use: KeyUse
    path: PathKind | None


def training_fields() -> tuple[CatalogueField, ...]:
    """The fields of TrainingArguments, in its order."""
    return _read("training_arguments.json", "training")


def compression_fields() -> tuple[CatalogueField, ...]:
    """The fields that CompressionArguments adds to TrainingArguments, in its order."""
    return _read("compression_arguments.json", "compression")


@functools.cache
def _read(file_name: str, section: str) -> tuple[CatalogueField, ...]:
    entries = json.loads((DATA / file_name).read_text(encoding="utf-8"))["fields"]
    return tuple(
        CatalogueField(
            name=entry["name"],
            paddlenlp_type=entry["type"],
            annotation=_OTHER_TYPES.get(entry["name"]) or _annotation(entry["type"], entry["default"]),
            default=entry["default"],
            help=entry["help"],
            choices=tuple(entry["choices"]),
            use=use_of_argument(section, entry["name"]),
            path=ARGUMENT_PATHS.get(entry["name"]),
        )
        for entry in entries
    )


def _annotation(declared: str, default: Any) -> Any:
    """PaddleNLP declares some fields `int` with default None (eval_steps): they are optional all the same."""
    inner = declared.removeprefix("Optional[").removesuffix("]") if declared.startswith("Optional[") else declared
    annotation = _ANNOTATIONS[inner]
    return annotation | None if inner != declared or default is None else annotation
