"""The day these fail, PaddleSlim's own training for int8 and its int8 embeddings can be tried again."""

import inspect

import numpy as np
import paddle
import pytest
from paddlenlp.trainer import trainer_compress
from paddlenlp.transformers import BertConfig, BertForSequenceClassification
from paddleslim import QAT
from paddleslim.dygraph.quant.qat import PACT

CONFIG = {"weight_quantize_type": "channel_wise_abs_max", "quantizable_layer_type": ["Linear"], "onnx_format": True}


def bert():
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    return BertForSequenceClassification(BertConfig(vocab_size=20, max_position_embeddings=16, **sizes))


def test_a_wrapped_encoder_still_does_not_run():
    network = bert()
    before = set(network.state_dict())
    QAT(config=CONFIG).quantize(network)
    assert not before & {name for name in network.state_dict() if name.endswith("linear1.weight")}
    with pytest.raises(AttributeError, match="has no attribute 'weight'"):
        network(paddle.to_tensor(np.ones((1, 3), np.int64)))


@pytest.mark.parametrize("inputs", ["range_abs_max", "abs_max"])
def test_two_of_three_activation_types_are_still_refused(inputs):
    with pytest.raises(AssertionError, match="Unsupported activation_quantize_type"):
        QAT(config=CONFIG | {"activation_quantize_type": inputs})


def test_pact_still_begins_where_nothing_is_cut_off():
    layer = PACT()
    inputs = paddle.to_tensor([-90.0, 3.0, 90.0])
    assert layer.alpha.item() == 100
    (layer(inputs) ** 2).sum().backward()
    assert layer.alpha.grad.item() == 0


def test_paddlenlp_still_hands_names_over_where_variables_are_wanted():
    source = inspect.getsource(trainer_compress._quant_embeddings)
    assert "feed_target_names,\n        fetch_targets," in source
    assert "prune_embeddings" not in inspect.getsource(trainer_compress)
