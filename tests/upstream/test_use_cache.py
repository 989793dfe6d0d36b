import paddle
from paddlenlp.transformers import BertConfig, BertForSequenceClassification

from nlpctl.upstream.use_cache import without_use_cache


def output(config):
    network = BertForSequenceClassification(config)
    network.eval()
    return network(paddle.to_tensor([[1, 2, 3]]))


def make_config():
    return BertConfig(
        vocab_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, use_cache=True
    )


def test_use_cache_still_makes_a_tuple_of_the_logits():
    assert isinstance(output(make_config()), tuple)


def test_without_it_the_logits_come_alone():
    assert output(without_use_cache(make_config())).shape == [1, 2]
