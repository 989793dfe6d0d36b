import paddle
import pytest
from paddlenlp.transformers import BertConfig, BertForSequenceClassification

from nlpctl.upstream.plain_outputs import OUTPUT_KEYS, with_plain_outputs


def output(config):
    network = BertForSequenceClassification(config)
    network.eval()
    return network(paddle.to_tensor([[1, 2, 3]]))


def make_config(*keys):
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    return BertConfig(vocab_size=8, **sizes, **dict.fromkeys(keys, True))


@pytest.mark.parametrize("key", OUTPUT_KEYS)
def test_each_key_still_wraps_the_logits(key):
    assert not isinstance(output(make_config(key)), paddle.Tensor)


def test_without_them_the_logits_come_alone():
    assert output(with_plain_outputs(make_config(*OUTPUT_KEYS))).shape == [1, 2]
