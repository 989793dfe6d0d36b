"""The trained model that a command is to use, in the engine that was asked for."""

from __future__ import annotations

from nlpctl.config.schema import Recipe
from nlpctl.errors import UserError
from nlpctl.inference.trained import TrainedModel, open_export, open_network, prepared
from nlpctl.models.source import resolve_source
from nlpctl.runners.export import temporary_export


def open_trained_model(recipe: Recipe, source: str, batch_size: int = 64) -> TrainedModel:
    """Load the model that `find_trained_model` found, with the engine and device that the recipe asks for.

    `batch_size` is the number of rows that will be asked at a time: what is fastest depends on it.
    Raises UserError when its task head was never trained, data.max_seq_length is more than it can take, or this
    machine cannot run the engine or precision.
    """
    found = resolve_source(source)
    if found.kind == "export":
        return open_export(recipe, found.folder, batch_size)
    if recipe.inference.engine in ("auto", "dygraph"):
        if recipe.inference.tensorrt:
            hint = "export the model first (nlpctl export), or use --engine paddle"
            raise UserError("TensorRT takes graphs, not networks", recipe.where("inference.tensorrt"), hint)
        return open_network(recipe, source)
    setup = prepared(recipe)
    from nlpctl.inference.auto import this_machine
    from nlpctl.inference.choice import check_engine

    check_engine(recipe.inference, this_machine(setup))  # before the work of an export
    with temporary_export(recipe, source) as folder:
        return open_export(recipe, folder, batch_size)
