"""The JSON Schema accepts what the loader accepts, and refuses what an editor should underline."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from nlpctl.config.json_schema import recipe_json_schema
from nlpctl.config.keys import all_keys
from nlpctl.config.library import shipped_root
from nlpctl.config.refused_keys import MANAGED, UNSUPPORTED
from nlpctl.spelling import spelled

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema comes with the extra `dev`")


@pytest.fixture(scope="module")
def validator():
    schema = recipe_json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def shipped_files() -> list[Path]:
    root = shipped_root()
    return sorted([*(root / "recipes").rglob("*.yaml"), *(root / "configs").rglob("*.yaml")])


@pytest.mark.parametrize("path", shipped_files(), ids=lambda path: path.relative_to(shipped_root()).as_posix())
def test_shipped_files_are_accepted(validator, path: Path) -> None:
    errors = [error.message for error in validator.iter_errors(yaml.safe_load(path.read_text(encoding="utf-8")))]
    assert errors == []


@pytest.mark.parametrize(
    "text",
    [
        "task: sequence_classification\nmodel: {from_scratch: {}}\ndata: {train: a.tsv}",
        "training: {learning_rate: 5e-5, warmup_ratio: 3/4, seed: '${env:SEED}', evaluation_strategy: no}",
        "data: {labels: [no, yes], train: [a, b], columns: {label: 1}, splits: {test: null}}",
        "training: {report_to: visualdl, save_total_limit: null}\nruntime: {devices: 0, flags: {FLAGS_a: 1e-3}}",
        "extends: [a.yaml, b.yaml]\ndata:",
        "model: {tie: [[a, b]]}\noptimizer: {groups: [{match: a, learning_rate: 5e-5}, {match: [a], weight_decay: 0}]}",
    ],
)
def test_accepted(validator, text: str) -> None:
    assert [error.message for error in validator.iter_errors(yaml.safe_load(text))] == []


@pytest.mark.parametrize(
    "text",
    [
        "modle: {}",
        "task: nope",
        "training: {learning_rat: 1}",
        "training: {learning_rate: fast}",
        "training: {device: gpu}",
        "training: {lr_scheduler_type: linaer}",
        "training: {report_to: [visualdll]}",
        "training: {fp16: 3}",
        "model: {from_scratch: {hidden_size: wide}}",
        "model: {config: {a: [1]}}",
        "runtime: {device: tpu}",
        "model: {tie: [a, b]}",
        "optimizer: {groups: [{match: a, learning_rat: 1}]}",
    ],
)
def test_refused(validator, text: str) -> None:
    assert list(validator.iter_errors(yaml.safe_load(text)))


def test_every_key_is_there_with_its_help() -> None:
    for dotted, key in all_keys().items():
        node = recipe_json_schema()
        found = True
        for part in dotted.split("."):
            found = found and part in node["properties"]
            node = node["properties"][part] if found else node
        assert found == (dotted not in MANAGED), dotted
        if found:
            refused = UNSUPPORTED.get(dotted)
            assert node["description"] == (key.help if refused is None else f"Refused: {spelled(refused)}.")
