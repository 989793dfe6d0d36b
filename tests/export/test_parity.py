"""What counts as a difference between a network and a graph, and what is left behind where it is too large."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from nlpctl.config.schema import InferenceSection
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.errors import RunFailed
from nlpctl.export.export import export
from nlpctl.export.request import ExportRequest
from nlpctl.models.find import find_trained_model
from nlpctl.runtime.process import set_up_process


@pytest.fixture(scope="module")
def network(classifier):
    """The network's run function and a Parity of it."""
    set_up_process(classifier)
    from nlpctl.data.sample_rows import rows_to_compare
    from nlpctl.data.text.tokenizers import build_encoder
    from nlpctl.engines.engine import DygraphPredictor
    from nlpctl.engines.parity import Parity
    from nlpctl.tasks.base import make_task, task_class

    model = task_class(classifier.task).load_trained(classifier, find_trained_model(classifier))
    encoder = build_encoder(model.tokenizer)
    rows = rows_to_compare(task_rows(classifier.task, classifier.data), None, model.tokenizer, 40, masked=False)
    run = DygraphPredictor(model.network).outputs
    return run, Parity(make_task(classifier, LabelSet(model.labels)), encoder, rows.examples, run)


def test_the_same_network_does_not_differ(network):
    run, parity = network
    found = parity.difference(run)
    assert (found.largest, found.relative, found.agreement, found.changed) == (0, 0, 1, ())
    rows = [len(case.features) for case in parity.cases]
    assert sum(rows) == 40 and {1, 7} < set(rows)
    lengths = [batch["input_ids"].shape for batch in parity.edges]
    assert sorted(lengths) == [(1, 1), (1, 24), (3, 1), (3, 24)]
    assert all(set(batch) == {"input_ids", "token_type_ids"} for batch in parity.edges)
    assert (parity.edges[1]["input_ids"] != 0).all()  # the longest is full of words, not of padding


def test_a_shifted_output_is_measured(network):
    run, parity = network
    found = parity.difference(lambda batch: tuple(each + np.float32(0.25) for each in run(batch)))
    assert found.largest == pytest.approx(0.25, abs=1e-5) and found.agreement == 1  # all labels alike: no decision
    assert found.relative < found.largest  # the logits of this network are larger than 1


def test_an_edge_alone_is_enough(network):
    run, parity = network

    def wrong_for_one_token(batch):
        return tuple(each + (batch["input_ids"].shape[1] == 1) * np.float32(3) for each in run(batch))

    assert parity.difference(wrong_for_one_token).largest == pytest.approx(3, abs=1e-4)


def test_changed_decisions_are_named(network):
    run, parity = network
    turned = parity.difference(lambda batch: tuple(-each for each in run(batch)))
    assert turned.agreement == 0 and turned.changed == tuple(range(40))


@pytest.mark.parametrize("broken", [lambda each: each * np.float32("nan"), lambda each: each[:, :-1]])
def test_what_is_no_number_or_has_another_shape_never_passes(network, broken):
    run, parity = network
    first = len(parity.edges[0]["input_ids"])
    found = parity.difference(
        lambda batch: tuple(broken(each) if len(batch["input_ids"]) == first else each for each in run(batch))
    )
    assert math.isnan(found.largest) and math.isnan(found.relative)


@pytest.mark.parametrize("overwrites", [False, True])
def test_nothing_is_left_beyond_the_tolerance(classifier, tmp_path, monkeypatch, overwrites):
    source = find_trained_model(classifier)
    if overwrites:
        export(classifier, source, ExportRequest(("paddle",), rows=4), output=tmp_path / "new")
        before = {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()}
    from nlpctl.engines import paddle_inference

    right = paddle_inference.PaddlePredictor.outputs
    monkeypatch.setattr(
        paddle_inference.PaddlePredictor,
        "outputs",
        lambda self, batch: tuple(each + np.float32(0.1) for each in right(self, batch)),
    )
    with pytest.raises(RunFailed, match=r"model.pdmodel \(paddle\): differs from the network: outputs diff"):
        export(classifier, source, ExportRequest(("paddle",), rows=4), output=tmp_path / "new", overwrite=overwrites)
    if overwrites:
        assert {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == (["new"] if overwrites else [])


@pytest.mark.slow
def test_a_temporary_export_goes(classifier, monkeypatch, tmp_path):
    import tempfile

    from nlpctl.inference.open_model import open_trained_model

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for engine in ("paddle", "onnxruntime"):
        recipe = dataclasses.replace(classifier, inference=InferenceSection(engine=engine))
        model = open_trained_model(recipe, set_up_process(recipe), find_trained_model(classifier), 4)
        ids = np.array([[1, 5, 2]])
        (logits,) = model.predictor.outputs({"input_ids": ids, "token_type_ids": ids * 0})
        assert logits.shape == (1, 3) and model.predictor.engine == engine
    assert not list(tmp_path.glob("nlpctl-export-*"))
