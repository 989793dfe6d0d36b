"""Tokens as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nlpctl.data.units import UnitTokenizer
from nlpctl.data.word_spans import is_ideograph

WORD_BEGINS, WORD_GOES_ON = ("Ġ", "▁"), "##"  # how tokenizers write pieces of words


@dataclass(frozen=True)
class Token:
    """A token as people read it; `joined`: no blank stands before it. `contribution` is in log odds."""

    text: str
    contribution: float
    joined: bool


def tokens_of(ids: np.ndarray, contributions: np.ndarray, tokenizer: Any, special: Sequence[int]) -> list[Token]:
    """The tokens of a row, without the special ones before and after its text."""
    text = np.flatnonzero(~np.isin(ids, special))
    if not len(text):
        return []
    first, last = int(text[0]), int(text[-1]) + 1
    forms = tokenizer.convert_ids_to_tokens(ids[first:last].tolist())
    marked = any(form.startswith(WORD_BEGINS) for form in forms)
    characters = isinstance(tokenizer, UnitTokenizer) and tokenizer.settings.unit == "characters"
    found: list[Token] = []
    for form, contribution in zip(forms, contributions[first:last].tolist(), strict=True):
        text = form.removeprefix(WORD_GOES_ON).lstrip("".join(WORD_BEGINS)) or form
        goes_on = characters or (not form.startswith(WORD_BEGINS) if marked else form.startswith(WORD_GOES_ON))
        beside = is_ideograph(text[0]) or (found and is_ideograph(found[-1].text[-1]))
        found.append(Token(text, contribution, bool(not found or goes_on or beside)))
    return found
