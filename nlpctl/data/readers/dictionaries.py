"""The dictionaries of Paddle's lexical analyser: a folder with word.dic, tag.dic and q2b.dic.

word.dic and tag.dic hold `id<TAB>entry` lines; q2b.dic holds `written<TAB>read` lines, most of them a full-width
character and its half-width form. tag.dic and q2b.dic may be absent. Imports neither Paddle nor NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from nlpctl.data.readers.lines import decode, numbered_lines
from nlpctl.errors import Problem, UserError
from nlpctl.names import whole_number

WORDS, TAGS, REPLACEMENTS = "word.dic", "tag.dic", "q2b.dic"
UNKNOWN_ENTRIES = ("OOV", "[UNK]", "<unk>")  # how a word.dic names what it does not know

_MAX_ID = 10_000_000  # a typing error in an id must not take gigabytes
_SHOWN = 10


@dataclass(frozen=True)
class Dictionaries:
    """The content of a dictionary folder.

    `words`: the vocabulary, index = id; gaps in the ids are filled with [unused7] and the like. `tags`: index = id;
    None without tag.dic. `replacements`: character -> the character that it is read as. `unknown`: the entry for
    unknown words; None if there is none.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    replacements: Mapping[str, str]
    unknown: str | None


def read_dictionaries(folder: Path) -> Dictionaries:
    """Read the folder. UserError names every bad line, a missing folder or word.dic."""
    if not (folder / WORDS).is_file():
        raise UserError(
            f"no {WORDS} in this folder" if folder.is_dir() else "no such folder",
            where=str(folder),
            hint=f"model.from_scratch.dictionaries is a folder with {WORDS}, {TAGS} and {REPLACEMENTS}",
        )
    words = _by_id(folder / WORDS)
    size = max(words) + 1
    tags = read_tags(folder / TAGS) if (folder / TAGS).is_file() else None
    replacements = _replacements(folder / REPLACEMENTS) if (folder / REPLACEMENTS).is_file() else {}
    # The embedding table of the network has a row per id, so gaps must keep their ids.
    vocabulary = tuple(words.get(index, f"[unused{index}]") for index in range(size))
    unknown = next((entry for entry in UNKNOWN_ENTRIES if entry in vocabulary), None)
    return Dictionaries(vocabulary, tags, replacements, unknown)


def read_tags(file: Path) -> tuple[str, ...]:
    """The tags of a tag.dic, index = id. UserError names every bad line."""
    tags = _by_id(file)
    missing = next((index for index in range(len(tags)) if index not in tags), None)
    if missing is not None:
        raise UserError(f"the id {missing} is missing", where=str(file), hint="tags are numbered from 0 without gaps")
    return tuple(tags[index] for index in range(len(tags)))


def _by_id(file: Path) -> dict[int, str]:
    entries: dict[int, str] = {}
    lines: dict[str, int] = {}
    problems: list[Problem] = []
    for number, first, second in _pairs(file, problems):
        where = f"{file}:{number}"
        if (id := whole_number(first, _MAX_ID)) is None:
            problems.append(Problem(f"{first[:20]!r} is not an id", where, "lines are `id<TAB>entry`, ids from 0"))
        elif id in entries:
            problems.append(Problem(f"the id {id} occurs twice", where, "number the entries anew"))
        elif second in lines:
            hint = f"it is in line {lines[second]} already: delete one"
            problems.append(Problem(f"{second!r} occurs twice", where, hint))
        else:
            entries[id] = second
            lines[second] = number
    _raise(problems)
    if not entries:
        raise UserError("holds no entries", where=str(file), hint="lines are `id<TAB>entry`, ids from 0")
    return entries


def _replacements(file: Path) -> dict[str, str]:
    problems: list[Problem] = []
    replacements: dict[str, str] = {}
    for number, written, read in _pairs(file, problems):
        if len(written) != 1 or len(read) != 1:  # one for one, so that positions in the text stay what they are
            hint = "lines are `written<TAB>read`, one character each"
            problems.append(Problem(f"{written[:20]!r} and {read[:20]!r} are not one character each",
                                    f"{file}:{number}", hint))  # fmt: skip
        else:
            replacements[written] = read
    _raise(problems)
    return replacements


def _pairs(file: Path, problems: list[Problem]) -> Iterator[tuple[int, str, str]]:
    """(line number, first field, second field) of the good lines; the others are added to `problems`."""
    try:
        with file.open("rb") as stream:
            for number, raw in numbered_lines(stream, str(file)):
                if not raw:
                    continue
                text, reason = decode(raw)
                fields = text.split("\t")
                if reason is None and (len(fields) != 2 or not fields[0] or not fields[1]):
                    reason = f"{len(fields)} fields where 2 are expected, separated by a tab"
                if reason is not None:
                    problems.append(Problem(reason, f"{file}:{number}", "fix or delete the line"))
                    if len(problems) >= _SHOWN:
                        return
                else:
                    yield number, fields[0], fields[1]
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}"
        raise UserError(message, where=str(file), hint="check its rights") from None


def _raise(problems: list[Problem]) -> None:
    if problems:
        raise UserError(problems=problems[:_SHOWN])
