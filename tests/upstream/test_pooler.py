import paddle
import pytest
from paddlenlp.transformers import BertConfig, BertModel, ErnieConfig, ErnieModel

from nlpctl.upstream.pooler import drop_pooler

IDS = paddle.to_tensor([[1, 2, 3, 0]])
SIZES = {"vocab_size": 8, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}


def make(config_class, network_class):
    encoder = network_class(config_class(**SIZES))
    encoder.eval()
    return encoder


@pytest.mark.parametrize(("config_class", "network_class"), [(BertConfig, BertModel), (ErnieConfig, ErnieModel)])
def test_an_encoder_whose_pooler_has_no_weights_still_fails(config_class, network_class):
    encoder = make(config_class, network_class)
    encoder.pooler = paddle.nn.Identity()
    with pytest.raises(AttributeError, match="dense"):
        encoder(IDS)


@pytest.mark.parametrize(("config_class", "network_class"), [(BertConfig, BertModel), (ErnieConfig, ErnieModel)])
def test_without_the_pooler_the_states_are_the_same(config_class, network_class):
    encoder = make(config_class, network_class)
    before = encoder(IDS)[0].numpy()
    drop_pooler(encoder)
    assert not [name for name in encoder.state_dict() if "pooler" in name]
    assert (encoder(IDS)[0].numpy() == before).all()
