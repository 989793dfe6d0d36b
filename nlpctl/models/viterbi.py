"""Decoding what a linear-chain conditional random field (models/crf.py) computed: paths and probabilities.

Imports no Paddle.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def viterbi(chains: Sequence[np.ndarray], transitions: np.ndarray) -> list[np.ndarray]:
    """The best tag path (Viterbi) of each chain of emissions, float [words, n]: int64 [words].

    Written in NumPy: paddle.text.viterbi_decode is several times slower, with 57 tags slower than the network itself.
    """
    n = transitions.shape[0] - 2
    # The longest first, so that the unfinished chains are the first rows at every step.
    order = sorted(range(len(chains)), key=lambda row: -len(chains[row]))
    lengths = np.array([len(chains[row]) for row in order])
    emissions = np.zeros((lengths[0], len(chains), n), np.float32)
    for i, row in enumerate(order):
        emissions[: lengths[i], i] = chains[row]
    # Transposed once: the maximum over `from` then runs over contiguous memory.
    into = np.ascontiguousarray(transitions[:n, :n].T, np.float32)  # [to, from]
    scores = transitions[n + 1, :n] + emissions[0]
    before = np.zeros((lengths[0], len(chains), n), np.int64)  # the tag in front of each tag, on the best path to it
    for step in range(1, lengths[0]):
        rows = int((lengths > step).sum())
        paths = scores[:rows, None, :] + into
        before[step, :rows] = paths.argmax(2)
        best = np.take_along_axis(paths, before[step, :rows, :, None], 2)[..., 0]
        scores[:rows] = best + emissions[step, :rows]
    tags = (scores + transitions[n, :n]).argmax(1)
    found: list[np.ndarray] = [np.zeros(0, np.int64)] * len(chains)
    whole = np.zeros((len(chains), lengths[0]), np.int64)
    for step in range(lengths[0] - 1, -1, -1):
        rows = int((lengths > step).sum())
        whole[:rows, step] = tags[:rows]
        tags[:rows] = before[step, np.arange(rows), tags[:rows]]
    for i, row in enumerate(order):
        found[row] = whole[i, : lengths[i]]
    return found


def marginals(chains: Sequence[np.ndarray], transitions: np.ndarray) -> list[np.ndarray]:
    """The probability of each tag of each word over all paths (forward-backward): float64 [words, n] per chain."""
    n = transitions.shape[0] - 2
    order = sorted(range(len(chains)), key=lambda row: -len(chains[row]))  # as in `viterbi`
    lengths = np.array([len(chains[row]) for row in order])
    emissions = np.zeros((lengths[0], len(chains), n))
    for i, row in enumerate(order):
        emissions[: lengths[i], i] = chains[row]
    steps = transitions[:n, :n].astype(np.float64)  # [from, to]
    forward, backward = np.zeros_like(emissions), np.zeros_like(emissions)
    forward[0] = transitions[n + 1, :n] + emissions[0]
    for step in range(1, lengths[0]):
        rows = int((lengths > step).sum())
        forward[step, :rows] = _log_sum(forward[step - 1, :rows, :, None] + steps, 1) + emissions[step, :rows]
    backward[lengths - 1, np.arange(len(chains))] = transitions[n, :n]
    for step in range(lengths[0] - 2, -1, -1):
        rows = int((lengths > step + 1).sum())
        after = emissions[step + 1, :rows] + backward[step + 1, :rows]
        backward[step, :rows] = _log_sum(steps + after[:, None, :], 2)
    both = forward + backward
    shares = np.exp(both - _log_sum(both, 2)[..., None])
    found: list[np.ndarray] = [np.zeros((0, n))] * len(chains)
    for i, row in enumerate(order):
        found[row] = shares[: lengths[i], i]
    return found


def _log_sum(values: np.ndarray, axis: int) -> np.ndarray:
    """log(sum(exp(values))) along an axis."""
    most = values.max(axis, keepdims=True)
    return np.squeeze(most, axis) + np.log(np.exp(values - most).sum(axis))
