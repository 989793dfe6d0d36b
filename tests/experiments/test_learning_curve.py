"""The curve of scores over rows, and what it says of more rows."""

from __future__ import annotations

import numpy as np
import pytest

from nlpctl.config.load import load_recipe
from nlpctl.errors import UserError
from nlpctl.experiments.learning_curve import _metric, fit, learning_curve, learning_curve_result

SIZES = (100, 200, 400, 800, 1600)


def scores(limit, factor, exponent, noise=0.0, repeats=2, seed=0, sizes=SIZES):
    random = np.random.default_rng(seed)
    return [1 - limit - factor * size**-exponent + noise * random.normal(size=repeats) for size in sizes]


def said(tmp_path, values, rows=1600):
    curve = fit(SIZES, values)
    scored = [(size, ["a", "b"], each) for size, each in zip(SIZES, values, strict=True)]
    return learning_curve_result(tmp_path, "dev", "accuracy", rows, scored, curve)


def test_a_curve_without_noise_is_found_again(tmp_path):
    curve = fit(SIZES, scores(0.1, 2.0, 0.5))
    expected = 1 - 0.1 - 2.0 * 6400**-0.5
    assert curve.score(6400)[0] == pytest.approx(expected, abs=2e-3)
    needed = (2.0 / (2.0 * 1600**-0.5 - 0.01)) ** 2
    assert curve.rows_for(0.01, 1600)[0] == pytest.approx(needed, rel=0.03)
    found = said(tmp_path, scores(0.1, 2.0, 0.5, noise=1e-4))
    assert found.more == pytest.approx(needed - 1600, rel=0.1)
    assert found.more_interval[0] <= found.more <= found.more_interval[1] and "more rows (" in found.told


def test_a_nearly_flat_curve_names_no_absurd_numbers(tmp_path):
    found = said(tmp_path, scores(0.1, 0.05, 0.3, noise=0.002))  # "at least 4,018,370,879 more rows are needed"
    assert found.more is None and found.more_interval is None and "out of reach" in found.told


def test_it_says_what_it_cannot_tell(tmp_path):
    flat = said(tmp_path, scores(0.2, 0.0, 0.5, noise=0.02))
    assert "cannot be told" in flat.told
    alike = said(tmp_path, [[0.5, 0.5]] * 5)  # as of a model with one answer for everything
    assert alike.told.startswith("All runs score 0.5000, however few rows they had")
    ended = said(tmp_path, scores(0.1, 300.0, 1.6, noise=1e-4))
    assert ended.more is None and ended.more_interval is None and "out of reach" in ended.told
    unsure = said(tmp_path, scores(0.1, 1.0, 0.5, noise=0.01))
    assert unsure.more_interval is None or unsure.more_interval[1] is None and "cannot be told" in unsure.told


def test_of_a_score_that_falls_no_curve_is_drawn():
    """1 minus the score stands for the error, so the task's own score takes its place."""
    reports = [{"accuracy": 0.75, "compute_metrics": {"errors": 0.25}}]
    for greater, drawn in ((True, "errors"), (False, "accuracy")):
        training = {"metric_for_best_model": "errors", "greater_is_better": greater, "compute_metrics": "mine:scores"}
        recipe = load_recipe({"task": "sequence_classification", "training": training}, purpose="apply")
        assert _metric(recipe, reports) == drawn


def test_a_longer_training_is_foretold():
    """Fitted on up to a quarter of the rows, the interval holds the score of all of them 95 times of 100."""
    sizes = (100, 200, 400, 800)
    held = 0
    for seed in range(100):
        curve = fit(sizes, scores(0.08, 1.5, 0.45, noise=0.006, seed=seed, sizes=sizes))
        low, high = curve.foretold(3200)
        truth = 1 - 0.08 - 1.5 * 3200**-0.45 + 0.006 * np.random.default_rng(1000 + seed).normal()
        held += low <= truth <= high
    assert 90 <= held <= 100


def test_shares_with_vocabularies_of_their_own_are_refused(tmp_path):
    """Their scores are of other tokens."""
    for name in ("train.txt", "dev.txt"):
        (tmp_path / name).write_text("a text\n" * 100)
    (tmp_path / "r.yaml").write_text(
        "task: masked_language_model\nmodel: {from_scratch: {}}\ndata: {train: train.txt, dev: dev.txt}\n"
    )
    with pytest.raises(UserError, match="each share would have a vocabulary of its own rows"):
        learning_curve(load_recipe(tmp_path / "r.yaml"), tmp_path / "curve")
    assert not (tmp_path / "curve").exists()
