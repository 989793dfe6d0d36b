"""Builds a tokenizer from a vocabulary file, including those of Paddle 1.x with lines `token<TAB>id`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from nlpctl.data.lines import read_lines
from nlpctl.errors import UserError
from nlpctl.models.families import OWN, Family
from nlpctl.models.tokenizer import load_tokenizer

_NAME = "vocab.txt"


def tokenizer_from(path: Path, family: Family) -> Any:
    """The family's tokenizer with the vocabulary in `path`, a model folder or a vocab.txt.

    UserError: it cannot be read, or its ids are not the numbers of its lines.
    """
    if path.is_dir():
        return load_tokenizer(path, family)
    if family.name in OWN:
        raise UserError("a network of nlpctl needs a tokenizer folder", "--vocabulary", "give the old model's folder")
    tokens = _tokens(path)
    with tempfile.TemporaryDirectory(prefix="nlpctl-vocabulary-") as name:
        folder = Path(name)
        (folder / _NAME).write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
        return load_tokenizer(folder, family)


def _tokens(path: Path) -> list[str]:
    tokens = []
    for number, (where, line) in enumerate(read_lines(path, "vocabulary")):
        token, tab, index = line.partition("\t")
        # vocab.txt has no ids: the line number is the id, so unsorted entries would change meaning.
        if tab and index.strip() != str(number):
            raise UserError(f"the id {index.strip()!r} stands where {number} is expected", where, "sort it by id")
        tokens.append(token)
    return tokens
