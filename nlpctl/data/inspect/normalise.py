"""Normalised forms of a text, for the detection of duplicates."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from hashlib import blake2b

_BLANKS = re.compile(r"\s+")
_NO_LETTER = re.compile(r"[\W_]+")


def same_form(text: str) -> str:
    """`text` in lower case, NFKC form, with single blanks."""
    return _BLANKS.sub(" ", unicodedata.normalize("NFKC", text).casefold()).strip()


def letters_form(same: str) -> str:
    """The letters and digits of a `same_form`, with one blank for whatever stands between them."""
    return _NO_LETTER.sub(" ", same).strip()


def row_key(passages: Sequence[str], *, ordered: bool = False) -> bytes:
    """Equal for rows whose texts are the same, in whatever order unless `ordered`: who has seen (A, B) knows (B, A).

    A digest, since a million of them are held.
    """
    forms = [same_form(passage) for passage in passages]
    # NUL hardly occurs in text, so two texts do not join into the form of two others.
    joined = "\0".join(forms if ordered else sorted(forms))
    return blake2b(joined.encode("utf-8"), digest_size=16).digest()
