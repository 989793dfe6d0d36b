"""What PaddleNLP's networks still do not read of their config; what nlpctl does: tests/models/test_huggingface.py."""

import paddle
from paddlenlp.transformers import (
    ElectraConfig,
    ElectraForMaskedLM,
    ElectraForSequenceClassification,
    ErnieConfig,
    ErnieForSequenceClassification,
)

SIZES = {
    "vocab_size": 8, "hidden_size": 8, "embedding_size": 4, "num_attention_heads": 2, "intermediate_size": 8,
    "num_hidden_layers": 1, "layer_norm_eps": 1e-5,
}  # fmt: skip


def test_epsilons_are_still_not_those_of_the_config():
    assert ErnieForSequenceClassification(ErnieConfig(**SIZES)).ernie.embeddings.layer_norm._epsilon == 1e-12
    assert ElectraForMaskedLM(ElectraConfig(**SIZES)).generator_predictions.layer_norm._epsilon == 1e-12


def test_heads_of_electra_still_have_its_activation_and_its_dropout():
    config = ElectraConfig(**SIZES, hidden_act="relu", classifier_dropout=0.5)
    head = ElectraForSequenceClassification(config).classifier
    assert head.dropout.p == config.hidden_dropout_prob
    for act in (head.act, ElectraForMaskedLM(config).generator_predictions.act):
        assert act(paddle.to_tensor([-1.0])).item() == 0
