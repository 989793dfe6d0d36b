import paddle
import pytest
from paddlenlp.transformers import BertConfig, BertModel

from nlpctl.upstream.counted_parameters import counted_parameters

SIZES = {"vocab_size": 8, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}


def test_lazy_networks_still_take_the_memory_of_their_tables():
    with paddle.LazyGuard():
        network = BertModel(BertConfig(**SIZES))
    assert network.embeddings.token_type_embeddings.weight._is_initialized()


def test_every_parameter_is_told_before_it_is_made():
    totals = []
    with counted_parameters(totals.append):
        network = BertModel(BertConfig(**SIZES))
        paddle.create_parameter([5], "float32")
    assert totals[-1] == sum(parameter.size for parameter in network.parameters()) + 5
    assert len(totals) == len(network.parameters()) + 1

    def refuse(numbers):
        raise MemoryError(numbers)

    with counted_parameters(refuse), pytest.raises(MemoryError):
        paddle.nn.Embedding(10**12, 1000)
    paddle.nn.Embedding(2, 2)
    assert len(totals) == len(network.parameters()) + 1
