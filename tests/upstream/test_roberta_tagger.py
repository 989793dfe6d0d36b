"""PaddleNLP's RobertaForTokenClassification cannot be made static; ours can, and computes the same."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import nlpctl  # noqa: F401
from nlpctl.upstream.roberta_tagger import translatable


@pytest.fixture
def networks():
    import paddle
    from paddlenlp.transformers import RobertaConfig, RobertaForTokenClassification

    config = RobertaConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, num_labels=3
    )
    paddle.seed(1)
    theirs, ours = RobertaForTokenClassification(config), translatable(RobertaForTokenClassification)(config)
    ours.set_state_dict(theirs.state_dict())
    theirs.eval()
    ours.eval()
    return theirs, ours


def save(network, prefix):
    import paddle

    spec = paddle.static.InputSpec([None, None], "int64", "input_ids")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        paddle.jit.save(paddle.jit.to_static(network, input_spec=[spec], full_graph=True), str(prefix))


def test_theirs_fails(networks, tmp_path):
    with pytest.raises(TypeError, match="UndefinedVar"):
        save(networks[0], tmp_path / "theirs")


def test_ours_is_the_same(networks, tmp_path):
    import paddle

    theirs, ours = networks
    assert type(ours).__name__ == type(theirs).__name__ and list(ours.state_dict()) == list(theirs.state_dict())
    ids = paddle.to_tensor([[5, 6, 7, 1], [8, 9, 1, 1]])
    expected = theirs(ids).numpy()
    assert np.array_equal(ours(ids).numpy(), expected)
    save(ours, tmp_path / "ours")
    assert np.allclose(paddle.jit.load(str(tmp_path / "ours"))(ids).numpy(), expected, atol=1e-6)


def test_others_are_left_alone():
    from paddlenlp.transformers import BertForTokenClassification

    assert translatable(BertForTokenClassification) is BertForTokenClassification
