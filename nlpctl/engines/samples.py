"""Synthetic batches from an export's own vocabulary, for timing engines and collecting shapes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from nlpctl.config.schema import Recipe
from nlpctl.data.batches.collate import Batch, raise_failure
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.sample_rows import rows_to_compare
from nlpctl.data.text.encoder import TextEncoder
from nlpctl.tasks.base import Task, task_and_encoder

TIMED_ROWS, MOST_BATCHES = 128, 16  # for timing: rows, and batches of each size


def synthetic_rows(folder: Path, own: Recipe, rows: int) -> tuple[Task, TextEncoder, tuple[Any, ...]]:
    """About `rows` examples of random words, with the task and the encoder that read them.

    `own`: the recipe of the export in `folder`. It names no data; otherwise rows of that data would be used.
    """
    task, encoder = task_and_encoder(folder, own)
    drawn = rows_to_compare(task_rows(own.task, own.data), None, encoder.tokenizer, rows, masked=task.masks_inputs)
    return task, encoder, drawn.examples


def sample_batches(folder: Path, own: Recipe, batch_size: int, rows: int) -> list[Batch]:
    """About `rows` synthetic rows, in batches of `batch_size` rows of similar length, the shortest first.

    `own` as for `synthetic_rows`.
    """
    task, encoder, examples = synthetic_rows(folder, own, rows)
    features = [feature for example in examples for feature in task.features(example, encoder)]
    features.sort(key=lambda feature: feature.byte_length)
    return _batches(task, encoder, features, batch_size)


def timing_batches(
    task: Task, encoder: TextEncoder, examples: Sequence[Any], sizes: Sequence[int]
) -> dict[int, list[Batch]]:
    """For each batch size, batches of examples of similar length, of all lengths, few enough to be run often.

    The longest come first, as in a pipeline.
    """
    features = [feature for example in examples for feature in task.features(example, encoder)]
    features = list(islice(cycle(features), max(TIMED_ROWS, *sizes)))
    features.sort(key=lambda feature: feature.byte_length)
    by_size = {}
    for size in sizes:
        batches = _batches(task, encoder, features, size)
        by_size[size] = batches[:: -len(batches) // MOST_BATCHES]
    return by_size


def _batches(task: Task, encoder: TextEncoder, features: Sequence[Any], batch_size: int) -> list[Batch]:
    """Full batches of the sorted features; a single smaller one if they do not fill one."""
    collate = task.collator(encoder, labelled=False)
    batches = []
    for start in range(0, max(1, len(features) - batch_size + 1), batch_size):
        batch = collate(features[start : start + batch_size])
        raise_failure(batch)
        batches.append(batch)
    return batches
