import paddle
import pytest
from paddle.static import InputSpec
from paddlenlp.transformers import RobertaConfig, RobertaForTokenClassification

from nlpctl.upstream.tagger_graph import translatable_forward

SPECS = [InputSpec([None, None], "int64", name) for name in ("input_ids", "token_type_ids")]


@pytest.fixture
def tagger():
    sizes = {"vocab_size": 8, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    network = RobertaForTokenClassification(RobertaConfig(**sizes, intermediate_size=8, type_vocab_size=2))
    network.eval()
    return network


def test_paddle_still_cannot_translate_a_roberta_tagger(tagger):
    with pytest.raises(TypeError, match="UndefinedVar"):
        paddle.jit.to_static(tagger.forward, input_spec=SPECS, full_graph=True).concrete_program  # noqa: B018


def test_what_stands_in_for_it_answers_alike(tagger):
    ids, types = paddle.to_tensor([[3, 4, 5, 6]]), paddle.to_tensor([[0, 0, 1, 1]])
    static = paddle.jit.to_static(translatable_forward(tagger), input_spec=SPECS, full_graph=True)
    assert (static(ids, types) - tagger(ids, types)).abs().max() < 1e-6
    assert type(tagger.forward).__name__ == "method"  # the network is as it was
