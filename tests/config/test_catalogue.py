"""The catalogue says what the installed PaddleNLP says. The only test here that imports Paddle."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from nlpctl.config.catalogue import DATA, compression_fields, training_fields
from nlpctl.config.hub_names import hub_names
from nlpctl.config.refused_keys import MANAGED

NOT_GIVEN = "outputs/run"  # our default of output_dir, which PaddleNLP demands


def declared(field: dataclasses.Field) -> tuple[str, str, object]:
    kind = field.type.__name__ if isinstance(field.type, type) else str(field.type).replace("typing.", "")
    return field.name, kind, NOT_GIVEN if field.default is dataclasses.MISSING else field.default


@pytest.fixture(scope="module")
def trainer():
    return pytest.importorskip("paddlenlp.trainer", reason="PaddleNLP is not installed")


def test_every_training_argument_agrees(trainer) -> None:
    ours = [(field.name, field.paddlenlp_type, field.default) for field in training_fields()]
    theirs = [declared(field) for field in dataclasses.fields(trainer.TrainingArguments)]
    assert len(theirs) > 80
    assert ours == theirs


def test_every_compression_argument_agrees(trainer) -> None:
    training = {field.name: field for field in dataclasses.fields(trainer.TrainingArguments)}
    all_fields = dataclasses.fields(trainer.CompressionArguments)
    ours = [(field.name, field.paddlenlp_type, field.default) for field in compression_fields()]
    assert ours == [declared(field) for field in all_fields if field.name not in training]
    changed = {
        field.name: field.default
        for field in all_fields
        if field.name in training and field.default != training[field.name].default
    }
    assert json.loads((DATA / "compression_arguments.json").read_text())["changed_defaults"] == changed


def test_choices_agree_with_the_enums(trainer) -> None:
    utils = pytest.importorskip("paddlenlp.trainer.trainer_utils")
    choices = {field.name: field.choices for field in training_fields()}
    for name, enum in {
        "evaluation_strategy": utils.IntervalStrategy,
        "logging_strategy": utils.IntervalStrategy,
        "save_strategy": utils.IntervalStrategy,
        "lr_scheduler_type": utils.SchedulerType,
        "optim": utils.OptimizerNames,
    }.items():
        assert choices[name] == tuple(member.value for member in enum), name


def test_every_hub_name_agrees(trainer) -> None:
    from nlpctl.models.families import known_hub_names

    assert sorted(hub_names()) == known_hub_names() and "ernie-3.0-medium-zh" in hub_names()


@pytest.mark.parametrize("field", [*training_fields(), *compression_fields()], ids=lambda field: field.name)
def test_help_is_one_short_sentence(field) -> None:
    assert 8 < len(field.help) <= 140 and field.help.endswith(".") and "\n" not in field.help


def test_types_become_python_types() -> None:
    by_name = {field.name: field.annotation for field in (*training_fields(), *compression_fields())}
    assert by_name["learning_rate"] is float
    assert by_name["eval_steps"] == int | None  # declared int, with default None
    assert by_name["report_to"] == tuple[str, ...] | None
    assert by_name["batch_size_list"] == tuple[int, ...] | None
    assert by_name["batch_num_list"] == tuple[int | None, ...] | None  # None: all rows, which the type does not tell
    assert by_name["evaluation_strategy"] is str


def test_managed_fields_exist() -> None:
    names = {f"training.{field.name}" for field in training_fields()}
    names |= {f"compression.{field.name}" for field in compression_fields()}
    assert set(MANAGED) <= names


def test_the_files_are_what_the_script_writes() -> None:
    """Also the sentences that it puts in the place of PaddleNLP's."""
    script = Path(__file__).resolve().parents[2] / "scripts" / "update_catalogue.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert done.stdout.strip() == "up to date", done.stderr
