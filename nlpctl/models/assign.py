"""Strict assignment of a weights file's arrays to a network.

Every parameter of the encoder must come from the file. With a wrong prefix a network would silently train from random
weights and look like a bad model, so this is an error.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nlpctl.errors import UserError
from nlpctl.layout import MERGE_ADAPTER
from nlpctl.models.huggingface_layout import untied
from nlpctl.models.weights import to_float32
from nlpctl.names import and_more, counted, subject


@dataclass(frozen=True)
class Assigned:
    """`fresh`: parameters that stay newly initialised. `ignored`: entries of the file without a parameter."""

    fresh: tuple[str, ...]
    ignored: tuple[str, ...]


@dataclass(frozen=True)
class Rules:
    """Allowed differences between the file and the network.

    `keep_head`: take the task head from the file. `head_may_be_fresh`: False for evaluation.
    `layers_kept`: the recipe asks for the first layers only, so surplus ones are no mistake.
    `tolerate_surplus`: the file and config come from the hub as a pair; report surplus, go on.
    `pooler_unused`: the network has a pooler that feeds nothing, so it need not be in the file.
    """

    keep_head: bool
    head_may_be_fresh: bool
    layers_kept: int | None
    tolerate_surplus: bool
    pooler_unused: bool = False


def assign(network: Any, prefix: str, arrays: Mapping[str, np.ndarray], rules: Rules, where: str) -> Assigned:
    """Set the parameters of `network` from `arrays` (PaddleNLP's names, with or without `prefix`).

    Raises UserError when an encoder parameter is missing from the file, has another shape, is not
    finite, when two names of a tied parameter differ, or the file has encoder parameters that the network lacks.
    """
    parameters = dict(network.state_dict())
    arrays = with_prefix(arrays, prefix, parameters)
    head = {name for name in parameters if not name.startswith((f"{prefix}.", *_trained_with_encoder(network)))}
    # Without keep_head a head of the same name in the file must not be used: it may belong to another task.
    wanted = parameters.keys() if rules.keep_head else parameters.keys() - head
    in_file = {name for name in wanted if name in arrays}
    encoder = {name for name in parameters if name.startswith(f"{prefix}.")} - _pooler(prefix, parameters)
    encoder_missing = sorted(encoder - in_file)
    if encoder_missing:
        raise _missing(encoder_missing, len(encoder), prefix, arrays, where)
    _check_surplus(parameters, prefix, arrays, rules, where)
    _check_shapes({name: parameters[name] for name in sorted(in_file)}, arrays, where)
    # By identity, since tied parameters occur under several names; one name in the file is enough.
    values = _value_of_each(parameters, in_file)
    fresh = tuple(name for name, parameter in parameters.items() if id(parameter) not in values)
    untrained = set(fresh) - (_pooler(prefix, parameters) if rules.pooler_unused else set())
    if untrained and not rules.head_may_be_fresh:
        raise UserError(
            f"the task head was never trained: {and_more(sorted(untrained), 3)} not in the weights",
            where=where,
            hint="train it first (nlpctl train), then give the run directory or its model folder",
        )
    used = set(values.values())
    for name in used:
        # state_dict also returns buffers; position ids must stay integers.
        is_index = "int" in str(parameters[name].dtype)  # a buffer, such as position ids
        parameters[name].set_value(arrays[name].astype("int64") if is_index else to_float32(arrays[name]))
    # A second name of a tied parameter is no leftover, but it must have the same values.
    copies = in_file - used
    for name in sorted(copies):
        first = values[id(parameters[name])]
        if not np.array_equal(arrays[name], arrays[first]):
            raise untied(name, first, where)
    return Assigned(fresh, tuple(sorted(arrays.keys() - used - copies)))


def _value_of_each(parameters: Mapping[str, Any], in_file: Collection[str]) -> dict[int, str]:
    """id of a parameter -> the name that gives its value. One of several names may be enough.

    The output layer of a language model is tied to the word embedding: one parameter with two names. Files often hold
    only the name of the embedding. The first name, that of the encoder, counts.
    """
    values: dict[int, str] = {}
    for name, parameter in parameters.items():
        if name in in_file:
            values.setdefault(id(parameter), name)
    return values


def with_prefix(
    arrays: Mapping[str, np.ndarray], prefix: str, parameters: Collection[str]
) -> dict[str, np.ndarray]:
    """Adds the encoder's prefix to the names of a file of a bare encoder, as a network with a head has them."""
    if any(name.startswith(f"{prefix}.") for name in arrays):
        return dict(arrays)
    # A head in such a file must keep its bare name, or it would be taken for a part of the encoder.
    encoder = re.compile(r"(embeddings|embeddings_project|encoder|pooler)\.")
    return {
        f"{prefix}.{name}" if encoder.match(name) or f"{prefix}.{name}" in parameters else name: array
        for name, array in arrays.items()
    }


def _trained_with_encoder(network: Any) -> tuple[str, ...]:
    """What the names of layers begin with that every head of the family has, and that a language model trains.

    Like a pooler they need not be in the file.
    """
    return getattr(network, "trained_with_encoder", ())


def _pooler(prefix: str, names: Collection[str]) -> set[str]:
    """The names of the pooler. It feeds the head only, and language-model checkpoints lack it; so it may be fresh."""
    return {name for name in names if name.startswith(f"{prefix}.pooler.")}


def _missing(missing: list[str], total: int, prefix: str, arrays: Mapping[str, Any], where: str) -> UserError:
    adapted = next((name for name in sorted(arrays) if ".lora_" in name or ".base_layer." in name), None)
    if adapted is not None:
        why = f"{adapted} is of an adapter (LoRA of PEFT) that is not merged into the weights"
        return UserError(why, where=where, hint=MERGE_ADAPTER)
    if len(missing) == total:
        names = and_more(sorted(arrays), 3)
        why = f"none of the encoder's {total} parameters is in the file, whose names begin like {names}"
        hint = f"config.json asks for a {prefix!r} network: its model_type and the weights must belong together"
    else:
        why = f"{len(missing)} of the encoder's {total} parameters are not in the file: {and_more(missing, 3)}"
        hint = "the file is incomplete, or config.json (number of layers?) belongs to another model"
    return UserError(f"{why}; they would stay random", where=where, hint=hint)


def _check_surplus(
    parameters: Mapping[str, Any], prefix: str, arrays: Mapping[str, Any], rules: Rules, where: str
) -> None:
    def expected(name: str) -> bool:
        layer = re.match(rf"{prefix}\.encoder\.layers?\.(\d{{1,9}})\.", name)
        cut = layer is not None and rules.layers_kept is not None and int(layer[1]) >= rules.layers_kept
        return cut or name in parameters or name.startswith(f"{prefix}.pooler.")

    surplus = [name for name in sorted(arrays) if name.startswith(f"{prefix}.") and not expected(name)]
    have = "has" if len(surplus) == 1 else "have"
    if surplus and not rules.tolerate_surplus:
        raise UserError(
            f"{counted(len(surplus), 'encoder parameters')} of the file {have} no place in the network: "
            f"{and_more(surplus, 3)}",
            where=where,
            hint="config.json does not belong to these weights, or asks for something PaddleNLP's network lacks",
        )


def _check_shapes(parameters: Mapping[str, Any], arrays: Mapping[str, np.ndarray], where: str) -> None:
    wrong = [
        f"{name} is {list(arrays[name].shape)} in the file and {parameter.shape} in the network"
        for name, parameter in parameters.items()
        if list(arrays[name].shape) != list(parameter.shape)
    ]
    if wrong:
        raise UserError(
            f"{subject(len(wrong), 'parameters', 'has', 'have')} another shape: {'; '.join(wrong[:3])}",
            where=where,
            hint="config.json (or model.config in the recipe) does not describe the network of these weights",
        )
    for name, parameter in parameters.items():
        # uint16 stands for bfloat16: NumPy has no such type.
        if "float" in str(parameter.dtype) and arrays[name].dtype.kind != "f" and arrays[name].dtype != np.uint16:
            message = f"{name} holds {arrays[name].dtype} where the network has floating point numbers"
            raise UserError(message, where=where, hint="the weights are quantised or damaged: copy the original ones")
        if not np.isfinite(to_float32(arrays[name])).all():
            raise UserError(f"{name} holds NaN or infinite values", where=where, hint="use an earlier checkpoint")
