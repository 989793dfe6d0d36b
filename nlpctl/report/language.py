"""The language of pages and tables: English as it stands in the code, or Chinese from chinese.py.

    say("{:,} bad rows of {} were skipped.", 3, "train")    # in the language of now; the values are formatted into it

A new sentence is written in English where it is needed, and its Chinese goes into chinese.py under the English, with
the same places; tests/report/test_language.py asks for it. What a program reads is English whatever the language: a
text that goes into JSON and onto a page is made with `later`, and said where it is drawn. Names stay as they are: keys,
flags, scores, splits, files, and whatever users named. So do messages of errors, wherever they are quoted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from typing import Any

from nlpctl import console, names
from nlpctl.errors import UserError
from nlpctl.report.chinese import CHINESE

LANGUAGES = ("en", "zh")
HTML_CODES: Mapping[str, str] = {"en": "en", "zh": "zh-CN"}
_chosen: ContextVar[str | None] = ContextVar("language", default=None)


class Later(str):
    """An English text that `say` says in the language of then."""

    template: str
    values: tuple[Any, ...]


def later(template: str, *values: Any) -> Later:
    """The English text now; `say` says it in another language where it is drawn."""
    text = Later(_filled(template, values))
    text.template, text.values = template, values
    return text


def say(text: str, *values: Any) -> str:
    """`text` in the language of now, with `values` in its places, as by str.format; without any it may hold any sign.

    What has no Chinese is said in English. One English text with two Chinese ones begins with what tells them apart,
    which is not said: "multiple|times".
    """
    template = text
    if isinstance(text, Later):
        template, values = text.template, text.values
    if template in CHINESE:
        template = CHINESE[template] if language() == "zh" else template.rpartition("|")[2]
    return _filled(template, [say(value) if isinstance(value, Later) else value for value in values])


def say_each(*texts: str) -> list[str]:
    """Each in the language of now, such as the columns of a table."""
    return [say(text) for text in texts]


def say_counted(count: int, unit: str) -> str:
    """A number and its unit, which is given in the plural: 1 row, 1,200 rows; 1 行."""
    return names.counted(count, unit) if language() == "en" else say(f"{{:,}} {unit}", count)


def say_names(listed: Collection[str], most: int = 4) -> str:
    """The first `most` names, and how many more there are: a, b and 3 more."""
    first = say(", ").join(islice(listed, most))
    return say("{} and {:,} more", first, len(listed) - most) if len(listed) > most else first


def language() -> str:
    """One of LANGUAGES: the one that `in_language` chose, else that of the locale."""
    chosen = _chosen.get()
    if chosen is not None:
        return chosen
    return "zh" if console.locale_name().startswith("zh") else "en"


@contextmanager
def in_language(chosen: str | None) -> Iterator[None]:
    """Inside the context pages and tables are in this language; None: as outside of it. UserError: no such language."""
    if chosen is not None and chosen not in LANGUAGES:
        raise UserError(f"there are no pages in {chosen!r}", "@[language]", f"one of {', '.join(LANGUAGES)}")
    token = _chosen.set(chosen or _chosen.get())
    try:
        yield
    finally:
        _chosen.reset(token)


def _filled(template: str, values: Collection[Any]) -> str:
    return template.format(*values) if values else template
