"""Lists of names and "did you mean" guesses for messages; the names in which two mappings differ; names in UTF-8; the
numbers that texts write."""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from pathlib import PurePath
from typing import Any

from nlpctl.errors import UserError

_SHOWN = 12


def nearest(word: str, options: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The option most similar to `word`, ignoring case; None if none is similar.

    `cutoff`: the least similarity, 0 to 1 (difflib); use more if there are many options.
    """
    # Case is ignored in the comparison, and the guess is shown as the option is written.
    by_fold = {str(option).casefold(): str(option) for option in options}
    found = difflib.get_close_matches(word.casefold(), by_fold, n=1, cutoff=cutoff)
    return by_fold[found[0]] if found else None


def nearest_file(name: str, files: Iterable[str]) -> str | None:
    """The file name most similar to `name`; None if none is similar. An ending in common is no likeness, nor is one
    letter."""
    stem = PurePath(name).stem
    cutoff = 0.6 if len(stem) > 1 else 1.0
    alike = [file for file in files if nearest(stem, [PurePath(file).stem], cutoff) is not None]
    return nearest(name, alike, cutoff=0)


def link_hint(path: str | os.PathLike[str]) -> str | None:
    """What to do about a link at `path`, where nothing can be read; None if there is none. Such a link stands among the
    files beside it, and would be told as the nearest of them."""
    if not os.path.islink(path):
        return None
    return f"it is a link to {in_utf8(os.readlink(path))}, where there is nothing: mend the link"


def did_you_mean(word: str, options: Iterable[str], cutoff: float = 0.6) -> str:
    """A question to append to a message, or nothing: (did you mean 'x'?). `cutoff` as for `nearest`."""
    guess = nearest(word, options, cutoff)
    return f" (did you mean {guess!r}?)" if guess is not None else ""


def full_width_signs(text: str) -> str:
    """To add to a hint: the signs of Chinese in `text` that may stand for others; "" for none."""
    signs = "; ".join(f"{sign} there is full-width: write {plain}" for sign, plain in ("：:", "，,") if sign in text)
    return f" ({signs})" if signs else ""


def differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The names, sorted, whose values differ or exist on one side only."""
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))


def format_shape(shape: Iterable[int]) -> str:
    """A shape for people: "312 x 1248"."""
    return " x ".join(map(str, shape)) or "one number"


def listed(options: Iterable[str]) -> str:
    """A short list for messages; a long one is cut."""
    names = [str(option) for option in options]
    more = f", ... ({len(names)} in all)" if len(names) > _SHOWN else ""
    return (", ".join(repr(name) for name in names[:_SHOWN]) or "none") + more


def listed_with_guess(options: Iterable[str], word: str) -> str:
    """`listed`, and which of them `word` may stand for; of a single one there is nothing to ask."""
    names = [str(option) for option in options]
    return listed(names) + (did_you_mean(word, names) if len(names) > 1 else "")


def is_utf8(name: str) -> bool:
    """Whether UTF-8 can hold `name`. Those of files are bytes; in Python half surrogates stand for what is no UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def in_utf8(name: str | os.PathLike[str]) -> str:
    """`name` for messages, in which half surrogates are escaped."""
    return str(name).encode("utf-8", "backslashreplace").decode()


def refuse_not_utf8(name: str | os.PathLike[str], where: str = "", what: str = "this name") -> None:
    """UserError if `name`, of a file or a folder, is not UTF-8: manifests, pages and graphs could not tell it.

    `where`: what names it; by default the message begins with the name, and calls it `what`.
    """
    if not is_utf8(str(name)):
        message = f"the name {in_utf8(name)} is not UTF-8" if where else f"{what} is not UTF-8"
        hint = "rename the file or the folder: nlpctl writes names down in UTF-8"
        raise UserError(message, where or in_utf8(name), hint)


def whole_number(text: str, most: int) -> int | None:
    """The number from 0 to `most` that the digits of `text` write, else None. int() raises for thousands of digits."""
    digits = text.strip().lstrip("0") or text.strip()[-1:]
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > len(str(most)):
        return None
    return int(digits) if int(digits) <= most else None


def counted(count: int, unit: str) -> str:
    """A number and its unit, which is given in the plural: 1 row, 1,200 rows, 1 process."""
    return f"{count:,} {_singular(unit) if count == 1 else unit}"


def subject(count: int, unit: str, one: str, many: str) -> str:
    """`counted` with the verb that goes with it: 1 row is, 2 rows are."""
    return f"{counted(count, unit)} {one if count == 1 else many}"


def _singular(unit: str) -> str:
    for plural, singular in (("ies", "y"), ("sses", "ss"), ("ches", "ch"), ("s", "")):
        if unit.endswith(plural):
            return unit.removesuffix(plural) + singular
    return unit


def and_more(names: Collection[str], most: int = 4) -> str:
    """The first `most` names, and how many more there are: a, b and 3 more. "" for none."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(islice(names, most)) + more
