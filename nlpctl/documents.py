"""The JSON documents that nlpctl writes and reads again: a class for each, one way to read them, one kind of error.

    @dataclass(frozen=True)
    class IndexManifest(Document):
        '''manifest.json of an index, by `nlpctl index build`; what searches reads it.'''

        FORMAT: ClassVar[int | None] = 1
        REPAIR: ClassVar[str] = "build it again: nlpctl index build"

        kind: Literal["flat", "hnsw"]
        texts: int
        model_files: Mapping[str, str] = field(default_factory=dict)   # older versions did not write them

    IndexManifest("flat", 3).save(folder / "manifest.json")
    manifest = IndexManifest.load(folder / "manifest.json")

The annotations of the fields say what a document may hold; a field without a default must be there. Whatever is wrong
with a file (it is missing, cut off, another program's, of a newer nlpctl, a pipe, nested a million deep, far too large)
is a `DamagedDocument`, a UserError that names the file, the place in it and the next step. Keys that the class does not
know are ignored: a newer version may write more. Documents of others, such as the config.json of a network, are read by
`nlpctl.files.read_json`, since nlpctl does not decide what they hold.

A module of its own rather than a library: Python's json writes NaN and Infinity, which stand in documents of every
version and which the decoders of others refuse; and importing one would cost each command a quarter of its start.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union

from nlpctl.errors import UserError
from nlpctl.files import parse_json, small_text, write_json_atomic
from nlpctl.outputs import refuse_pipe

D = TypeVar("D", bound="Document")
Place = tuple[str, ...]  # where in a document: ("graphs", "[0]", "files")

_LONGEST = 40  # characters of a strange value or key in a message
_LARGEST_INT = 1 << 63  # larger ones overflow in NumPy, in C and in float()
_PLAIN_KEY = re.compile(r"[A-Za-z_][\w-]*")
_IN_WORDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", type(None): "null"}
_WHOLE, _OMITTED = "whole content", "left out where empty"


class DamagedDocument(UserError):
    """A document of nlpctl's own cannot be read."""


class MissingDocument(DamagedDocument):
    """There is no such file."""


class OtherFormat(DamagedDocument):
    """The document is of another format than this version of nlpctl reads."""


class Mismatch(ValueError):
    """A value that does not fit its annotation; str() of it says where and why."""

    def __init__(self, place: Place, problem: str):
        self.place, self.problem = place, problem
        super().__init__(f"{_place_in_words(place)} {problem}" if place else problem)


def whole_content() -> Any:
    """A field that holds all entries that were read, and that `save` writes as they are, in place of the fields.

    It is for documents whose keys are names of something, and for those that are written again with what newer versions
    put into them; of such, change `content` and make another one with `from_json`.
    """
    return dataclasses.field(default_factory=dict, compare=False, repr=False, metadata={_WHOLE: True})


def left_out(empty: Callable[[], Any] = lambda: None, *, compare: bool = True) -> Any:
    """A field that is not written while it has its default, which `empty` makes: None, or dict() and the like."""
    return dataclasses.field(default_factory=empty, compare=compare, metadata={_OMITTED: True})


@dataclasses.dataclass(frozen=True)
class Document:
    """Base of the documents.

    Fields may be annotated with str, int, float, bool, None, Any, Literal, unions, lists, tuples, sequences, mappings,
    dataclasses, and `Annotated[type, check]`, where check(value) raises a ValueError. A ValueError of __post_init__
    says what is wrong with the whole.
    """

    FORMAT: ClassVar[int | None] = None  # the entry "format", the first of the document; None: it has no such entry
    REPAIR: ClassVar[str] = "make it again"  # the next step where it is damaged
    UPDATE: ClassVar[str] = ""  # what helps besides a newer nlpctl where its format is another one; "": REPAIR
    LARGEST: ClassVar[int] = 32 << 20  # bytes; JSON takes up to thirty times as much in memory

    @classmethod
    def load(cls: type[D], path: Path, repair: str = "") -> D:
        """Read the document. `repair`: in place of REPAIR.

        DamagedDocument (MissingDocument, OtherFormat): it cannot be read.
        """
        repair = repair or cls.REPAIR
        refuse_pipe(path)
        try:
            if path.stat().st_size > cls.LARGEST:
                raise ValueError(f"it has more than {cls.LARGEST >> 20} MB")
            content = parse_json(small_text(path))
        except (FileNotFoundError, NotADirectoryError):
            raise MissingDocument(f"no {path.name} in this folder", str(path.parent), repair) from None
        except OSError as error:
            problem = f"cannot be read: {error.strerror or error}"
            raise DamagedDocument(problem, str(path), "check the path and its rights") from None
        except ValueError as error:
            raise DamagedDocument(f"is not valid JSON ({error})", str(path), repair) from None
        if not isinstance(content, dict):
            raise DamagedDocument("must hold a JSON object", str(path), repair)
        if cls.FORMAT is not None and "format" not in content:
            raise DamagedDocument('was not written by nlpctl: it has no "format"', str(path), repair)
        if cls.FORMAT is not None and content["format"] != cls.FORMAT:
            problem = f"has format {_shorten(content['format'])}; this version of nlpctl reads format {cls.FORMAT}"
            raise OtherFormat(problem, str(path), f"update nlpctl, or {cls.UPDATE or repair}")
        try:
            return cls.from_json(content)
        except Mismatch as error:
            # A check of the document as a whole, in its __post_init__, has words of its own.
            problem = f"is incomplete or damaged ({error})" if error.place else str(error)
            raise DamagedDocument(problem, str(path), repair) from None

    @classmethod
    def load_if_exists(cls: type[D], path: Path) -> D | None:
        """`load`, or None where there is no such file."""
        try:
            return cls.load(path)
        except MissingDocument:
            return None

    @classmethod
    def load_if_valid(cls: type[D], path: Path) -> D | None:
        """`load`, or None where there is none, or it is damaged: for what can be computed again."""
        try:
            return cls.load(path)
        except UserError:
            return None

    @classmethod
    def from_json(cls: type[D], content: Any) -> D:
        """The document in `content`, parsed JSON. Mismatch, a ValueError, names the place that does not fit."""
        return convert(content, cls)

    def to_json(self) -> dict[str, Any]:
        """What `save` writes after the format: the fields in their order, or the `whole_content`."""
        return to_json(self)

    def save(self, path: Path) -> None:
        """Write the document aside, and rename it."""
        head = {} if self.FORMAT is None else {"format": self.FORMAT}
        write_json_atomic(path, {**head, **self.to_json()})


def to_json(value: Any) -> Any:
    """`dataclasses.asdict` with lists for tuples, without the fields that are not written."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        entries = {}
        for field in dataclasses.fields(value):
            held = getattr(value, field.name)
            if field.metadata.get(_WHOLE):
                return to_json(held)
            omitted = field.metadata.get(_OMITTED) and held == field.default_factory()  # type: ignore[misc]
            if not omitted:
                entries[field.name] = to_json(held)
        return entries
    if isinstance(value, Mapping):
        return {key: to_json(held) for key, held in value.items()}
    return [to_json(held) for held in value] if isinstance(value, list | tuple) else value


# -- checks for Annotated ------------------------------------------------------------------------------


def finite(value: float) -> None:
    if not math.isfinite(value):
        raise ValueError(f"is {value}, not a finite number")


def positive(value: float) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f"is {value}, not a number above 0")


def not_negative(value: float) -> None:
    if not 0 <= value < math.inf:
        raise ValueError(f"is {value}, not 0 or more")


def moment(value: str) -> None:
    """A time in ISO format, with its zone."""
    try:
        time = datetime.fromisoformat(value)
        time.astimezone()  # shown so; fails at the ends of the calendar
    except (ValueError, OverflowError):
        raise ValueError("is no time") from None
    if time.tzinfo is None:
        raise ValueError("is a time without a zone")


Finite = Annotated[float, finite]
Positive = Annotated[float, positive]
Count = Annotated[int, not_negative]
Moment = Annotated[str, moment]


# -- parsed JSON to typed values -----------------------------------------------------------------------


def convert(value: Any, kind: Any, place: Place = ()) -> Any:
    """`value`, parsed JSON, as the annotation `kind` says. Mismatch: it does not fit. `place`: where it stands."""
    origin = typing.get_origin(kind)
    if kind is Any:
        _refuse_half_inside(value, place)
        return value
    if origin is Annotated:
        inner, *checks = typing.get_args(kind)
        converted = convert(value, inner, place)
        for check in checks:
            _checked(place, functools.partial(check, converted))
        return converted
    if origin in (Union, types.UnionType):
        return _convert_union(value, typing.get_args(kind), place)
    if origin is Literal:
        options = typing.get_args(kind)
        if not any(type(value) is type(option) and value == option for option in options):
            raise Mismatch(place, f"is {_shorten(value)}, not {' or '.join(map(_shorten, options))}")
        return value
    if dataclasses.is_dataclass(kind):
        return _convert_fields(value, kind, place)
    base = origin or kind
    if isinstance(base, type) and issubclass(base, Mapping):
        return _convert_mapping(value, typing.get_args(kind), place)
    if base in (list, tuple, Sequence):
        return _convert_list(value, base, typing.get_args(kind), place)
    return _convert_plain(value, kind, place)


def _convert_plain(value: Any, kind: Any, place: Place) -> Any:
    if kind is float and type(value) is int:
        value = _checked(place, lambda: float(value))
    if type(value) is not kind:  # not isinstance: True is an int in Python, but not in JSON
        raise Mismatch(place, f"is {_shorten(value)}, not {_IN_WORDS[kind]}")
    if kind is int and abs(value) >= _LARGEST_INT:
        raise Mismatch(place, "is far too large a number")
    if kind is str and not value.isascii():
        _refuse_half_characters(value, place)
    return value


def _refuse_half_characters(text: str, place: Place) -> None:
    """Mismatch for half of a surrogate pair, which JSON can spell, and which no file or terminal takes."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise Mismatch(place, "holds half a character") from None


def _refuse_half_inside(value: Any, place: Place) -> None:
    """The same for a value of any kind, with what is in it."""
    if isinstance(value, str):
        if not value.isascii():
            _refuse_half_characters(value, place)
    elif isinstance(value, dict):
        for key, held in value.items():
            _refuse_half_inside(key, place)
            _refuse_half_inside(held, (*place, key))
    elif isinstance(value, list):
        for number, held in enumerate(value):
            _refuse_half_inside(held, (*place, f"[{number}]"))


def _convert_union(value: Any, kinds: Sequence[Any], place: Place) -> Any:
    """The first of `kinds` that fits."""
    if value is None and type(None) in kinds:
        return None
    kinds = [kind for kind in kinds if kind is not type(None)]
    problems = []
    for kind in kinds:
        try:
            return convert(value, kind, place)
        except Mismatch as error:
            problems.append(error)
    raise max(problems, key=lambda error: len(error.place))  # the one that came furthest fits best


def _convert_list(value: Any, base: Any, kinds: Sequence[Any], place: Place) -> Any:
    if not isinstance(value, list):
        raise Mismatch(place, f"is {_shorten(value)}, not a list")
    if base is tuple and kinds and kinds[-1] is not Ellipsis:
        if len(value) != len(kinds):
            raise Mismatch(place, f"has {len(value)} entries, not {len(kinds)}")
    else:
        kind = kinds[0] if kinds else Any
        if _all_fit(value, kind):
            return tuple(value) if base is tuple else list(value)
        kinds = [kind] * len(value)
    pairs = zip(value, kinds, strict=True)
    converted = [convert(held, kind, (*place, f"[{number}]")) for number, (held, kind) in enumerate(pairs)]
    return tuple(converted) if base is tuple else converted


def _all_fit(values: Collection[Any], kind: Any) -> bool:
    """Whether all are plain values of `kind`, which `_convert_plain` would return as they are.

    A vocabulary has 250,000 entries, and every start of a command that answers with an export reads one.
    """
    if kind not in (str, int, float) or any(type(value) is not kind for value in values):
        return False
    if kind is str:
        try:
            "".join(values).encode("utf-8")
        except UnicodeEncodeError:  # half a character, which is told with its place
            return False
    return kind is not int or all(abs(value) < _LARGEST_INT for value in values)


def _convert_mapping(value: Any, kinds: Sequence[Any], place: Place) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise Mismatch(place, f"is {_shorten(value)}, not a JSON object")
    key_kind, kind = kinds or (str, Any)
    numbered = int in (key_kind, *typing.get_args(key_kind)[:1])  # JSON has no keys but texts
    if key_kind is str and _all_fit(value.keys(), str) and _all_fit(value.values(), kind):
        return dict(value)
    converted = {}
    for key, held in value.items():
        inside = (*place, key)
        if numbered:
            if not re.fullmatch(r"-?[0-9]{1,18}", key):
                raise Mismatch(inside, "is not a whole number")
            key = int(key)
        converted[convert(key, key_kind, inside)] = convert(held, kind, inside)
    return converted


def _convert_fields(value: Any, kind: Any, place: Place) -> Any:
    if not isinstance(value, dict):
        raise Mismatch(place, f"is {_shorten(value)}, not a JSON object")
    given = {}
    for name, (annotation, field) in fields_of(kind).items():
        if field.metadata.get(_WHOLE):
            given[name] = convert(value, annotation, place)
        elif name in value:
            given[name] = convert(value[name], annotation, (*place, name))
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise Mismatch((*place, name), "is missing")
    return _checked(place, lambda: kind(**given))


@functools.cache
def fields_of(kind: Any) -> dict[str, tuple[Any, dataclasses.Field[Any]]]:
    """The annotation, with its checks, and the field of each name of a dataclass."""
    annotations = typing.get_type_hints(kind, include_extras=True)
    return {field.name: (annotations[field.name], field) for field in dataclasses.fields(kind) if field.init}


def _checked(place: Place, make: Callable[[], Any]) -> Any:
    """What `make` returns; a ValueError of it, or of the checks in a __post_init__, with the place in front."""
    try:
        return make()
    except Mismatch as error:
        raise Mismatch((*place, *error.place), error.problem) from None
    except (ValueError, OverflowError) as error:
        raise Mismatch(place, str(error)) from None


# -- words ---------------------------------------------------------------------------------------------


def _place_in_words(place: Place) -> str:
    """graphs[0].files, or sha256["vocab.txt"]."""
    words = ""
    for step in place:
        if step.startswith("["):
            words += step
        elif _PLAIN_KEY.fullmatch(step) and len(step) <= _LONGEST:
            words += f".{step}" if words else step
        else:
            words += f"[{_shorten(step)}]"
    return words


def _shorten(value: Any) -> str:
    """A strange value as JSON in ASCII, since it may hold anything; a long one is cut."""
    if isinstance(value, dict | list):
        return "a JSON object" if isinstance(value, dict) else "a list"
    text = json.dumps(value[:_LONGEST] if isinstance(value, str) else value)
    return text if len(text) <= 2 * _LONGEST else f"{text[:_LONGEST]}..."
