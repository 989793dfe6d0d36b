"""`nlpctl data split`: rows of a file or of a recipe divided into train, dev and test, each label alike."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nlpctl import console
from nlpctl.config.schema import SPLITS, Recipe
from nlpctl.config.tasks import task_info
from nlpctl.data.changed_rows import unmapped_source
from nlpctl.data.inspection.duplicates import NEAR
from nlpctl.data.open_split import open_split
from nlpctl.data.partition import absent_kinds, as_written, cut, label_counts, no_row_left, read_split_rows
from nlpctl.data.records import Records
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.training_data import resolve_labels
from nlpctl.datatools.inspect import prepare_to_read
from nlpctl.documents import Document
from nlpctl.errors import UserError
from nlpctl.files import staged_file, writing
from nlpctl.names import counted
from nlpctl.outputs import refuse_output

MANIFEST = "split.json"


@dataclass(frozen=True)
class SplitResult:
    """Per part: its file, the number of rows, and the number of examples per label; `skipped`: the bad rows."""

    files: dict[str, Path]
    rows: dict[str, int]
    labels: dict[str, dict[str, int]]
    skipped: int


def split_data(
    recipe: Recipe,
    folder: Path,
    shares: Mapping[str, float],
    *,
    group_by: str | None = None,
    near: bool = False,
    overwrite: bool = False,
    most_bad: float = 1.0,
) -> SplitResult:
    """Split the training rows of `recipe` into new files train, dev and test in `folder`, by training.seed.

    `shares`: part to its share of the rows (below 1) or number of rows; a part that is not named gets none, except
    train, which gets the rest. Rows with the same texts stay together, and so do the questions of one text; see
    `partition.cut` for `group_by` and `near`. Raises UserError for bad rows (by data.on_bad_row, and for a larger share
    of them than `most_bad`), for shares that add up to too much, and for existing files.
    """
    rows = task_rows(recipe.task, recipe.data)
    if recipe.data.dataset is not None:  # may import Paddle
        prepare_to_read(recipe)
    source = open_split(rows, "train")
    read = read_split_rows(source, rows, resolve_labels(rows, source))
    skipped = read.skipped["total"] if read.skipped else 0
    total = len(read.rows) + skipped
    if skipped > most_bad * total:
        hint = "`nlpctl data inspect` of a recipe with the file names them"
        raise UserError(f"{skipped:,} of {counted(total, 'rows')} cannot be used", source.description, hint)
    # As they were before data.map, which a recipe that reads the parts calls again.
    given = unmapped_source(source)
    records = Records(given, as_written(given, read, recipe.data), read.starts)
    targets = part_sizes(len(read.rows), shares)
    files = {part: folder / f"{part}{records.suffix}" for part, size in targets.items() if size}
    refuse_files([*files.values(), folder / MANIFEST], overwrite)
    _refuse_older_parts(folder, files)
    seed = recipe.training.seed
    likeness = NEAR if near else None
    chosen = cut(read, targets, seed, together=rows.split_together, group_by=group_by, near=likeness)
    counts = {part: len(chosen[part]) for part in files}
    labels = {part: label_counts(read, chosen[part]) for part in files}
    manifest_values = {"source": source.description, "task": recipe.task, "seed": seed, "shares": dict(shares)}
    manifest_values |= {
        "group_by": group_by,
        "near": likeness,
        "rows": counts,
        "labels": labels,
        "skipped_rows": read.skipped,
    }
    # All are written to temporary files before the first is renamed, so that a full disk cannot mix two splits.
    with writing(folder, "name another folder: @[output]"), contextlib.ExitStack() as staged:
        for part, path in files.items():
            staged.enter_context(staged_file(path)).write(records.content(chosen[part]))
        manifest = staged.enter_context(staged_file(folder / MANIFEST))
        manifest.write((json.dumps(manifest_values, ensure_ascii=False, indent=2) + "\n").encode())
    without = "without entities" if task_info(recipe.task).tags else "without labels"
    grouped = near or group_by is not None or rows.split_together is not None
    if absent := absent_kinds(read, {part: chosen[part] for part in files}, without, grouped):
        console.warn(absent)
    return SplitResult(files, counts, labels, skipped)


def part_sizes(total: int, shares: Mapping[str, float]) -> dict[str, int]:
    """Number of rows of train, dev and test. UserError if they exceed `total`."""
    exact = {part: share * total if share < 1 else share for part, share in shares.items()}
    sizes = {**dict.fromkeys(SPLITS, 0), **{part: round(size) for part, size in exact.items()}}
    if math.isclose(sum(exact.values()), total) and sum(sizes.values()) != total:
        # By largest remainders: of 15 rows 12, 1.5 and 1.5 would be 16.
        sizes |= {part: math.floor(size) for part, size in exact.items()}
        left = total - sum(sizes.values())
        for part in sorted(exact, key=lambda part: sizes[part] - exact[part])[:left]:
            sizes[part] += 1
    for part, share in shares.items():
        if share > 1 and share != int(share):
            hint = "below 1 it is a share of the rows, from 1 on a number of rows"
            raise UserError(f"{share:g} is neither a share nor a whole number", where=f"@[{part}]", hint=hint)
        if share and not sizes[part]:
            raise no_row_left(part, f"{share:g} of {total:,} rows is less than one")
    if "train" not in shares:
        sizes["train"] = total - sum(sizes.values())
    if sizes["train"] <= 0 or sum(sizes.values()) > total:
        asked = ", ".join(f"{part} {size:,}" for part, size in sizes.items() if part in shares)
        hint = "shares are below 1 and add up to 1 or less; from 1 on a value is a number of rows"
        message = f"{total:,} rows cannot be split like this: {asked}"
        raise UserError(message, where="@[dev], @[test], @[train]", hint=hint)
    return sizes


@dataclass(frozen=True)
class SplitManifest(Document):
    """split.json of `nlpctl data split`: how many rows of the data each part got, by its name."""

    rows: Mapping[str, Any]


def _refuse_older_parts(folder: Path, files: Mapping[str, Path]) -> None:
    """UserError if a file of an earlier split would remain: its rows would be in the new files too."""
    earlier = SplitManifest.load_if_valid(folder / MANIFEST)
    if earlier is None:
        return
    for path in (path for part in SPLITS if part in earlier.rows for path in sorted(folder.glob(f"{part}.*"))):
        if path not in files.values():
            message = "this file of an earlier split would remain, and its rows are in the new files too"
            raise UserError(message, where=str(path), hint="delete it, or name another folder: @[output]")


def refuse_files(written: Sequence[Path], overwrite: bool) -> None:
    """UserError if `outputs.refuse_output` refuses one of the files."""
    for path in written:
        refuse_output(path, overwrite, exists="the file exists", elsewhere="name another place: @[output]")
