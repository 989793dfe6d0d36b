import itertools

import numpy as np
import paddle
import pytest
from paddlenlp.layers import LinearChainCrf

from nlpctl.upstream.linear_chain_crf import crf_losses

N, LENGTH = 3, 4


@pytest.fixture(params=[1, 2, 3])
def chain(request):
    """Emissions [LENGTH, N] and transitions [N + 2, N + 2]."""
    draw = np.random.default_rng(request.param)
    return draw.normal(size=(LENGTH, N)).astype(np.float32), draw.normal(size=(N + 2, N + 2)).astype(np.float32)


def score(path, emissions, transitions):
    steps = sum(transitions[a, b] for a, b in itertools.pairwise(path))
    emitted = sum(emissions[i, tag] for i, tag in enumerate(path))
    return emitted + steps + transitions[N + 1, path[0]] + transitions[N, path[-1]]


def paths(length=LENGTH):
    return list(itertools.product(range(N), repeat=length))


def test_paddlenlp_still_normalises_over_other_scores_than_it_gives(chain):
    emissions, transitions = chain
    crf = LinearChainCrf(N)
    crf.transitions.set_value(transitions)
    # START and STOP are tags there; out of reach by their emissions.
    padded = paddle.to_tensor(np.concatenate([emissions, np.full((LENGTH, 2), -1e4, np.float32)], 1)[None])
    lengths = paddle.to_tensor([LENGTH])
    norm = float(crf(padded, lengths))
    probabilities = [np.exp(float(crf.gold_score(padded, paddle.to_tensor([p]), lengths)) - norm) for p in paths()]
    assert abs(sum(probabilities) - 1) > 0.01


def test_probabilities_of_all_paths_add_up_to_one(chain):
    emissions, transitions = chain
    everything = np.logaddexp.reduce([score(path, emissions, transitions) for path in paths()])
    labels = paddle.to_tensor(paths())
    rows = len(paths())
    losses = crf_losses(
        paddle.to_tensor(np.repeat(emissions[None], rows, 0)),
        paddle.to_tensor(transitions),
        labels,
        paddle.full([rows], LENGTH, "int64"),
    ).numpy()
    assert np.exp(-losses).sum() == pytest.approx(1, abs=1e-5)
    expected = [everything - score(path, emissions, transitions) for path in paths()]
    np.testing.assert_allclose(losses, expected, atol=1e-5)


def test_what_stands_behind_the_length_does_not_count(chain):
    emissions, transitions = chain
    for length in (1, 2, 3):
        whole = crf_losses(
            paddle.to_tensor(emissions[None]),
            paddle.to_tensor(transitions),
            paddle.to_tensor([[1, 0, 2, -100]]),
            paddle.to_tensor([length]),
        )
        cut = crf_losses(
            paddle.to_tensor(emissions[None, :length]),
            paddle.to_tensor(transitions),
            paddle.to_tensor([[1, 0, 2][:length]]),
            paddle.to_tensor([length]),
        )
        everything = np.logaddexp.reduce([score(p, emissions, transitions) for p in paths(length)])
        assert float(whole) == pytest.approx(float(cut), abs=1e-6)
        assert float(cut) == pytest.approx(everything - score([1, 0, 2][:length], emissions, transitions), abs=1e-5)


def test_gradient(chain):
    """Emissions and transitions both learn: the loss of one path goes to zero, not below."""
    emissions, transitions = (paddle.to_tensor(array, stop_gradient=False) for array in chain)
    optimizer = paddle.optimizer.Adam(0.3, parameters=[emissions, transitions])
    labels, lengths = paddle.to_tensor([[0, 2, 1, 1]]), paddle.to_tensor([LENGTH])
    for _ in range(60):
        loss = crf_losses(emissions.unsqueeze(0), transitions, labels, lengths).sum()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
    assert -1e-4 < float(loss) < 0.05
    assert np.abs(transitions.numpy() - chain[1]).max() > 0.5


def test_steps_that_are_all_but_forbidden():
    """As in trained taggers, where a word's inside never follows another word: -70, by hand also -10000."""
    emissions, transitions = np.zeros((1, LENGTH, N), np.float32), np.zeros((N + 2, N + 2), np.float32)
    transitions[0, 2], transitions[1, 2] = -70.0, -10000.0
    held = [paddle.to_tensor(array, stop_gradient=False) for array in (emissions, transitions)]
    losses = crf_losses(*held, paddle.to_tensor([[2, 2, 0, 1]]), paddle.to_tensor([LENGTH]))
    everything = np.logaddexp.reduce([score(path, emissions[0], transitions) for path in paths()])
    assert float(losses) == pytest.approx(everything, abs=1e-5)  # of the labels, every score is 0
    losses.sum().backward()
    assert all(np.isfinite(tensor.grad.numpy()).all() for tensor in held)
    only_forbidden = paddle.to_tensor(np.where(np.eye(N + 2, dtype=bool), -200.0, 0.0).astype(np.float32))
    sharp = np.full((1, LENGTH, N), -300, np.float32)
    sharp[:, :, 1] = 0  # tag 1 four times, though it is told never to follow itself
    loss = crf_losses(paddle.to_tensor(sharp), only_forbidden, paddle.to_tensor([[1, 0, 1, 0]]),
                      paddle.to_tensor([LENGTH]))  # fmt: skip
    assert np.isfinite(float(loss)) and float(loss) >= 0
