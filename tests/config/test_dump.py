"""dump_recipe and load_recipe are each other's inverse."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from nlpctl.config.dump import dump_recipe, recipe_values
from nlpctl.config.load import load_recipe

BASE = "task: sequence_classification\n"

TEXTS = {
    "defaults": "model: {from_scratch: {}}\ndata: {train: train.tsv}\n",
    "numbers": "model: {from_scratch: {hidden_size: 6}}\ndata: {train: train.tsv}\n"
    "training: {learning_rate: 1/3, adam_epsilon: 1e-12, max_steps: 1e3, seed: 4294967295}\n",
    "words that YAML would change": "model:\n  name_or_path: 'null'\n"
    "  config: {a: 5e-5, b: '5e-5', c: 'no', d: no, e: '12', f: ~}\n"
    "data: {train: train.tsv, labels: [no, yes, '1', null_, 1e5, '~', '', '99999999999999999999']}\n"
    'training: {run_name: "$${x} #: \' \\" 中文", evaluation_strategy: no}\n',
    "paths": "model: {name_or_path: ./m}\n"
    "data: {train: [train.tsv, '~/x y.tsv', 'a,b.tsv'], dev: dev.tsv, labels: l.txt}\n"
    "training: {output_dir: out, logging_dir: logs}\n"
    "runtime: {cache_dir: c, flags: {FLAGS_benchmark: true, FLAGS_fraction_of_gpu_memory_to_use: 0.5}}\n",
    "nulls": "model: {from_scratch: {}}\ndata: {dataset: glue/cola, splits: {test: null, dev: validation}}\n"
    "compression: {strategy: null}\n",
    "lists of lists and of sections": "model: {name_or_path: x, tie: [[a, b], ['*.c', d.0-1]], freeze: a,\n"
    "  add_tokens: words.txt, set_parameters: {'*.bias': 1e-3, a.b: values.npy, c: 2,\n"
    "  d: 'normal(0, 0.02)'}}\ndata: {train: train.tsv}\n"
    "optimizer: {layer_decay: 0.9, groups: [{match: [a, '*.b'], learning_rate: 1e-5}, {match: c, weight_decay: 0}]}\n",
    "a search": "model: {from_scratch: {}}\ndata: {train: train.tsv}\nsearch: {trials: 7, budget: 8h, space: {\n"
    "  model.freeze: [[], [a, b]], training.seed: {int: [1, 9], step: 2, when: {model.freeze: []}},\n"
    "  training.learning_rate: {log: [1e-5, 1/3]}, data.unit: [words, characters], model.config.x: [1, no, 'no', ~],\n"
    "  training.weight_decay: {uniform: [0, 1], when: {data.unit: words, model.freeze: [[a, b], []]}}}}\n",
    "lines": 'model: {name_or_path: x}\ndata: {train: train.tsv}\ntraining: {run_name: "a\\nb\\n\\n c\\t"}\n',
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_reloading_gives_an_equal_recipe(load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    recipe = load(BASE + text, purpose="apply")
    dumped = dump_recipe(recipe)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "recipe.yaml").write_text(dumped, encoding="utf-8")
    monkeypatch.chdir(elsewhere)
    again = load_recipe(elsewhere / "recipe.yaml", purpose="apply")
    assert again == recipe
    assert dump_recipe(again) == dumped


def test_only_differences_are_written(load) -> None:
    recipe = load(BASE + TEXTS["defaults"])
    values = recipe_values(recipe, everything=False)
    assert values == {
        "task": "sequence_classification",
        "model": {"from_scratch": {}},
        "data": {"train": [recipe.data.train[0]]},
        "training": {"output_dir": recipe.training.output_dir},
    }
    everything = recipe_values(recipe, everything=True)
    assert everything["training"]["learning_rate"] == 5e-5 and everything["data"]["columns"]["label"] == "label"


def test_the_dump_is_plain_yaml_with_a_header(load) -> None:
    dumped = dump_recipe(load(BASE + TEXTS["defaults"]))
    assert dumped.startswith("# ")
    assert yaml.safe_load(dumped)["model"] == {"from_scratch": {}}
