"""The label set: label names and their ids, collected from the data or given as a list or a file."""

from __future__ import annotations

import ast
import json
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from numbers import Number
from pathlib import Path
from typing import Any

from nlpctl import console
from nlpctl.config.schema import DataSection
from nlpctl.data.readers.dictionaries import read_tags
from nlpctl.data.readers.lines import UNSEEN, is_blank, read_lines, refuse_surrogates
from nlpctl.errors import Problem, UserError
from nlpctl.names import listed, nearest
from nlpctl.report.language import Later, later

MAX_COLLECTED = 10_000  # more distinct labels than this means that the column holds something else

SHOWN = 10  # known labels, or wrong lines, that a message lists

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]{1,9})?")

_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_PYTHON_LIST = re.compile(rf"\[\s*(?:{_QUOTED})(?:(?:\s*,\s*|\s+)(?:{_QUOTED}))*\s*\]")  # as str(list), or NumPy's
CHOICES = "choices"  # in a cell of Label Studio: {"choices": ["a", "b"]}


class LabelSet:
    """Distinct label names; a label's id is its position."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)
        self._ids = {name: i for i, name in enumerate(self.names)}
        if len(self._ids) != len(self.names):
            raise ValueError("label names must be distinct")

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self._ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LabelSet) and other.names == self.names

    def __repr__(self) -> str:
        return f"LabelSet({self.names!r})"

    def id(self, name: str) -> int:
        """KeyError for an unknown name."""
        return self._ids[name]

    def name(self, label_id: int) -> str:
        return self.names[label_id]

    def nearest(self, name: str) -> str | None:
        """The known label that looks most like `name`."""
        return nearest(name, self.names)

    @classmethod
    def from_list(cls, names: Iterable[str], where: str = "data.labels") -> LabelSet:
        """Names as written in a recipe; UserError for blank or repeated ones."""
        return cls(_distinct(((where, name) for name in names), where))

    @classmethod
    def from_file(cls, path: Path) -> LabelSet:
        """One label per line, in the order of the ids; empty lines at the end are no labels.

        A file named *.dic has lines `id<TAB>label`, as lexical analysers have them.
        """
        if path.suffix == ".dic":
            return cls(_distinct(((str(path), tag) for tag in read_tags(path)), str(path)))
        return cls(_distinct(read_lines(path, "label file"), str(path)))

    @classmethod
    def collect(cls, names: Iterable[str], where: str) -> LabelSet:
        """The distinct `names`, sorted: by number where all are integers, else by code point.

        `where` names the data in messages. UserError if there are too few or far too many.
        """
        distinct: set[str] = set()
        for name in names:
            distinct.add(name)
            # Checked while reading: a column of free text would fill the memory first.
            if len(distinct) > MAX_COLLECTED:
                raise UserError(
                    f"more than {MAX_COLLECTED} different labels", where=where,
                    hint="is data.columns.label the right column? If so, list the labels in a file: data.labels: FILE",
                )  # fmt: skip
        if len(distinct) < 2:
            reason = f"only the label {distinct.pop()!r}" if distinct else "no label"
            raise UserError(
                f"{reason} occurs in the training data; a classifier needs at least two", where=where,
                hint="check data.columns.label, or give data.labels",
            )  # fmt: skip
        warn_of_twins(distinct, where, "labels")
        if all(_INTEGER.fullmatch(name) for name in distinct):
            # By number, so that 10 comes after 9; the name breaks ties such as 1 and +1.
            return cls(sorted(distinct, key=lambda name: (int(name), name)))
        # Sorted, so that ids do not depend on the order of the rows: a shuffled file gives the same model.
        return cls(sorted(distinct))


def twins(names: Iterable[str]) -> list[tuple[str, str, Later]]:
    """Pairs of labels that probably mean the same, and in what they differ: what is not seen, case and width, or the
    way a number is written (1, 1.0, 01 and 1e0)."""
    pairs: list[tuple[str, str, Later]] = []
    looks: dict[str, str] = {}
    folded: dict[str | Decimal, str] = {}
    for name in sorted(names):
        seen = "".join(character for character in name if unicodedata.category(character) not in UNSEEN)
        look = " ".join(unicodedata.normalize("NFC", seen).split())
        fold: str | Decimal = unicodedata.normalize("NFKC", look).casefold()
        if number := _NUMBER.fullmatch(str(fold)):
            fold = Decimal(number[0])
        if look in looks:
            pairs.append((looks[look], name, later("look the same")))
        elif fold in folded:
            way = later("are one number") if number else later("differ in case or width only")
            pairs.append((folded[fold], name, way))
        looks.setdefault(look, name)
        folded.setdefault(fold, name)
    return pairs


def warn_of_twins(names: Iterable[str], where: str, what: str) -> None:
    pairs = twins(names)
    for one, other, way in pairs[:SHOWN]:
        quoted = map(ascii if way == "look the same" else repr, (one, other))
        console.warn(f"{where}: the {what} {' and '.join(quoted)} {way}, and count as two")
    if len(pairs) > SHOWN:
        console.warn(f"{where}: {len(pairs) - SHOWN:,} more pairs of {what} are alike in such ways")


def given_labels(data: DataSection) -> LabelSet | None:
    """The label set that the recipe gives: data.labels, or data.numbered_labels; None if it gives none."""
    return _given(data.labels, "data.labels") or label_names(data)


def label_names(data: DataSection) -> LabelSet | None:
    """data.numbered_labels: the names of labels that the data writes as numbers."""
    return _given(data.numbered_labels, "data.numbered_labels")


def _given(labels: Sequence[str] | str | None, key: str) -> LabelSet | None:
    if isinstance(labels, str):
        return LabelSet.from_file(Path(labels))
    return None if labels is None else LabelSet.from_list(labels, key)


def named_label(value: Any, names: Sequence[str]) -> Any:
    """A label, or a list of labels, with names in place of numbers. What is no whole number stays as it is.

    ValueError: a number has no name.
    """
    if isinstance(value, list | tuple):
        return [named_label(each, names) for each in value]
    number = value
    if isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
        number = int(value)
    if not isinstance(number, int) or isinstance(number, bool):
        return value
    if not 0 <= number < len(names):
        raise ValueError(f"bad label: {number} is outside 0 to {len(names) - 1}")
    return names[number]


def numbered_label(value: Any, names: LabelSet) -> Any:
    """The opposite of `named_label`: numbers in place of `names`. What is no name stays as it is."""
    if isinstance(value, list | tuple):
        return [numbered_label(each, names) for each in value]
    return names.id(value) if isinstance(value, str) and value in names else value


def known_label(value: Any, labels: LabelSet) -> int:
    """The id of a label value of a row. ValueError for an unknown label, with the nearest known one."""
    # As it stands first: a model may have been trained on labels that look like a list.
    name = value.strip() if isinstance(value, str) and value.strip() in labels else label_name(value)
    if name in labels:
        return labels.id(name)
    guess = labels.nearest(name)
    raise ValueError(f"unknown label: {name!r}; {f'did you mean {guess!r}?' if guess else _known(labels)}")


def _known(labels: LabelSet) -> str:
    """The first labels, and how many of how many they are."""
    cut = f", ... ({SHOWN} of {len(labels)} shown)" if len(labels) > SHOWN else ""
    return f"known are {', '.join(labels.names[:SHOWN])}{cut}"


def label_name(value: Any) -> str:
    """A label value as text: stripped, numbers as Python prints them. ValueError: it is blank, no label, or several."""
    if isinstance(value, str | dict) and isinstance(labels := unpacked(value), list):
        if len(labels) > 1:
            raise ValueError(f"several labels: {', '.join(map(str, labels))}; a text has one")
        value = labels[0] if labels else None
    if isinstance(value, str):
        name = value.strip()
        if is_blank(name):
            raise ValueError("blank label")
        _refuse_unwritable(name)
        return name
    # bool is a Number too, and str(True) is not what JSON and YAML files say.
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Number) and not isinstance(value, complex):
        if not isinstance(value, int) and not math.isfinite(value):  # type: ignore[arg-type]
            raise ValueError(f"bad label: {value} is not a number")
        return str(value)
    if value is None:
        raise ValueError("blank label")
    raise ValueError(f"bad label: expected text or a number, got {type(value).__name__}")


def unpacked(value: Any) -> Any:
    """The list that a cell spells: a list of texts as JSON, Python or NumPy writes it, or the choices of Label Studio.

    Any other value as it is. ValueError for an object of JSON without choices: no label is called so.
    """
    text = value.strip() if isinstance(value, str) else ""
    if text.startswith("{") and text.endswith("}"):
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError):
            return value
        value = parsed if isinstance(parsed, dict) else value
    if isinstance(value, dict):
        choices = value.get(CHOICES)
        if not isinstance(choices, list | str):
            raise ValueError(f"bad label: an object without {CHOICES!r}: the keys are {listed(value)}")
        return choices if isinstance(choices, list) else [choices]
    if not text.startswith("[") or not _PYTHON_LIST.fullmatch(text):
        return value
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return [ast.literal_eval(each) for each in re.findall(_QUOTED, text)]
    except (ValueError, SyntaxError):
        return value


def _refuse_unwritable(name: str) -> None:
    """ValueError for a label that no file of labels, a line each, can hold."""
    refuse_surrogates(name, "label")
    if len(name.splitlines()) > 1:
        raise ValueError(f"line break in a label: {name!r}; files of labels have a line for each")


def _distinct(names: Iterable[tuple[str, str]], where: str) -> list[str]:
    """Check (place, name) pairs; all blank and repeated names are reported at once."""
    first: dict[str, str] = {}
    problems = []
    for place, written in names:
        name = written.strip()
        try:
            _refuse_unwritable(name)
        except ValueError as error:
            problems.append(Problem(str(error), place, "write it on one line, and characters as themselves"))
            continue
        if is_blank(name):
            problems.append(Problem("blank label", place, "delete it; a label is at least one character"))
        elif name in first:
            problems.append(Problem(f"label {name!r} occurs twice (first at {first[name]})", place, "delete one"))
        else:
            first[name] = place
    if problems:
        raise UserError(problems=problems[:SHOWN])
    if len(first) < 2:
        raise UserError(
            f"{len(first)} labels given; a classifier needs at least two", where=where, hint="name every label"
        )
    return list(first)
