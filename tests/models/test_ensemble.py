"""Networks joined to one: what is averaged."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import paddle
import pytest
from made_runs import make_run

from nlpctl import __version__
from nlpctl.config.load import Override
from nlpctl.engines.engine import DygraphPredictor
from nlpctl.errors import UserError
from nlpctl.experiments.ensemble import ensemble
from nlpctl.models.ensemble import join
from nlpctl.models.networks.ensemble import ODDS, SCORES, SHARES, mean, pooled
from nlpctl.tasks.base import task_class
from nlpctl.tasks.sequence_classification import softmax


@pytest.fixture
def logits():
    random = np.random.default_rng(3)
    return [random.normal(size=(4, 5, 3)).astype(np.float32) * 4 for _ in range(3)]


def averaged(logits, pool):
    return pooled([paddle.to_tensor(each) for each in logits], pool).numpy()


def test_probabilities(logits):
    expected = np.mean([softmax(each) for each in logits], axis=0)
    found = averaged(logits, SHARES)
    assert np.allclose(softmax(found), expected, atol=1e-6)
    assert np.allclose(found.mean(-1), 0, atol=1e-5)


def test_odds(logits):
    expected = np.mean([1 / (1 + np.exp(-each)) for each in logits], axis=0)
    assert np.allclose(1 / (1 + np.exp(-averaged(logits, ODDS))), expected, atol=1e-6)


def test_scores(logits):
    assert np.allclose(averaged(logits, SCORES), np.mean(logits, axis=0), atol=1e-6)
    assert np.allclose(mean([paddle.to_tensor(each) for each in logits]).numpy(), np.mean(logits, axis=0), atol=1e-6)


@pytest.mark.parametrize(
    ("task", "architecture", "head"),
    [
        ("token_classification", "bigru", "crf"),
        ("multi_label_classification", "textcnn", "linear"),
        ("question_answering", "ernie", "linear"),
    ],
)
def test_heads(tmp_path, task, architecture, head):
    """Members of every kind of head give the mean of what they give alone."""
    recipe = make_run(tmp_path, task, architecture, head)
    models = [task_class(task).class_for(recipe).load_trained(recipe, str(recipe.run_dir)) for _ in range(2)]
    for parameter in models[1].network.parameters():
        parameter.set_value(parameter * -0.7)
    pool = {"multi_label_classification": ODDS}.get(task, SCORES)
    network, _ = join(models, ["one", "other"], pool, crf=head == "crf")
    batch = {"input_ids": np.array([[4, 5, 6, 7], [8, 4, 0, 0]])}
    alone = [DygraphPredictor(model.network).outputs(batch) for model in models]
    for i, found in enumerate(DygraphPredictor(network).outputs(batch)):
        each = [outputs[i] for outputs in alone]
        if pool == ODDS:
            found, each = 1 / (1 + np.exp(-found)), [1 / (1 + np.exp(-logits)) for logits in each]
        assert np.allclose(found, np.mean(each, axis=0), atol=1e-5)


def test_ready_models_are_those_of_the_cache_folder_that_is_named(tmp_path):
    recipe = make_run(tmp_path, "sequence_classification")
    ready = tmp_path / "nlpctl" / "ready" / f"lexical_analysis-{__version__}"
    shutil.copytree(recipe.run_dir / "model", ready)
    cache = Override("runtime.cache_dir", str(tmp_path), "--cache_dir")
    with pytest.raises(UserError, match="this model is named twice"):
        ensemble(["task:lexical_analysis", str(ready)], tmp_path / "joined", given=[cache])


def test_word_pieces_have_to_be_the_same(tmp_path):
    recipe = make_run(tmp_path, "sequence_classification")
    models = [task_class(recipe.task).class_for(recipe).load_trained(recipe, str(recipe.run_dir)) for _ in range(2)]
    models[1] = replace(models[1], tokenizer=models[1].tokenizer.with_tokens(["another"]))
    with pytest.raises(UserError, match="word pieces is not that of one"):
        join(models, ["one", "other"], SHARES, crf=False)
    bare = replace(models[0], network=models[0].network.ernie)
    with pytest.raises(UserError, match="cannot be joined"):
        join([bare, bare], ["one", "other"], SHARES, crf=False)
