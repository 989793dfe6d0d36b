"""Probabilities of single tags under a CRF, compared with a sum over all paths."""

from __future__ import annotations

from itertools import product

import numpy as np

from nlpctl.models.viterbi import marginals


def by_hand(chain, transitions):
    n = chain.shape[1]
    found, total = np.zeros(chain.shape), 0.0
    for path in product(range(n), repeat=len(chain)):
        score = transitions[n + 1, path[0]] + transitions[n, path[-1]]
        score += sum(chain[i, tag] for i, tag in enumerate(path))
        score += sum(transitions[a, b] for a, b in zip(path, path[1:], strict=False))
        weight = np.exp(score)
        total += weight
        found[np.arange(len(path)), path] += weight
    return found / total


def test_they_are_sums_over_all_paths():
    random = np.random.default_rng(4)
    transitions = random.normal(size=(5, 5)).astype(np.float32)
    chains = [random.normal(size=(length, 3)).astype(np.float32) * 2 for length in (4, 1, 3, 5)]
    for chain, found in zip(chains, marginals(chains, transitions), strict=True):
        assert np.allclose(found, by_hand(chain, transitions), atol=1e-6)
        assert np.allclose(found.sum(1), 1)
