"""What a model is unsure of, and rows that are unlike each other."""

from __future__ import annotations

import numpy as np
import pytest

from nlpctl.cli import data as labelling
from nlpctl.config.load import load_recipe
from nlpctl.data.rows.labels import LabelSet
from nlpctl.datatools.uncertain import MEASURES, doubt, doubtful_parts, spread_out
from nlpctl.tasks.base import make_task

TAGS = ("O", "B-PER", "I-PER", "B-LOC")


def task(name, labels):
    recipe = {"task": name, "model": {"from_scratch": {}}, "data": {}, "training": {"output_dir": "y"}}
    return make_task(load_recipe(recipe, purpose="apply"), LabelSet(labels))


def test_the_command_line_offers_every_measure():
    """It imports no NumPy, so it has a list of its own."""
    assert labelling.MEASURES == tuple(MEASURES)


def test_doubt_of_a_label():
    of = task("sequence_classification", ("a", "b", "c"))
    sure, torn = np.array([[0.98, 0.01, 0.01]]), np.array([[0.45, 0.44, 0.11]])
    assert doubt(of, torn, "margin").uncertainty == pytest.approx(0.99)
    assert doubt(of, torn, "margin").confidence == pytest.approx(0.45)
    assert doubt(of, np.full((1, 3), 1 / 3), "entropy").uncertainty == pytest.approx(1)
    for measure in MEASURES:
        assert doubt(of, sure, measure).uncertainty < 0.15 < doubt(of, torn, measure).uncertainty


def test_of_several_labels_the_least_sure_counts():
    of = task("multi_label_classification", ("a", "b", "c"))
    found = doubt(of, np.array([[0.99, 0.4, 0.02]]), "margin")
    assert found.uncertainty == pytest.approx(0.8) and found.confidence == pytest.approx(0.6)


def test_of_a_tagged_text_the_least_sure_entity_counts():
    of = task("token_classification", TAGS)
    shares = np.full((6, 4), 0.01)
    shares[[0, 1, 4, 5], 0] = 0.97
    shares[2] = 0.02, 0.6, 0.02, 0.36  # an entity of two words, half sure of the first
    shares[3] = 0.02, 0.02, 0.94, 0.02
    found = doubt(of, shares, "margin")
    assert doubtful_parts(of, shares) == [(0, 1), (1, 2), (2, 4), (4, 5), (5, 6)]
    assert found.uncertainty == pytest.approx((0.76 + 0.08) / 2) and found.confidence == pytest.approx(0.77)


def test_spread():
    """One row of each direction first; of equal ones the more uncertain, and of these the first."""
    vectors = np.array([[1, 0], [2, 0], [0.99, 0.05], [0, 3], [0, 1], [-1, 0.1]], np.float32)
    unsure = [0.9, 0.95, 0.5, 0.2, 0.3, 0.1]
    found = spread_out(vectors, unsure, 3)
    assert found.chosen == [1, 5, 4] and found.stands_for == [3, 1, 2]
    everything = spread_out(vectors, unsure, 9)
    assert everything.chosen[3:] == [2, 0, 3] and sum(everything.stands_for) == 6
    assert spread_out(vectors[:2], [0.1, 0.1], 2).chosen == [0, 1]
    assert spread_out(np.zeros((3, 2)), [0.1, 0.3, 0.2], 2).chosen == [1, 2]
