"""The negative log-likelihood of a linear-chain CRF, computed correctly."""

from __future__ import annotations

import paddle

_SMALLEST = 1e-37  # float32 holds less, but not with all its digits


def crf_losses(
    emissions: paddle.Tensor, transitions: paddle.Tensor, labels: paddle.Tensor, lengths: paddle.Tensor
) -> paddle.Tensor:
    """[rows] the negative log-likelihood of each row's labels; never below 0 but for rounding.

    emissions [rows, width, n] float32; transitions [n + 2, n + 2], the parameter of PaddleNLP's
    LinearChainCrf: [i, j] scores tag j after tag i, row n + 1 the first tag, row n the last one, as its
    ViterbiDecoder and paddle.text.viterbi_decode read them. labels int64 [rows, width], any value behind
    `lengths` int64 [rows], at least 1.

    PaddleNLP 2.8.1, layers/crf.py:124 and :217: LinearChainCrf.forward (the normaliser) takes [j, i] for tag j
    after tag i, gold_score takes [i, j], and leaves out the last tag's score, which the other has. So the
    probabilities of all paths do not add up to 1: the loss falls below 0, where LinearChainCrfLoss cuts it off
    and learning stops. Test: tests/upstream/test_linear_chain_crf.py.
    """
    return _log_normalizer(emissions, transitions, lengths) - _path_score(emissions, transitions, labels, lengths)


def _log_normalizer(emissions: paddle.Tensor, transitions: paddle.Tensor, lengths: paddle.Tensor) -> paddle.Tensor:
    """[rows] the log of the sum over all paths (forward algorithm)."""
    n = emissions.shape[2]
    between = transitions[:n, :n]
    # A sum over the last tag is a product of matrices once the scores are powers: with 57 tags ten times faster than
    # logsumexp over all pairs. What is 1e-37 of the largest power and less counts as so much.
    largest = between.max().detach()
    powers = paddle.exp(between - largest)
    inside = (paddle.arange(emissions.shape[1]).unsqueeze(0) < lengths.unsqueeze(1)).unsqueeze(2)
    first, *others = emissions.unbind(1)
    scores = transitions[n + 1, :n] + first
    for emitted, goes_on in zip(others, inside.unbind(1)[1:], strict=True):
        # Detached: the maximum cancels out in exact arithmetic, so its gradient is 0 and need not be computed.
        best = scores.max(axis=1, keepdim=True).detach()
        sums = paddle.clip(paddle.matmul(paddle.exp(scores - best), powers), min=_SMALLEST)
        scores = paddle.where(goes_on, paddle.log(sums) + best + largest + emitted, scores)
    return paddle.logsumexp(scores + transitions[n, :n], axis=1)


def _path_score(
    emissions: paddle.Tensor, transitions: paddle.Tensor, labels: paddle.Tensor, lengths: paddle.Tensor
) -> paddle.Tensor:
    """[rows] the score of the one path `labels`."""
    width, n = emissions.shape[1:]
    inside = paddle.arange(width).unsqueeze(0) < lengths.unsqueeze(1)
    labels = paddle.where(inside, labels, paddle.zeros_like(labels))
    emitted = paddle.take_along_axis(emissions, labels.unsqueeze(2), axis=2).squeeze(2)
    emitted = (emitted * inside.astype(emitted.dtype)).sum(1)
    last = paddle.take_along_axis(labels, (lengths - 1).unsqueeze(1), axis=1)[:, 0]
    ends = paddle.gather(transitions[n + 1], labels[:, 0]) + paddle.gather(transitions[n], last)
    if width == 1:
        return emitted + ends
    steps = paddle.gather_nd(transitions, paddle.stack([labels[:, :-1], labels[:, 1:]], axis=2))
    return emitted + ends + (steps * inside[:, 1:].astype(steps.dtype)).sum(1)
