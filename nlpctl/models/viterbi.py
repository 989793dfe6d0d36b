"""Decoding what a linear-chain conditional random field (models/crf.py) computed: paths and probabilities.

Imports no Paddle.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_LEAST = 1e-30  # probability whose logarithm is still taken


def viterbi(chains: Sequence[np.ndarray], transitions: np.ndarray) -> list[np.ndarray]:
    """The best tag path (Viterbi) of each chain of emissions, float [words, n]: int64 [words].

    Written in NumPy: paddle.text.viterbi_decode is several times slower, with 57 tags slower than the network itself.
    """
    n = transitions.shape[0] - 2
    order, lengths, emissions = _padded(chains, np.float32)
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
    best_paths: list[np.ndarray] = [np.zeros(0, np.int64)] * len(chains)
    whole = np.zeros((len(chains), lengths[0]), np.int64)
    for step in range(lengths[0] - 1, -1, -1):
        rows = int((lengths > step).sum())
        whole[:rows, step] = tags[:rows]
        tags[:rows] = before[step, np.arange(rows), tags[:rows]]
    for i, row in enumerate(order):
        best_paths[row] = whole[i, : lengths[i]]
    return best_paths


def marginals(chains: Sequence[np.ndarray], transitions: np.ndarray) -> list[np.ndarray]:
    """The probability of each tag of each word over all paths (forward-backward): float64 [words, n] per chain."""
    n = transitions.shape[0] - 2
    order, lengths, emissions = _padded(chains, np.float64)
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
    by_chain: list[np.ndarray] = [np.zeros((0, n))] * len(chains)
    for i, row in enumerate(order):
        by_chain[row] = shares[: lengths[i], i]
    return by_chain


def path_steps(
    chains: Sequence[np.ndarray], transitions: np.ndarray, paths: Sequence[np.ndarray], follows: np.ndarray
) -> list[np.ndarray]:
    """How probable the parts of a path are, of all paths: float64 [words, 3], logarithms, per chain.

    Of each word (1) the tag that it has on the path, (2) that tag if the word before it has its tag of the path, and
    (3) any tag that does not follow that tag, by `follows` (bool [n, n], from and to). Products of these are the
    probabilities of stretches of the path, since a tag depends on the one before it alone. The first word has none
    before it: there (2) is as (1), and (3) is certain.
    """
    n = transitions.shape[0] - 2
    order, lengths, emissions = _padded(chains, np.float64)
    # As products of matrices, scaled word by word: several times as fast as sums of logarithms.
    weights = np.exp(emissions - emissions.max(-1, keepdims=True))
    inner = transitions[:n, :n].astype(np.float64)
    steps = np.exp(inner - inner.max())
    starts, ends = (np.exp(each - each.max()) for each in transitions[[n + 1, n], :n].astype(np.float64))
    forward, backward = np.zeros_like(weights), np.zeros_like(weights)
    forward[0] = _shares(starts * weights[0])
    for step in range(1, lengths[0]):
        rows = int((lengths > step).sum())
        forward[step, :rows] = _shares((forward[step - 1, :rows] @ steps) * weights[step, :rows])
    backward[lengths - 1, np.arange(len(chains))] = ends
    for step in range(lengths[0] - 2, -1, -1):
        rows = int((lengths > step + 1).sum())
        backward[step, :rows] = _shares((weights[step + 1, :rows] * backward[step + 1, :rows]) @ steps.T)
    by_chain: list[np.ndarray] = [np.zeros((0, 3))] * len(chains)
    for i, row in enumerate(order):
        words, path = np.arange(lengths[i]), paths[row]
        first = _shares(forward[: lengths[i], i] * backward[: lengths[i], i])[words, path]
        after = _shares(steps[path[:-1]] * weights[1 : lengths[i], i] * backward[1 : lengths[i], i])
        then = after[words[:-1], path[1:]]
        on = (after * follows[path[:-1]]).sum(-1)
        by_chain[row] = logarithms(first, then, on)
    return by_chain


def logarithms(first: np.ndarray, then: np.ndarray, on: np.ndarray) -> np.ndarray:
    """float64 [words, 3] as of `path_steps`, from probabilities: of each word's tag [words], of the same after the tag
    before it and of a tag that follows that one [words - 1]."""
    parts = np.stack([first, np.append(first[:1], then), np.append(np.ones(len(first[:1])), 1 - on)], axis=-1)
    return np.log(np.clip(parts, _LEAST, 1))


def _padded(chains: Sequence[np.ndarray], kind: type[np.floating]) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Chains float [words, n] side by side: their order, their lengths in it, int [chains], and their emissions as
    `kind` [words of the longest, chains, n], 0 after an end.

    The longest comes first, so that the unfinished chains are the first rows at every step.
    """
    order = sorted(range(len(chains)), key=lambda row: -len(chains[row]))
    lengths = np.array([len(chains[row]) for row in order])
    emissions = np.zeros((lengths[0], len(chains), chains[0].shape[1]), kind)
    for i, row in enumerate(order):
        emissions[: lengths[i], i] = chains[row]
    return order, lengths, emissions


def _shares(weights: np.ndarray) -> np.ndarray:
    """Weights [..., n] as shares of their sum."""
    return weights / np.maximum(weights.sum(-1, keepdims=True), 1e-300)


def _log_sum(values: np.ndarray, axis: int) -> np.ndarray:
    """log(sum(exp(values))) along an axis."""
    most = values.max(axis, keepdims=True)
    return np.squeeze(most, axis) + np.log(np.exp(values - most).sum(axis))
