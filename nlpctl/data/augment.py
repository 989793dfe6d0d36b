"""Data augmentation with PaddleNLP's dataaug: words are replaced, inserted, swapped or deleted."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nlpctl.data.jieba_words import load_jieba
from nlpctl.data.row import Row
from nlpctl.errors import UserError
from nlpctl.files import json_of
from nlpctl.outputs import refuse_pipe
from nlpctl.upstream.dataaug_files import make_augmenter


@dataclass(frozen=True)
class Augmenter:
    """Makes augmented copies of rows.

    `method`: synonym, insert, swap or delete. `copies`: the maximum of new rows per row. `share`: the share of words
    that change, capped by PaddleNLP at 0.3 of the words that can change. `column`: the column of the text.
    """

    method: str
    copies: int
    share: float
    column: str
    augment: Any  # of paddlenlp.dataaug

    def rows(self, rows: Iterable[Row], seed: int) -> Iterator[dict[str, Any]]:
        """Yields copies of each row with an augmented text in `column`. Deterministic for a `seed`.

        Words of Latin letters and numbers never change, so a text of nothing else yields no row.
        """
        # dataaug draws from the global generators of both modules, in one run: without either seed it is random.
        random.seed(seed)
        np.random.seed(seed)
        for row in rows:
            text = row.values[self.column]
            # dataaug may return the same text several times, or the original where no word can be changed.
            for changed in dict.fromkeys(self.augment.augment(text)[0]):
                if changed != text and changed.strip():
                    yield {**row.values, self.column: changed}


def open_augmenter(
    method: str, column: str, *, copies: int = 1, share: float = 0.1, synonyms: Path | None = None
) -> Augmenter:
    """The augmenter of `method`. UserError: a list of synonyms that cannot be read, or cannot be downloaded."""
    if synonyms is not None:
        _check_synonyms(synonyms)
    try:
        made = make_augmenter(method, load_jieba().lcut, synonyms, copies, share)
    except (OSError, RuntimeError) as error:
        # PaddleNLP raises these after retries of a download, with a message of many lines.
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise UserError(
            f"PaddleNLP's list of synonyms cannot be downloaded ({reason})",
            where="--synonyms",
            hint='use your own list: --synonyms FILE.json, {"word": ["other", ...]}; swap and delete need none',
        ) from None
    return Augmenter(method, copies, share, column, made)


def _check_synonyms(path: Path) -> None:
    refuse_pipe(path)
    try:
        found = json_of(path)
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(path), hint="check the path") from None
    except ValueError as error:
        raise UserError(f"is not valid JSON: {error}", where=str(path), hint='{"word": ["other", ...]}') from None
    if not isinstance(found, dict) or not found or not all(_texts(others) for others in found.values()):
        raise UserError("does not map words to lists of words", where=str(path), hint='{"word": ["other", ...]}')


def _texts(others: Any) -> bool:
    return isinstance(others, list) and bool(others) and all(isinstance(other, str) for other in others)
