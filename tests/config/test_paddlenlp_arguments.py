"""Sections training and compression are what PaddleNLP declares. The only test here that imports Paddle."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Sequence
from typing import Any, Literal

import pytest

from nlpctl.config.hub_names import hub_names
from nlpctl.config.keys import Key, keys_of
from nlpctl.config.refused_keys import MANAGED
from nlpctl.config.schema import CompressionKeys, CompressionSection, TrainingKeys, TrainingSection

OUTPUT_DIR = "outputs/run"  # our default, where PaddleNLP demands a folder


def of_paddlenlp(section: type, own: type) -> dict[str, Any]:
    """The fields of a section that are PaddleNLP's, with their types."""
    hints, ours = typing.get_type_hints(section), {field.name for field in dataclasses.fields(own)}
    return {field.name: hints[field.name] for field in dataclasses.fields(section) if field.name not in ours}


TRAINING = of_paddlenlp(TrainingSection, TrainingKeys)
COMPRESSION = of_paddlenlp(CompressionSection, CompressionKeys)
KEYS = keys_of(TrainingSection, "training") | keys_of(CompressionSection, "compression")


@pytest.fixture(scope="module")
def trainer():
    return pytest.importorskip("paddlenlp.trainer", reason="PaddleNLP is not installed")


def of_recipe(field: dataclasses.Field) -> Any:
    """The type of a recipe's value for one of PaddleNLP's fields. It declares some `int` with the default None."""
    enum = {"IntervalStrategy": str, "List[str]": tuple[str, ...], "List[int]": tuple[int, ...]}
    declared = field.type.__name__ if isinstance(field.type, type) else str(field.type).replace("typing.", "")
    inner = declared.removeprefix("Optional[").removesuffix("]") if declared.startswith("Optional[") else declared
    if field.name == "batch_num_list":  # None is all rows, which the type does not tell
        return tuple[int | None, ...] | None
    known = enum | {"str": str, "int": int, "float": float, "bool": bool}
    return known[inner] | None if inner != declared or field.default is None else known[inner]


def without_choices(annotation: Any) -> Any:
    """The type with `str` in place of a Literal."""
    parts = typing.get_args(annotation)
    if typing.get_origin(annotation) is Literal:
        return str
    if typing.get_origin(annotation) is tuple:
        return tuple[without_choices(parts[0]), ...]
    if type(None) in parts and len(parts) == 2:
        return without_choices(next(part for part in parts if part is not type(None))) | None
    return annotation


def check_fields(section: type, ours: dict[str, Any], theirs: Sequence[dataclasses.Field]) -> None:
    assert list(ours) == [field.name for field in theirs]
    default = section()
    for field in theirs:
        expected = OUTPUT_DIR if field.default is dataclasses.MISSING else field.default
        assert getattr(default, field.name) == expected, field.name
        assert without_choices(ours[field.name]) == of_recipe(field), field.name


def test_every_training_argument_agrees(trainer) -> None:
    assert len(TRAINING) > 80
    check_fields(TrainingSection, TRAINING, dataclasses.fields(trainer.TrainingArguments))


def test_every_compression_argument_agrees(trainer) -> None:
    training = {field.name: field for field in dataclasses.fields(trainer.TrainingArguments)}
    every = dataclasses.fields(trainer.CompressionArguments)
    check_fields(CompressionSection, COMPRESSION, [field for field in every if field.name not in training])
    changed = {
        field.name: field.default
        for field in every
        if field.name in training and field.default != training[field.name].default
    }
    assert changed == {"warmup_ratio": 0.1, "logging_steps": 100, "save_steps": 100}  # which nlpctl does not take over


def test_choices_agree_with_the_enums(trainer) -> None:
    utils = pytest.importorskip("paddlenlp.trainer.trainer_utils")
    for name, enum in {
        "evaluation_strategy": utils.IntervalStrategy,
        "logging_strategy": utils.IntervalStrategy,
        "save_strategy": utils.IntervalStrategy,
        "lr_scheduler_type": utils.SchedulerType,
        "optim": utils.OptimizerNames,
    }.items():
        assert KEYS[name].choices == tuple(member.value for member in enum), name


def test_every_hub_name_agrees(trainer) -> None:
    from nlpctl.models.families import known_hub_names

    assert sorted(hub_names()) == known_hub_names() and "ernie-3.0-medium-zh" in hub_names()


@pytest.mark.parametrize("key", [KEYS[name] for name in (*TRAINING, *COMPRESSION)], ids=lambda key: key.name)
def test_help_is_one_short_sentence(key: Key) -> None:
    assert 8 < len(key.help) <= 140 and key.help.endswith(".") and "\n" not in key.help


def test_managed_fields_exist() -> None:
    assert set(MANAGED) <= {f"training.{name}" for name in TRAINING} | {f"compression.{name}" for name in COMPRESSION}
