"""Narrower networks: made of every family and task, and used as any other model."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from fractions import Fraction
from itertools import islice
from pathlib import Path

import numpy as np
import paddle
import pytest
from made_runs import make_run

from nlpctl.compress.networks.dynabert import check, state_distance, train_width
from nlpctl.config.load import load_recipe
from nlpctl.config.schema import InferenceSection
from nlpctl.data.open_split import open_split
from nlpctl.data.rows.examples import ExampleReader
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.errors import RunFailed, UserError
from nlpctl.export.export import export
from nlpctl.export.request import ExportRequest
from nlpctl.inference.evaluate import evaluate
from nlpctl.inference.open_model import open_trained_model
from nlpctl.models.pruned import PrunedShape
from nlpctl.models.source import read_config
from nlpctl.runtime.process import set_up_process
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.training.trainer import RecipeTrainer

HALF = Fraction(1, 2)
SIZES = {"vocab_size": 9, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8, "num_hidden_layers": 2}
CASES = [
    ("sequence_classification", "ernie"),
    ("text_matching", "bert"),
    ("token_classification", "roberta", "crf"),
    ("question_answering", "electra"),
]
# These are trained and loaded only; the command line goes through all of them (scripts/check_compression.py).
MORE = [
    ("multi_label_classification", "bert"),
    ("semantic_indexing", "ernie"),
    ("few_shot_classification", "bert"),
    ("token_classification", "ernie"),
    ("lexical_analysis", "electra", "crf"),
]


def set_training(recipe, **values):
    return dataclasses.replace(recipe, training=dataclasses.replace(recipe.training, **values))


def made(folder: Path, *words: str, **training):
    """A recipe for few steps, the source, and the run that a narrow network of it goes into."""
    recipe = set_training(make_run(folder, *words), max_steps=3, logging_steps=1, report_to=("none",), **training)
    return recipe, str(recipe.run_dir), RunDirectory(folder / "narrow")


def checksums(folder: Path) -> dict[str, str]:
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()}


def outputs(recipe, source: Path, engine: str) -> tuple[np.ndarray, ...]:
    """What an engine makes of the first rows of dev."""
    recipe = dataclasses.replace(recipe, inference=InferenceSection(engine=engine, precision="fp32"))
    model = open_trained_model(recipe, set_up_process(recipe), str(source), 8)
    rows = task_rows(recipe.task, recipe.data)
    reader = ExampleReader(rows, None)
    examples = [reader.read(row) for row in islice(open_split(rows, "dev", labelled=False), 8)]
    features = [feature for example in examples for feature in model.task.features(example, model.encoder)]
    return model.predictor.outputs(model.task.collator(model.encoder, labelled=False)(features))


@pytest.mark.parametrize(
    "words",
    [CASES[0], *(pytest.param(words, marks=pytest.mark.slow) for words in CASES[1:] + MORE)],
    ids=lambda words: "-".join(words),
)
def test_a_narrow_network_is_a_model_like_any(tmp_path, words) -> None:
    recipe, source, run = made(tmp_path, *words)
    before = checksums(Path(source))
    model = train_width(recipe, source, HALF, run, set_up_process(recipe))
    assert checksums(Path(source)) == before
    config = read_config(model)
    assert config["pruned"] == {"heads": [1, 1], "neurons": [32, 32]}
    assert read_config(Path(source) / "model").get("pruned") is None
    start = open_trained_model(recipe, set_up_process(recipe), str(run.path / "start")).predictor.network
    opened = open_trained_model(recipe, set_up_process(recipe), str(run.path))
    assert PrunedShape.of(opened.predictor.network) == PrunedShape((1, 1), (32, 32))
    old, new = (dict(network.named_parameters()) for network in (start, opened.predictor.network))
    learned = [name for name in old if (old[name].numpy() != new[name].numpy()).any()]
    assert len(learned) > len(old) // 2
    scores = json.loads(run.metrics_file.read_text())
    assert evaluate(load_recipe(run.path, (), "apply"), ("dev",)).metrics == scores
    if words in CASES:
        result = export(recipe, str(model), ExportRequest(("paddle", "onnx"), ("fp32",)), output=tmp_path / "export")
        expected = outputs(recipe, model, "dygraph")
        assert expected[0].std(0).max() > 0.01
        for engine in ("paddle", "onnxruntime"):
            for one, other in zip(outputs(recipe, result.folder, engine), expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


def test_an_interrupted_training_goes_on_to_the_same_weights(tmp_path, monkeypatch) -> None:
    recipe, source, run = made(tmp_path, "sequence_classification", "bert")
    settings = {"evaluation_strategy": "steps", "save_strategy": "steps", "eval_steps": 2, "save_steps": 2}
    recipe = set_training(recipe, **settings, max_steps=5, load_best_model_at_end=True, save_total_limit=5)
    setup = set_up_process(recipe)
    whole = train_width(recipe, source, HALF, RunDirectory(tmp_path / "whole"), setup)
    step = RecipeTrainer.compute_loss

    def fails(trainer, *inputs, **more):
        if trainer.state.global_step == 3:
            raise RunFailed("the power went")
        return step(trainer, *inputs, **more)

    with monkeypatch.context() as patched:
        patched.setattr(RecipeTrainer, "compute_loss", fails)
        with pytest.raises(RunFailed, match="the power went"):
            train_width(recipe, source, HALF, run, setup)
    assert run.last_checkpoint().name == "checkpoint-2" and not run.model.exists()
    kept = checksums(run.path / "start")
    model = train_width(recipe, source, HALF, run, setup)
    assert checksums(run.path / "start") == kept
    assert run.read_manifest().resumed[0]["was"] == "failed"
    weights = [paddle.load(str(folder / "model_state.pdparams"), return_numpy=True) for folder in (whole, model)]
    assert all(value.tobytes() == weights[1][name].tobytes() for name, value in weights[0].items())
    events = run.events_file.read_bytes()
    assert train_width(recipe, source, HALF, run, setup) == model  # finished: left as it is
    assert run.events_file.read_bytes() == events


def test_it_learns_what_the_source_says(tmp_path) -> None:
    """Trained for some time, the narrow network decides as the source does, more often than it did at first."""
    recipe, source, run = made(tmp_path, "sequence_classification", "ernie")
    recipe = set_training(recipe, max_steps=200, learning_rate=3e-3, load_best_model_at_end=False)
    train_width(recipe, source, HALF, run, set_up_process(recipe))
    losses = [json.loads(line)["loss"] for line in run.events_file.read_text().splitlines() if '"log"' in line]
    assert np.mean(losses[-5:]) < 0.85 * np.mean(losses[:5])


def test_distances_of_hidden_states() -> None:
    one = paddle.to_tensor(np.arange(12, dtype=np.float32).reshape(1, 3, 4))
    moved = one + paddle.to_tensor([1.0, 0.0, 0.0, 0.0])
    mask = paddle.to_tensor([[1.0, 1.0, 0.0]])
    apart = moved + paddle.to_tensor([[[0.0], [0.0], [9.0]]])  # beyond the text
    assert float(state_distance([one, one], [apart, one], [mask])) == pytest.approx(0.25)
    assert float(state_distance([one, one], [apart, apart], [mask])) == pytest.approx(0.5)
    assert float(state_distance([one, one], [apart, one], [mask, mask])) == pytest.approx(0.125)


def test_thresholds_are_tuned_for_the_narrow_network(tmp_path) -> None:
    recipe, source, run = made(tmp_path, "multi_label_classification", "ernie")
    recipe = dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, test=recipe.data.dev))
    model = train_width(recipe, source, HALF, run, set_up_process(recipe))
    assert len(json.loads((model / "labels.json").read_text())["thresholds"]) == 3
    scores, mistakes = (json.loads(file.read_text()) for file in (run.metrics_file, run.mistakes_file))
    assert scores["test"] == scores["dev"] and list(scores) == ["dev", "test"]  # as of any run
    assert (mistakes["split"], mistakes["rows"]) == ("dev", 40) and mistakes["wrong"] >= len(mistakes["worst"])
    assert "parameters" in run.read_manifest().content


@pytest.mark.parametrize(
    ("task", "config", "message"),
    [
        ("sequence_classification", {"model_type": "textcnn"}, "textcnn has none"),
        ("sequence_classification", {"model_type": "albert", **SIZES}, "AlbertModel has no transformer layers"),
        ("masked_language_model", {"model_type": "bert"}, "no answers that a student could learn from"),
    ],
)
def test_what_cannot_work_is_refused_at_once(tmp_path, task, config, message) -> None:
    recipe = dataclasses.replace(make_run(tmp_path, "sequence_classification"), task=task)
    with pytest.raises(UserError, match=message):
        check(recipe, config)
    check(dataclasses.replace(recipe, task="question_answering"), {"model_type": "electra", **SIZES})


def test_no_training_data_is_told_before_anything_is_written(tmp_path) -> None:
    recipe, source, run = made(tmp_path, "sequence_classification")
    bare = dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, train=()))
    with pytest.raises(UserError, match="no training data"):
        train_width(bare, source, HALF, run, set_up_process(bare))
    assert not run.path.exists()


def test_criterion_decides_what_is_important(tmp_path, monkeypatch) -> None:
    module = tmp_path / "own_loss.py"
    module.write_text("def loss(logits, labels):\n    raise ValueError('asked')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    recipe, source, run = made(tmp_path, "sequence_classification")
    recipe = dataclasses.replace(
        recipe, compression=dataclasses.replace(recipe.compression, criterion="own_loss:loss")
    )
    with pytest.raises(UserError, match="asked"):
        train_width(recipe, source, HALF, run, set_up_process(recipe))
