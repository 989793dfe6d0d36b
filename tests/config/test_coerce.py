"""Text -> values by declared type."""

from __future__ import annotations

from pathlib import Path

import pytest

from nlpctl.config.coerce import Mismatch, coerce_scalar, resolve_scalar
from nlpctl.config.dump import dump_recipe
from nlpctl.config.positions import ScalarNode
from nlpctl.config.schema import Origin

GOOD = "task: sequence_classification\nmodel: {from_scratch: {}}\ndata: {train: train.tsv}\n"


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("5e-5", float, 5e-5),
        ("3/4", float, 0.75),
        (" 1 / 8 ", float, 0.125),
        ("1", float, 1.0),
        (".5", float, 0.5),
        ("-1", int, -1),
        ("1_000", int, 1000),
        ("1e3", int, 1000),
        ("100.0", int, 100),
        ("no", bool, False),
        ("True", bool, True),
        ("on", bool, True),
        ("0", bool, False),
        ("no", str, "no"),
        ("007", str, "007"),
    ],
)
def test_scalars(text: str, kind: type, value: object) -> None:
    got = coerce_scalar(text, kind)
    assert got == value and type(got) is kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("abc", float),
        ("", float),
        ("1/0", float),
        ("nan", float),
        ("inf", float),
        ("1,5", float),
        ("1.5", int),
        ("3/4", int),
        ("1e999", int),
        ("ten", int),
        ("maybe", bool),
        ("2", bool),
        ("", bool),
    ],
)
def test_scalars_that_do_not_fit(text: str, kind: type) -> None:
    with pytest.raises(Mismatch):
        coerce_scalar(text, kind)


@pytest.mark.parametrize(
    ("text", "plain", "value"),
    [
        ("1e-5", True, 1e-5),
        ("12", True, 12),
        ("0.10", True, 0.1),
        ("no", True, False),
        ("null", True, None),
        ("gelu", True, "gelu"),
        ("12", False, "12"),
        ("no", False, "no"),
        ("1.2.3", True, "1.2.3"),
    ],
)
def test_free_values_are_read_as_they_look(text: str, plain: bool, value: object) -> None:
    got = resolve_scalar(ScalarNode(text, plain, Origin("x"), Path()))
    assert got == value and type(got) is type(value)


def test_values_of_a_recipe(load) -> None:
    recipe = load(
        GOOD.replace("{train: train.tsv}", "{train: [train.tsv], labels: [no, yes], columns: {label: 1}}")
        + "training:\n  learning_rate: 5e-5\n  warmup_ratio: 1/10\n  evaluation_strategy: no\n  report_to: visualdl\n"
        "  save_total_limit: null\n  fp16: 'yes'\n"
        "compression: {width_mult_list: [3/4, 1/2], batch_num_list: 4}\n"
        "runtime: {flags: {FLAGS_fraction_of_gpu_memory_to_use: 1e-3, FLAGS_benchmark: no}, device: gpu}\n"
        "early_stopping:\n"
    )
    assert recipe.data.train[0].endswith("/train.tsv")
    assert recipe.data.labels == ("no", "yes")
    assert recipe.data.columns.label == "1"
    assert recipe.training.learning_rate == 5e-5
    assert recipe.training.warmup_ratio == 0.1
    assert recipe.training.evaluation_strategy == "no"
    assert recipe.training.report_to == ("visualdl",)
    assert recipe.training.save_total_limit is None
    assert recipe.training.fp16 is True
    assert recipe.compression.width_mult_list == ("3/4", "1/2")
    assert recipe.compression.batch_num_list == (4,)
    assert recipe.runtime.flags == {"FLAGS_fraction_of_gpu_memory_to_use": 1e-3, "FLAGS_benchmark": False}
    assert recipe.early_stopping.patience is None


@pytest.mark.parametrize("words", ["all", "None", "[null]"])
def test_all_calibration_rows(load, words: str) -> None:
    """PaddleNLP's documents write None for all of them."""
    recipe = load(GOOD + f"compression: {{batch_num_list: {words}}}")
    assert recipe.compression.batch_num_list == (None,)
    assert load(GOOD + "compression: {batch_num_list: [4, all]}").compression.batch_num_list == (4, None)
    assert load(dump_recipe(recipe)).compression.batch_num_list == (None,)


def test_sections_that_are_optional(load) -> None:
    base = "task: sequence_classification\ndata: {train: train.tsv}\n"
    assert load(base + "model: {from_scratch: {}}").model.from_scratch.hidden_size == 128
    recipe = load(
        base + "extends: base.yaml\nmodel: {name_or_path: x, from_scratch: null}", base="model: {from_scratch: {}}"
    )
    assert recipe.model.from_scratch is None


@pytest.mark.parametrize(
    ("line", "where", "message"),
    [
        ("training: {learning_rate: fast}", "recipe.yaml:4", "training.learning_rate: 'fast' is not a number"),
        (
            "training: {learning_rate: [1, 2]}",
            "recipe.yaml:4",
            "training.learning_rate: expected a number, found a list",
        ),
        ("training: {learning_rate: {a: 1}}", "recipe.yaml:4", "found a mapping"),
        ("training:\n  seed: 1.5", "recipe.yaml:5", "'1.5' is not a whole number"),
        ("training:\n  fp16: perhaps", "recipe.yaml:5", "neither true nor false"),
        ("training:\n  learning_rate:", "recipe.yaml:5", "has no value"),
        ("training: 3", "recipe.yaml:4", "a section is a mapping"),
        ("training:\n  report_to: [visualdl, ~]", "recipe.yaml:5", "has no value"),
        ("training:\n  report_to: [visualdll]", "recipe.yaml:5", "did you mean visualdl?"),
        ("training:\n  lr_scheduler_type: Linear", "recipe.yaml:5", "did you mean linear?"),
        ("runtime: {flags: [a]}", "recipe.yaml:4", "expected a mapping of names to values"),
        ("runtime: {flags: {FLAGS_a: [1]}}", "recipe.yaml:4", "runtime.flags.FLAGS_a: expected a single value"),
        ("runtime: {devices: [0, x]}", "recipe.yaml:4", "'x' is not a whole number"),
        ("runtime: {device: tpu}", "recipe.yaml:4", "'tpu' is not one of its values"),
    ],
)
def test_values_that_do_not_fit(problems, line: str, where: str, message: str) -> None:
    (problem,) = problems(GOOD + line + "\n")
    assert problem.where == where
    assert message in problem.message
    assert problem.hint


@pytest.mark.parametrize(
    ("line", "where", "key", "near"),
    [
        ("training:\n  learnign_rate: 1", "recipe.yaml:5", "training.learnign_rate", "training.learning_rate"),
        ("trainign: {}", "recipe.yaml:4", "trainign", "training"),
        ("learning_rate: 1e-5", "recipe.yaml:4", "learning_rate", "training.learning_rate"),
        ("training: {max_seq_length: 3}", "recipe.yaml:4", "training.max_seq_length", "data.max_seq_length"),
        ("early_stopping: {patients: 3}", "recipe.yaml:4", "early_stopping.patients", "early_stopping.patience"),
    ],
)
def test_unknown_keys_have_the_nearest_name(problems, line: str, where: str, key: str, near: str) -> None:
    (problem,) = problems(GOOD + line + "\n")
    assert (problem.where, problem.message, problem.hint) == (where, f"unknown key {key}", f"did you mean {near}?")


def test_an_unknown_key_without_a_near_one(problems) -> None:
    (problem,) = problems(GOOD + "zzzz: 1\n")
    assert "nlpctl recipe schema" in problem.hint


def test_all_problems_at_once(problems) -> None:
    found = problems(
        "task: sequence_clasification\nmodel: {from_scratch: {hidden_sise: 3}}\ndata: {train: train.tsv}\n"
        "training:\n  learning_rate: x\n  fp16: true\n  bf16: true\n  nope_nope: 1\n  device: cpu\n"
    )
    text = "\n".join(each.message for each in found)
    assert len(found) == 6
    for word in (
        "sequence_clasification",
        "hidden_sise",
        "learning_rate",
        "fp16 and bf16",
        "nope_nope",
        "training.device",
    ):
        assert word in text
