"""The schema as a table: every dotted key with its type, default, choices and help.

Coercion, the JSON Schema, the reference and the command-line flags all walk this table.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from nlpctl.config.key_use import UNKNOWN, KeyUse, PathKind
from nlpctl.config.schema import (
    Axis,
    CompressionSection,
    DataSection,
    DecodeSection,
    DistillationSection,
    EarlyStoppingSection,
    FewShotSection,
    GuardsSection,
    InferenceSection,
    LossSection,
    MaskingSection,
    ModelSection,
    OptimizerSection,
    PromptSection,
    RetrievalSection,
    RuntimeSection,
    SearchSection,
    TrainingSection,
)
from nlpctl.names import nearest

CUTOFF = 0.7  # among two hundred keys and flags, only a close spelling is worth showing

SECTIONS: Mapping[str, type] = {
    "model": ModelSection,
    "data": DataSection,
    "decode": DecodeSection,
    "masking": MaskingSection,
    "prompt": PromptSection,
    "few_shot": FewShotSection,
    "retrieval": RetrievalSection,
    "loss": LossSection,
    "training": TrainingSection,
    "optimizer": OptimizerSection,
    "early_stopping": EarlyStoppingSection,
    "guards": GuardsSection,
    "search": SearchSection,
    "compression": CompressionSection,
    "distillation": DistillationSection,
    "inference": InferenceSection,
    "runtime": RuntimeSection,
}


@dataclass(frozen=True)
class Key:
    """One key of a recipe. Exactly one of `scalar`, `item`, `section`, `free`, `entry`, `lists`, `axes` says what it
    holds; `item` and `scalar` together mean a list or a single string (data.labels), `free` and `scalar` free names
    for texts as they are written (runtime.env)."""

    dotted: str
    default: Any
    help: str
    use: KeyUse | None  # None of a section whose keys have different ones
    path: PathKind | None  # when its texts name files or folders
    choices: tuple[str, ...]
    optional: bool  # null is a value
    scalar: type | None  # str, int, float or bool
    item: type | None  # element type of a list
    section: type | None  # a nested section
    free: bool  # free names -> scalars (model.config, runtime.flags) or texts (runtime.env)
    entry: type | None  # a list of sections (optimizer.groups)
    lists: bool  # a list of lists of text (model.tie)
    axes: bool  # keys -> what is tried of each (search.space)
    all_item: bool  # None is an entry of the list, written `all` or None (compression.batch_num_list)

    @property
    def name(self) -> str:
        return self.dotted.rpartition(".")[2]

    @property
    def is_list(self) -> bool:
        """Whether it holds a list of any kind."""
        return self.item is not None or self.entry is not None or self.lists

    @property
    def type_text(self) -> str:
        """The type as people read it: `number or null`, `list of text`, `one of auto, gpu, cpu`."""
        words: dict[type | None, str] = {str: "text", int: "whole number", float: "number", bool: "true/false"}
        if self.section or self.free or self.axes:
            text = "section" if self.section else "mapping"
        elif self.entry or self.lists:
            text = "list of mappings" if self.entry else "list of lists of text"
        elif self.item:
            text = f"list of {words[self.item]}" + (" or text" if self.scalar else " or all" if self.all_item else "")
        else:
            text = words[self.scalar]
        if self.choices:
            text = ("list of: " if self.item else "one of: ") + ", ".join(self.choices)
        return f"{text} or null" if self.optional else text


@functools.cache
def keys_of(section: type, prefix: str) -> Mapping[str, Key]:
    """Name -> Key for the fields of one section; `prefix` is its dotted name."""
    hints = typing.get_type_hints(section)
    return {
        field.name: _key(f"{prefix}.{field.name}", hints[field.name], field) for field in dataclasses.fields(section)
    }


@functools.cache
def all_keys() -> Mapping[str, Key]:
    """Dotted name -> Key for everything below the top level, sections included."""
    keys: dict[str, Key] = {}

    def walk(section: type, prefix: str, use: KeyUse | None) -> None:
        for key in keys_of(section, prefix).values():
            # the use of distillation.model is that of all keys in it, though they are those of section model
            keys[key.dotted] = key if use is None else dataclasses.replace(key, use=use)
            if key.section:
                walk(key.section, key.dotted, keys[key.dotted].use)

    for name, section in SECTIONS.items():
        walk(section, name, None)
    return keys


def use_of(dotted: str) -> KeyUse:
    """What a key is for; a name inside a mapping, a list or a student's recipe has the use of the key that holds it."""
    parts = dotted.split(".")
    for length in range(len(parts), 1, -1):
        key = all_keys().get(".".join(parts[:length]))
        if key is not None and key.use is not None:
            return key.use
    return UNKNOWN


# Of section training, what scores and their choice read without a training, beside what is no matter of weights.
_OF_SCORES = ("training.seed", "training.metric_for_best_model", "training.greater_is_better")


def is_of_training(dotted: str) -> bool:
    """Whether a key of section training or optimizer is read by trainings alone."""
    section = dotted.partition(".")[0]
    return section in ("training", "optimizer") and use_of(dotted).role == "weights" and dotted not in _OF_SCORES


def keys_with_path(kind: PathKind) -> tuple[str, ...]:
    """The keys whose texts name files or folders in this way, in the order of the schema."""
    return tuple(dotted for dotted, key in all_keys().items() if key.path == kind)


def find_key(dotted: str) -> Key | None:
    """The key of a dotted name; a name inside a free mapping finds the mapping."""
    key = all_keys().get(dotted)
    if key is None and "." in dotted:
        parent = all_keys().get(dotted.rpartition(".")[0])
        return parent if parent is not None and parent.free else None
    return key


def nearest_key(dotted: str) -> str | None:
    """The known key that `dotted` most likely stands for: same name elsewhere, else similar spelling."""
    known = [*all_keys(), *SECTIONS, "task", "extends"]
    section, _, name = dotted.rpartition(".")
    entries = all_keys().get(section.rpartition(".")[0])
    if entries is not None and entries.entry:  # a key inside one entry of a list
        near = nearest(name, keys_of(entries.entry, section), CUTOFF)
        return f"{section}.{near}" if near else None
    siblings = [key for key in known if key.rpartition(".")[0] == section]
    same_name = [key for key in known if key.rpartition(".")[2] == name and key != dotted]
    if same_name:
        return same_name[0]
    near = nearest(name, [key.rpartition(".")[2] for key in siblings], CUTOFF)
    if near is not None:
        return f"{section}.{near}" if section else near
    return nearest(dotted, known, CUTOFF) or nearest_by(name, known)


def nearest_by(name: str, known: Iterable[str]) -> str | None:
    """The dotted key of `known` whose last part is most similar to `name`."""
    by_last = {key.rpartition(".")[2]: key for key in known}
    near = nearest(name, by_last, cutoff=0.75)
    return by_last[near] if near else None


def _key(dotted: str, annotation: Any, field: dataclasses.Field) -> Key:
    """What a field of the schema declares by its type, its default and its metadata."""
    # `int | None` is a UnionType, `Literal["a"] | None` a Union
    is_union = isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union
    parts = typing.get_args(annotation) if is_union else (annotation,)
    kinds = [part for part in parts if part is not type(None)]
    choices: tuple[str, ...] = ()
    scalar: type | None = None
    item: type | None = None
    section: type | None = None
    entry: type | None = None
    free = lists = axes = all_item = False
    for kind in kinds:
        origin = typing.get_origin(kind)
        if origin is Literal:
            scalar, choices = str, typing.get_args(kind)
        elif origin is tuple:
            inner = typing.get_args(kind)[0]
            if isinstance(inner, type) and dataclasses.is_dataclass(inner):
                entry = inner
            elif typing.get_origin(inner) is tuple:
                lists = True
            elif typing.get_origin(inner) is Literal:
                item, choices = str, typing.get_args(inner)
            elif isinstance(inner, types.UnionType):
                item, all_item = typing.get_args(inner)[0], True
            else:
                item = inner
        elif isinstance(kind, type) and dataclasses.is_dataclass(kind):
            section = kind
        elif kind in (str, int, float, bool):
            scalar = kind
        elif typing.get_args(kind)[1] is Axis:
            axes = True
        else:
            free = True
            scalar = str if typing.get_args(kind)[1] is str else None
    default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    optional = len(kinds) < len(parts)
    help, use, path = field.metadata["help"], field.metadata["use"], field.metadata.get("path")
    return Key(
        dotted, default, help, use, path, choices, optional, scalar, item, section, free, entry, lists, axes, all_item
    )
