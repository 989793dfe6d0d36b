"""The layouts of weights (hugging_face.py): for which tasks, and which folders are theirs. Imports no Paddle."""

from __future__ import annotations

from nlpctl.config.schema import Recipe
from nlpctl.config.tasks import task_info
from nlpctl.errors import UserError

WEIGHTS = TRANSFORMERS, SENTENCES, CROSS_ENCODER = "transformers", "sentence-transformers", "cross-encoder"
WEIGHTS_FILE = "model.safetensors"


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
