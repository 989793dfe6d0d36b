"""The parts of contrastive few-shot classification; tests/end_to_end/test_contrastive.py trains with them."""

from __future__ import annotations

import numpy as np
import pytest

import nlpctl  # noqa: F401  before paddle

# isort: split
import paddle
from sklearn.linear_model import LogisticRegression

from nlpctl.config.load import load_recipe
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.rows.text_rows import TextExample
from nlpctl.data.training_data import read_training_data
from nlpctl.errors import UserError
from nlpctl.runtime.machine import cpu_info
from nlpctl.runtime.process import set_up_process
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.tasks.base import make_task
from nlpctl.tasks.few_shot_classification import PairDraw, cosine_loss, logistic_regression
from nlpctl.training.fast_cpu import fast_cpu
from nlpctl.training.overfit import ready_to_train
from nlpctl.training.prepare import prepare_training
from nlpctl.training.trainer import RecipeTrainer


def test_equal_labels_are_to_meet_and_different_ones_to_part() -> None:
    """Three texts: one pair of equal labels with cosine 0, two of different labels with cosines 0 and 1."""
    vectors = paddle.to_tensor(np.array([[1, 0], [0, 1], [0, 1]], np.float32))
    loss = cosine_loss(vectors, paddle.to_tensor(np.array([0, 0, 1])))
    assert float(loss) == pytest.approx((1 + (0 + 1) / 2) / 2)
    assert float(cosine_loss(vectors[1:], paddle.to_tensor(np.array([1, 1])))) == 0
    assert np.isfinite(float(cosine_loss(vectors[:2], paddle.to_tensor(np.array([0, 1])))))  # no equal labels


def test_one_label_leaves_nothing_to_compare(make_task_of) -> None:
    task = make_task_of("few_shot_classification", ("a",), few_shot={"method": "contrastive"})
    with pytest.raises(UserError, match="all training rows have the same label"):
        task.collect_statistics([TextExample("text", None, 0)])


RECIPE = {
    "task": "few_shot_classification",
    "few_shot": {"method": "contrastive"},
    "model": {"from_scratch": {"architecture": "bert", "min_frequency": 1, "hidden_size": 16, "num_hidden_layers": 1}},
    "data": {"train": "few.tsv"},
    "training": {"output_dir": "run", "evaluation_strategy": "no", "save_strategy": "no",
                 "load_best_model_at_end": False},
    "runtime": {"device": "cpu"},
}  # fmt: skip


def test_another_loss_trains_the_head_too(tmp_path, monkeypatch) -> None:
    """Its steps are of rows, as in a compression, and nothing fits the head after them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "few.tsv").write_text("text\tlabel\ngood room\tpos\nbad room\tneg\n")
    recipe = load_recipe(RECIPE)
    setup, data = set_up_process(recipe), read_training_data(task_rows(recipe.task, recipe.data))
    for own_loss in (True, False):
        prepared = prepare_training(recipe, setup, make_task(recipe, data.labels), data, own_loss=own_loss)
        head = prepared.model.network.classifier.parameters()
        assert [parameter.stop_gradient for parameter in head] == [own_loss] * 2


@pytest.mark.skipif(not cpu_info().computes("bf16"), reason="this processor does not compute in bf16")
def test_in_a_training_in_bf16_the_head_is_fitted_to_vectors_of_32_bits(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "few.tsv").write_text("text\tlabel\ngood room\tpos\nbad room\tneg\n")
    recipe = load_recipe(RECIPE | {"training": RECIPE["training"] | {"bf16": True}})
    trainer = RecipeTrainer(ready_to_train(recipe), RunDirectory(tmp_path / "run"), None, lambda _: [])
    network, heads = trainer.loaded.network, []
    for layer in network.bert.encoder.sublayers():
        if isinstance(layer, paddle.nn.Linear):  # at the start too small for a difference
            layer.weight.set_value(layer.weight * 10)
    with fast_cpu(recipe, "cpu", network):
        for fit in (trainer.fit_layers, lambda: trainer.task.fit_layers(network, trainer.encoder)):
            fit()
            heads.append(network.classifier.weight.numpy())
    trainer.fit_layers()
    found, in_bf16, expected = (*heads, network.classifier.weight.numpy())
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.abs(in_bf16 - expected).max() > 1e-4


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


@pytest.mark.parametrize(("classes", "weights"), [(2, None), (2, {0: 1.0, 1: 5.0}), (4, None), (4, {2: 3.0})])
def test_the_head_gives_the_probabilities_of_the_regression(classes: int, weights: dict[int, float] | None) -> None:
    chance = np.random.default_rng(1)
    vectors = chance.normal(size=(40, 8)).astype(np.float32)
    labels = [row % classes for row in range(40)]
    weight, bias = logistic_regression(vectors, labels, weights)
    assert weight.shape == (8, classes) and bias.shape == (classes,)
    reference = LogisticRegression(max_iter=1000, class_weight=weights).fit(vectors.astype(np.float64), labels)
    np.testing.assert_allclose(softmax(vectors @ weight + bias), reference.predict_proba(vectors), atol=1e-6)
    again = logistic_regression(vectors, labels, weights)
    assert weight.tobytes() == again[0].tobytes() and bias.tobytes() == again[1].tobytes()


ROWS = [TextExample(f"text {i}", None, label) for i, label in enumerate((0, 0, 0, 1, 1, 2))]


def drawn(seed: int, pairs: int = 50):
    draw = PairDraw(ROWS, pairs, seed)
    return [pair for row in ROWS for pair in draw(row)]


def test_every_row_has_as_many_equal_as_different_pairs() -> None:
    made = drawn(1)
    assert len(made) == 2 * 50 * len(ROWS)
    for row in ROWS:
        own = [pair for pair in made if pair.first is row]
        assert sum(pair.second.label == row.label for pair in own) == 50
        seen = {pair.second.text for pair in own}
        alone = row.label == 2  # the only row of its label stands beside itself
        assert seen == {other.text for other in ROWS if other is not row or alone}


def test_pairs_are_a_function_of_the_seed() -> None:
    assert drawn(1) == drawn(1) != drawn(2)


def test_equal_rows_may_stand_beside_each_other() -> None:
    twins = [TextExample("same", None, 0), TextExample("same", None, 0), TextExample("other", None, 1)]
    draw = PairDraw(twins, 5, 1)
    assert all(pair.second is twins[1] for pair in draw(twins[0]) if pair.second.label == 0)


def test_a_row_that_balancing_repeats_stands_beside_none_of_its_copies() -> None:
    repeated = [row for row in ROWS for _ in range(3)]
    draw = PairDraw(repeated, 50, 1)
    for row in ROWS[:5]:
        alike = {pair.second.text for pair in draw(row) if pair.second.label == row.label}
        assert alike == {other.text for other in ROWS if other.label == row.label and other is not row}
    assert all(pair.second is ROWS[5] for pair in draw(ROWS[5]) if pair.second.label == 2)


def test_rows_of_one_label_have_no_different_ones() -> None:
    draw = PairDraw(ROWS[:3], 5, 1)
    assert len(draw(ROWS[0])) == 5


def test_the_longer_text_sorts_a_pair() -> None:
    short, long = TextExample("a", None, 0), TextExample("a" * 9, None, 1)
    (_, different) = PairDraw([short, long], 1, 1)(short)
    assert different.byte_length == 9
