"""Checks of the keys that describe a network built from scratch."""

from __future__ import annotations

from collections.abc import Iterator

from nlpctl.config.finding import Finding
from nlpctl.config.model_section import ScratchSection
from nlpctl.config.schema import Recipe
from nlpctl.config.tasks import task_info

OWN_NETWORKS = ("bilstm", "textcnn", "bag_of_embeddings", "bigru")


def _heads_divide_width(recipe: Recipe) -> Iterator[Finding]:
    scratch = recipe.model.from_scratch
    if scratch is None or _own(scratch) is not None or scratch.num_attention_heads <= 0:
        return
    if scratch.hidden_size % scratch.num_attention_heads:
        keys = ("model.from_scratch.hidden_size", "model.from_scratch.num_attention_heads")
        message = (
            f"hidden_size {scratch.hidden_size} cannot be split over {scratch.num_attention_heads} attention heads"
        )
        yield Finding(keys, message, "make hidden_size a multiple of num_attention_heads")


def _vectors_have_an_embedding(recipe: Recipe) -> Iterator[Finding]:
    if recipe.model.embeddings is not None and recipe.model.from_scratch is None:
        yield Finding(
            ("model.embeddings", "model.from_scratch"),
            "word vectors are for networks trained from scratch: a trained one has its own",
            "set model.from_scratch in place of model.name_or_path, or remove model.embeddings",
        )


def _one_vocabulary(recipe: Recipe) -> Iterator[Finding]:
    scratch = recipe.model.from_scratch
    if scratch is not None and scratch.vocabulary is not None and scratch.dictionaries is not None:
        keys = ("model.from_scratch.vocabulary", "model.from_scratch.dictionaries")
        yield Finding(keys, "both vocabulary and dictionaries are set", "remove one: each is a whole vocabulary")


def _dictionaries_hold_characters(recipe: Recipe) -> Iterator[Finding]:
    scratch = recipe.model.from_scratch
    if scratch is None or scratch.dictionaries is None:
        return
    if scratch.architecture not in OWN_NETWORKS:
        keys = ("model.from_scratch.dictionaries", "model.from_scratch.architecture")
        message = f"{scratch.architecture} builds its own vocabulary and reads no dictionaries"
        yield Finding(keys, message, "set architecture: bigru, or remove dictionaries")
    elif scratch.unit != "characters":
        keys = ("model.from_scratch.dictionaries", "model.from_scratch.unit")
        yield Finding(keys, "dictionaries are read by character", "set unit: characters")


def _network_does_the_task(recipe: Recipe) -> Iterator[Finding]:
    own = _own(recipe.model.from_scratch)
    task = task_info(recipe.task)
    if own is None or task is None or recipe.model.network is not None:
        return
    if task.tags != (own.architecture == "bigru"):
        keys = ("model.from_scratch.architecture", "task")
        fitting = "bigru" if task.tags else " | ".join(name for name in OWN_NETWORKS if name != "bigru")
        yield Finding(keys, f"{own.architecture} cannot do {recipe.task}", f"set architecture: {fitting}")


def _own_class(recipe: Recipe) -> Iterator[Finding]:
    model = recipe.model
    if model.network is None:
        return
    if model.head != "linear":
        message = "model.network is the whole network, and model.head would change the task's"
        yield Finding(("model.network", "model.head"), message, "remove one of them")
    if model.embeddings is not None:
        message = "model.embeddings fills nlpctl's own networks, not model.network"
        yield Finding(("model.network", "model.embeddings"), message, "read the vectors in your class")


def _own(scratch: ScratchSection | None) -> ScratchSection | None:
    return scratch if scratch is not None and scratch.architecture in OWN_NETWORKS else None


NETWORK_CHECKS = (
    _heads_divide_width,
    _vectors_have_an_embedding,
    _one_vocabulary,
    _dictionaries_hold_characters,
    _network_does_the_task,
    _own_class,
)
