"""A vocabulary in a file, for networks trained from nothing: an entry per line, or what PaddleNLP's Vocab saves.

    vocab.txt     an entry per line, its id the line, as Vocab.load_vocabulary reads it and BERT's tokenizers save it
    vocab.json    what Vocab.to_json writes: token_to_idx, and which entries stand for padding and the unknown

Imports neither Paddle nor NumPy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nlpctl import console
from nlpctl.data.lines import read_lines
from nlpctl.errors import UserError
from nlpctl.files import read_json

_MAX_ID = 10_000_000  # a typing error in an id must not take gigabytes


@dataclass(frozen=True)
class Entries:
    """`tokens`: index = id. A blank line, all but the last of equal ones, and what has a line break itself, are
    [unused7] and the like.

    `specials`: pad_token, unk_token and so on, where the file says so.
    """

    tokens: tuple[str, ...]
    specials: Mapping[str, str] = field(default_factory=dict)

    def completed(self, specials: Iterable[str]) -> list[str]:
        """The tokens, behind them those of `specials` that are missing."""
        known = set(self.tokens)
        return [*self.tokens, *(special for special in specials if special not in known)]


def read_entries(path: Path) -> Entries:
    """Read the file. UserError: it cannot be read, or holds no entries."""
    found = _of_vocab(path) if path.suffix == ".json" else Entries(_unique(path, _lines(path)))
    if not found.tokens:
        raise UserError("holds no entries", where=str(path), hint="write an entry per line")
    return found


def _lines(path: Path) -> list[str]:
    return [text for _, text in read_lines(path, "vocabulary")]


def _of_vocab(path: Path) -> Entries:
    content = read_json(path)
    ids = content.get("token_to_idx")
    good = isinstance(ids, dict) and all(type(each) is int and 0 <= each <= _MAX_ID for each in ids.values())
    if not good:
        hint = "give a file of paddlenlp.data.Vocab.to_json, or a text file with an entry per line"
        raise UserError("has no token_to_idx with an id for every entry", where=str(path), hint=hint)
    by_id = {index: token for token, index in ids.items()}
    named = {**_texts(content.get("identifiers_to_tokens")), **_texts({"unk_token": content.get("unk_token")})}
    size = max(by_id, default=-1) + 1
    return Entries(_unique(path, [by_id.get(index, "") for index in range(size)]), named)


def _texts(values: Any) -> dict[str, str]:
    return {name: text for name, text in values.items() if isinstance(text, str)} if isinstance(values, dict) else {}


def _unique(path: Path, lines: Sequence[str]) -> tuple[str, ...]:
    last = {text: index for index, text in enumerate(lines)}
    # Vocabularies are written a line for each entry: a line break would move the ids of all entries behind it.
    unused = [
        index for index, text in enumerate(lines) if not text or last[text] != index or "\n" in text or "\r" in text
    ]
    if unused:
        told = "are blank, repeated or a line break"
        console.note(f"{path}: {len(unused):,} of {len(lines):,} lines {told}, and stand for nothing")
    left_out = set(unused)
    return tuple(f"[unused{index}]" if index in left_out else text for index, text in enumerate(lines))
