import itertools

import numpy as np
import paddle
import pytest
from paddlenlp.layers import ViterbiDecoder
from paddlenlp.transformers import ErnieConfig, ErnieForTokenClassification

from nlpctl.models.crf import IGNORED, crf_loss, with_crf
from nlpctl.models.viterbi import viterbi
from nlpctl.upstream.linear_chain_crf import crf_losses


def network(labels=3):
    config = ErnieConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        max_position_embeddings=16, num_labels=labels,
    )  # fmt: skip
    paddle.seed(1)
    return with_crf(ErnieForTokenClassification)(config)


def test_the_network_returns_emissions_and_transitions():
    net = network()
    emissions, transitions = net(paddle.to_tensor([[1, 2, 3], [4, 5, 0]]), paddle.zeros([2, 3], "int64"))
    assert emissions.shape == [2, 3, 3] and transitions.shape == [5, 5]
    assert with_crf(ErnieForTokenClassification) is type(net)
    assert type(net).__name__ == "ErnieForTokenClassificationWithCrf"
    assert set(net.state_dict()) - set(ErnieForTokenClassification(net.config).state_dict()) == {"crf.transitions"}
    net.eval()
    alone, _ = net(paddle.to_tensor([[1, 2, 3]]))
    assert alone.shape == [1, 3, 3]


def test_loss_over_labelled_tokens_only():
    draw = np.random.default_rng(0)
    emissions, transitions = draw.normal(size=(2, 6, 3)), draw.normal(size=(5, 5))
    labels = np.full((2, 6), IGNORED, np.int64)
    labels[0, [1, 2, 4]] = [0, 2, 1]
    labels[1, 3] = 2
    emissions, transitions = emissions.astype(np.float32), transitions.astype(np.float32)
    got = crf_loss(paddle.to_tensor(emissions), paddle.to_tensor(transitions), paddle.to_tensor(labels))
    for i, places in enumerate(([1, 2, 4], [3])):
        expected = crf_losses(
            paddle.to_tensor(emissions[i : i + 1, places]),
            paddle.to_tensor(transitions),
            paddle.to_tensor(labels[i : i + 1, places]),
            paddle.to_tensor([len(places)]),
        )
        assert float(got[i]) == pytest.approx(float(expected) / len(places), abs=1e-6)


def score(tags, emissions, transitions):
    between = sum(transitions[a, b] for a, b in itertools.pairwise(tags))
    emitted = sum(emissions[i, tag] for i, tag in enumerate(tags))
    return emitted + between + transitions[4, tags[0]] + transitions[3, tags[-1]]


def test_viterbi_finds_the_best_path_of_all():
    draw = np.random.default_rng(5)
    for _ in range(20):
        transitions = draw.normal(size=(5, 5)).astype(np.float32)
        chains = [draw.normal(size=(length, 3)).astype(np.float32) for length in (4, 1, 3, 2)]
        decoder = ViterbiDecoder(paddle.to_tensor(transitions))
        for chain, path in zip(chains, viterbi(chains, transitions), strict=True):
            scores = {tags: score(tags, chain, transitions) for tags in itertools.product(range(3), repeat=len(chain))}
            best = max(scores, key=scores.get)
            assert tuple(path) == best
            padded = np.concatenate([chain, np.full((len(chain), 2), -1e4, np.float32)], 1)[None]
            _, theirs = decoder(paddle.to_tensor(padded), paddle.to_tensor([len(chain)]))
            assert tuple(theirs.numpy()[0]) == best


@pytest.mark.slow
def test_export_with_dynamic_shapes(tmp_path):
    net = network()
    net.eval()
    spec = [paddle.static.InputSpec([None, None], "int64", name) for name in ("input_ids", "token_type_ids")]
    paddle.jit.save(paddle.jit.to_static(net, input_spec=spec, full_graph=True), str(tmp_path / "net"))
    loaded = paddle.jit.load(str(tmp_path / "net"))
    for shape in ((2, 5), (3, 9)):
        ids, types = paddle.randint(1, 20, shape), paddle.zeros(shape, "int64")
        for ours, theirs in zip(net(ids, types), loaded(ids, types), strict=True):
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), atol=1e-6)


def test_the_transitions_are_an_output_that_an_operation_made():
    """Paddle's DataParallel looks for unused parameters from the outputs on, and takes a bare parameter for one."""
    _, transitions = network()(paddle.to_tensor([[1, 2, 3]]))
    assert not transitions.is_leaf
