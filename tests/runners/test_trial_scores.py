"""The trials of a sweep: what compares them, and who trains them."""

from __future__ import annotations

import pytest

from nlpctl.config.load import load_recipe
from nlpctl.config.tasks import greater_is_better
from nlpctl.runners.many.trials import watched_metric

HEAD = "task: sequence_classification\nmodel: {name_or_path: ernie-3.0-nano-zh}\ndata: {train: train.tsv}\n"
OWN = "compute_metrics: scores:rmse, metric_for_best_model: eval_rmse"


@pytest.fixture
def load(tmp_path):
    def loaded(training: str, more: str = ""):
        (tmp_path / "recipe.yaml").write_text(f"{HEAD}training: {{{training}}}\n{more}")
        (tmp_path / "train.tsv").write_text("text\tlabel\na\tb\n")
        (tmp_path / "scores.py").write_text("def rmse(prediction):\n    return {'rmse': 0.0}\n")
        return load_recipe(tmp_path / "recipe.yaml")

    return loaded


@pytest.mark.parametrize(
    ("training", "metric"),
    [("", "accuracy"), ("metric_for_best_model: eval_loss", "accuracy"), (OWN, "rmse")],
)
def test_trials_are_compared_by_a_score_of_their_reports(load, training: str, metric: str) -> None:
    assert watched_metric(load(training)) == metric


def test_the_recipe_says_which_way_its_own_score_goes(load) -> None:
    recipe = load(f"{OWN}, greater_is_better: false")
    assert not greater_is_better(recipe, "rmse") and greater_is_better(recipe, "accuracy")
    assert greater_is_better(load(OWN), "rmse")
