"""Synthetic batches from an export's own vocabulary, for timing engines and collecting shapes."""

from __future__ import annotations

from pathlib import Path

from nlpctl.config.schema import Recipe
from nlpctl.data.collate import Batch, raise_failure
from nlpctl.data.encoders import build_encoder
from nlpctl.data.labels import LabelSet
from nlpctl.data.sample_rows import rows_to_compare
from nlpctl.data.task_rows import task_rows
from nlpctl.data.text_encoder import TextEncoder
from nlpctl.models.families import family_of_config
from nlpctl.models.folder import read_trained_card
from nlpctl.models.source import read_config
from nlpctl.models.tokenizer import load_tokenizer
from nlpctl.tasks.base import Task, make_task


def read_description(folder: Path, recipe: Recipe) -> tuple[Task, TextEncoder]:
    """The task and the text encoder of an export. UserError if a file is damaged."""
    card = read_trained_card(folder)
    family = family_of_config(read_config(folder), str(folder / "config.json"))
    tokenizer = load_tokenizer(folder, family)
    task = make_task(recipe, LabelSet(card.labels), card.thresholds)
    return task, build_encoder(task.reading(recipe, tokenizer), recipe.data.tokenizer)


def sample_batches(folder: Path, own: Recipe, batch_size: int, rows: int) -> list[Batch]:
    """About `rows` synthetic rows, in batches of `batch_size` rows of similar length, the shortest first.

    `own`: the recipe of the export in `folder`. It names no data; otherwise rows of that data would be used.
    """
    task, encoder = read_description(folder, own)
    drawn = rows_to_compare(task_rows(own.task, own.data), None, encoder.tokenizer, rows, masked=task.hides)
    features = [feature for example in drawn.examples for feature in task.features(example, encoder)]
    features.sort(key=lambda feature: feature.byte_length)
    collate = task.collator(encoder, labelled=False)
    batches = []
    for start in range(0, max(1, len(features) - batch_size + 1), batch_size):
        batch = collate(features[start : start + batch_size])
        raise_failure(batch)
        batches.append(batch)
    return batches
