"""`nlpctl data augment`: more training rows made from the existing ones."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nlpctl.config.schema import Recipe
from nlpctl.config.tasks import known_tasks, task_info
from nlpctl.data.changed_rows import warn_of_map
from nlpctl.data.open_split import open_split, values_to_write
from nlpctl.data.partition import read_split_rows
from nlpctl.data.passthrough_columns import json_line
from nlpctl.data.readers.row import Row
from nlpctl.data.records import warn_of_nulls, with_json_values
from nlpctl.data.rows.labels import label_names
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.text.word_spans import load_jieba
from nlpctl.data.training_data import resolve_labels
from nlpctl.datatools.inspect import prepare_to_read
from nlpctl.datatools.split import refuse_files
from nlpctl.errors import UserError
from nlpctl.files import json_of, staged_file, writing
from nlpctl.outputs import refuse_pipe
from nlpctl.upstream.dataaug_files import make_augmenter


@dataclass(frozen=True)
class AugmentResult:
    """Rows read and new rows written."""

    rows: int
    new: int


def augment_data(
    recipe: Recipe,
    output: Path,
    method: str,
    *,
    copies: int = 1,
    share: float = 0.1,
    synonyms: Path | None = None,
    overwrite: bool = False,
) -> AugmentResult:
    """Write new rows made of the training rows of `recipe` to `output` (jsonl), by training.seed; see
    datatools/augment.py.

    Raises UserError for a task whose labels refer to positions in the text, for bad rows (by data.on_bad_row), for an
    existing file, and if no text can be changed.
    """
    if not task_info(recipe.task).augmentable:
        hint = f"it works for {', '.join(task.name for task in known_tasks() if task.augmentable)}"
        raise UserError(f"rows of {recipe.task} cannot be augmented", where=recipe.where("task"), hint=hint)
    rows = task_rows(recipe.task, recipe.data)
    refuse_files([output], overwrite)
    prepare_to_read(recipe)
    source = open_split(rows, "train")
    read = read_split_rows(source, rows, resolve_labels(rows, source))
    refuse_files([output], overwrite)
    augmenter = open_augmenter(method, recipe.data.columns.text, copies=copies, share=share, synonyms=synonyms)
    new, names, not_finite = 0, label_names(recipe.data), list[str]()
    rows_to_change = [with_json_values(row, not_finite) for row in read.rows]
    with writing(output, "name another file: @[output]"), staged_file(output) as stream:
        for values in augmenter.rows(rows_to_change, recipe.training.seed):
            stream.write(f"{json_line(values_to_write(source, rows, values, names))}\n".encode())
            new += 1
        if not new:  # inside, so that no file is left behind
            hint = "Latin letters and digits stay as they are, and so do texts of very few words"
            raise UserError("nothing in these texts can be changed", where=source.description, hint=hint)
    warn_of_map(recipe.data, output)
    warn_of_nulls(not_finite, output)
    return AugmentResult(len(read.rows), new)


# -- PaddleNLP's dataaug: words are replaced, inserted, swapped or deleted --------------------------------------------


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
            where="@[synonyms]",
            hint='use your own list: @[synonyms=FILE.json], {"word": ["other", ...]}; swap and delete need none',
        ) from None
    return Augmenter(method, copies, share, column, made)


def _check_synonyms(path: Path) -> None:
    refuse_pipe(path)
    try:
        synonyms = json_of(path)
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(path), hint="check the path") from None
    except ValueError as error:
        raise UserError(f"is not valid JSON: {error}", where=str(path), hint='{"word": ["other", ...]}') from None
    if not isinstance(synonyms, dict) or not synonyms or not all(_texts(others) for others in synonyms.values()):
        raise UserError("does not map words to lists of words", where=str(path), hint='{"word": ["other", ...]}')


def _texts(others: Any) -> bool:
    return isinstance(others, list) and bool(others) and all(isinstance(other, str) for other in others)
