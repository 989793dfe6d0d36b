"""Layers fitted to where the teacher is."""

from __future__ import annotations

from copy import deepcopy
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from paddlenlp.transformers import BertConfig, BertForSequenceClassification

from nlpctl.compress.networks import student as fitted_layers
from nlpctl.compress.networks.student import fit_layers
from nlpctl.config.load import recipe_of_values
from nlpctl.models.pruned import encoder_layers, keep_layers

CHOSEN = (1, 3)


@pytest.fixture
def teacher() -> paddle.nn.Layer:
    paddle.seed(4)
    config = BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=4, num_attention_heads=2, intermediate_size=32,
        initializer_range=0.2,
    )  # fmt: skip
    network = BertForSequenceClassification(config)
    network.eval()
    return network


def batches(seed: int, count: int = 12) -> list[dict[str, np.ndarray]]:
    draw = np.random.default_rng(seed)
    made = [draw.integers(1, 50, (16, 10)) for _ in range(count)]
    for ids in made:
        ids[::3, 6:] = 0
    return [{"input_ids": ids} for ids in made]


def states(network: paddle.nn.Layer, batch: dict[str, np.ndarray], places) -> list[np.ndarray]:
    """Hidden states after the layers at `places`, of real tokens."""
    found = {}
    hooks = [
        layer.register_forward_post_hook(lambda _, inputs, output, i=i: found.__setitem__(i, output.numpy()))
        for i, layer in enumerate(encoder_layers(network))
    ]
    with paddle.no_grad():
        network(paddle.to_tensor(batch["input_ids"]))
    for hook in hooks:
        hook.remove()
    return [found[i][batch["input_ids"] != 0] for i in places]


def test_states_come_nearer_on_rows_that_were_not_seen(teacher) -> None:
    student = deepcopy(teacher)
    keep_layers(student, CHOSEN)
    (unseen,) = batches(9, 1)
    wanted = states(teacher, unseen, CHOSEN)
    before = states(student, unseen, (0, 1))
    fit_layers(teacher, student, CHOSEN, batches(1))
    after = states(student, unseen, (0, 1))
    for mine, fitted, theirs in zip(before, after, wanted, strict=True):
        assert ((fitted - theirs) ** 2).mean() < 0.7 * ((mine - theirs) ** 2).mean()
    assert not encoder_layers(student)[0]._forward_post_hooks


def test_what_is_where_it_should_be_stays(teacher) -> None:
    student = deepcopy(teacher)
    fit_layers(teacher, student, range(4), batches(1))
    for mine, theirs in zip(student.parameters(), teacher.parameters(), strict=True):
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), atol=1e-4)


def test_no_more_tokens_than_are_wanted(teacher, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(fitted_layers, "TOKENS", 200)
    student = deepcopy(teacher)
    keep_layers(student, CHOSEN)
    fit_layers(teacher, student, CHOSEN, batches(1))
    assert "states of 272 tokens" in capsys.readouterr().err  # two batches of 16 rows, each third of them cut


def test_rows_to_fit_are_from_all_over_the_file():
    """It may be sorted by label."""
    recipe = recipe_of_values({"task": "sequence_classification", "distillation": {"fit": 60}})
    task = SimpleNamespace(
        features=lambda row, _: [SimpleNamespace(byte_length=1, row=row)],
        collator=lambda _, labelled: lambda features: [feature.row for feature in features],
    )
    data = SimpleNamespace(training_examples=lambda: range(100))
    rows = sorted(sum(fitted_layers._batches(recipe, SimpleNamespace(task=task, encoder=None), data), []))
    assert len(rows) == 60 and rows[0] == 0 and rows[-1] == 98 and max(np.diff(rows)) == 2
