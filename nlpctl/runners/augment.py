"""`nlpctl data augment`: more training rows made from the existing ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nlpctl.config.schema import Recipe
from nlpctl.config.tasks import known_tasks, task_info
from nlpctl.data.changed_rows import warn_of_map
from nlpctl.data.kept import json_line
from nlpctl.data.labels import label_names
from nlpctl.data.open_split import open_split, values_to_write
from nlpctl.data.split_rows import read_readable
from nlpctl.data.splits import resolve_labels
from nlpctl.data.task_rows import task_rows
from nlpctl.errors import UserError
from nlpctl.files import staged_file, writing
from nlpctl.runners.data import prepare_to_read, refuse_files


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
    """Write new rows made of the training rows of `recipe` to `output` (jsonl), by training.seed; see data/augment.py.

    Raises UserError for a task whose labels refer to positions in the text, for bad rows (by data.on_bad_row), for an
    existing file, and if no text can be changed.
    """
    if not task_info(recipe.task).augmentable:
        hint = f"it works for {', '.join(task.name for task in known_tasks() if task.augmentable)}"
        raise UserError(f"rows of {recipe.task} cannot be augmented", where=recipe.where("task"), hint=hint)
    rows = task_rows(recipe.task, recipe.data)
    refuse_files([output], overwrite)
    prepare_to_read(recipe)
    from nlpctl.data.augment import open_augmenter  # imports PaddleNLP

    source = open_split(rows, "train")
    read = read_readable(source, rows, resolve_labels(rows, source))
    refuse_files([output], overwrite)
    augmenter = open_augmenter(method, recipe.data.columns.text, copies=copies, share=share, synonyms=synonyms)
    new, names = 0, label_names(recipe.data)
    with writing(output, "name another file: -o"), staged_file(output) as stream:
        for values in augmenter.rows(read.rows, recipe.training.seed):
            stream.write(f"{json_line(values_to_write(source, rows, values, names))}\n".encode())
            new += 1
        if not new:  # inside, so that no file is left behind
            hint = "Latin letters and digits stay as they are, and so do texts of very few words"
            raise UserError("nothing in these texts can be changed", where=source.description, hint=hint)
    warn_of_map(recipe.data, output)
    return AugmentResult(len(read.rows), new)
