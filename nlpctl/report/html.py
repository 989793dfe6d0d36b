"""Builds HTML. Every string is escaped unless it is of type Html."""

from __future__ import annotations

import html
import re
from typing import Any

# What a browser shows as nothing, as something else, or with the line turned round: control characters,
# half surrogates, zero-width characters and marks of direction.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


_VOID = ("input", "meta")  # elements without an end


class Html(str):
    """Text that is HTML already; any other string is escaped where it is put into a page."""

    __slots__ = ()

    def __add__(self, other: str) -> Html:
        return joined(self, other)


def escaped(value: Any) -> Html:
    """`value` as HTML: Html as it is, anything else as text, with characters that cannot be seen made visible."""
    if isinstance(value, Html):
        return value
    text = "" if value is None else str(value)
    # Texts of the data go onto the page: a direction mark could turn the rest of a line round.
    return Html(html.escape(_UNSEEN.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", text)))


def as_it_is(text: str) -> Html:
    """A text that a form sends back, with all characters that a page can hold."""
    return Html(html.escape(text.encode("utf-8", "replace").decode()))


def element(name: str, /, *children: Any, **attributes: Any) -> Html:
    """<name attributes>children</name>. An underscore in an attribute's name is a hyphen; `class_` is class.

    An attribute that is None is left out.
    """
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{told}>" if name in _VOID else f"<{name}{told}>{joined(*children)}</{name}>")


def joined(*parts: Any, between: str = "") -> Html:
    """The parts one after the other, each escaped unless it is Html."""
    return Html(between.join(escaped(part) for part in parts))
