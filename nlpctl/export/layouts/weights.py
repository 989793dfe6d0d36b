"""The layouts of weights (hugging_face.py): for which tasks, and which folders are theirs. Imports no Paddle."""

from __future__ import annotations

from pathlib import Path

from nlpctl.config.schema import Recipe
from nlpctl.config.sentence_folder import DENSE, LENGTH, MODULES, NORMALIZE, POOLING, SETTINGS
from nlpctl.config.tasks import task_info
from nlpctl.config.weights_mark import read_mark
from nlpctl.errors import UserError
from nlpctl.files import json_of
from nlpctl.layout import CONFIG_FILES
from nlpctl.models.source import FAST_TOKENIZER
from nlpctl.outputs import foreign_files

WEIGHTS = TRANSFORMERS, SENTENCES, CROSS_ENCODER = "transformers", "sentence-transformers", "cross-encoder"
WEIGHTS_FILE = "model.safetensors"
_OF_TOKENIZER = (FAST_TOKENIZER, "tokenizer_config.json", "special_tokens_map.json", "vocab.txt", "added_tokens.json")
_OF_SENTENCES = (MODULES, SETTINGS, LENGTH, POOLING, DENSE, NORMALIZE, f"2{NORMALIZE[1:]}")
_WRITTEN = (CONFIG_FILES[0], WEIGHTS_FILE, *_OF_TOKENIZER, *_OF_SENTENCES)  # beside the card


def is_weights_folder(folder: Path) -> bool:
    """Whether `write_weights` filled the folder, and nothing was added or changed, so that it may be replaced."""
    try:
        mark = read_mark(json_of(folder / CONFIG_FILES[0]))
        return mark is not None and mark.is_of(folder / WEIGHTS_FILE) and not foreign_files(folder, _WRITTEN)
    except (OSError, ValueError, AttributeError):
        return False


def refuse_task(layout: str, recipe: Recipe) -> None:
    """UserError if `layout` is not one for the task: needs no network."""
    info, where = task_info(recipe.task), "@[layout]"
    if layout == SENTENCES and not info.vectors:
        hint = f"@[layout={TRANSFORMERS}]" + (f", or {CROSS_ENCODER}" if recipe.data.columns.text_pair else "")
        raise UserError(f"a model of {recipe.task} makes no vectors of texts", where, hint)
    if layout != SENTENCES and info.vectors:
        hint = f"@[layout={SENTENCES}], which Transformers loads too, without pooling"
        raise UserError(f"a model of {recipe.task} is an encoder, which {layout} has no head for", where, hint)
    if layout == CROSS_ENCODER and (info.network_class or "SequenceClassification") != "SequenceClassification":
        message = f"a CrossEncoder gives a pair of texts one answer; this is a model of {recipe.task}"
        raise UserError(message, where, f"@[layout={TRANSFORMERS}]")
    if layout == CROSS_ENCODER and recipe.data.columns.text_pair is None:
        hint = f"@[layout={TRANSFORMERS}], or name the second column if it has one: data.columns.text_pair"
        raise UserError("a CrossEncoder reads pairs of texts, and this model reads one", where, hint)
