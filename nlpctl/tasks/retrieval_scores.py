"""Retrieval scores: recall at k and mean reciprocal rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

CUTOFFS = (1, 5, 10, 50)
QUERY_SCORES = (*(f"recall@{k}" for k in CUTOFFS), "mrr")
CHUNK = 256  # queries that are compared with the whole corpus at a time


def retrieval_report(
    queries: np.ndarray, corpus: np.ndarray, relevant: Sequence[Sequence[int]], skipped: Sequence[int | None]
) -> dict[str, Any]:
    """Recall@k, the share of a query's relevant texts among the first k, and MRR, 1 / rank of the first one found.

    `queries` float32 [queries, dim] and `corpus` [texts, dim] have unit length; `relevant[i]` are the rows of the
    corpus that query i should find, one at least; `skipped[i]` is left out of its ranking (the query itself,
    where it stands in the corpus). Of texts with equal cosines the relevant ones come last, so a network that
    gives all texts the same vector scores next to nothing.
    """
    scores = query_scores(queries, corpus, relevant, skipped)
    means = {name: float(column.mean()) for name, column in zip(QUERY_SCORES, scores.T, strict=True)}
    return {**means, "queries": len(queries), "corpus": len(corpus)}


def query_scores(
    queries: np.ndarray, corpus: np.ndarray, relevant: Sequence[Sequence[int]], skipped: Sequence[int | None]
) -> np.ndarray:
    """The QUERY_SCORES of each query, float64 [queries, scores]. Arguments as in `retrieval_report`."""
    found = np.zeros((len(queries), len(QUERY_SCORES)))
    for start in range(0, len(queries), CHUNK):
        scores = queries[start : start + CHUNK] @ corpus.T
        for i, row in enumerate(scores, start):
            ranks = _ranks(row, np.asarray(relevant[i]), skipped[i])
            found[i] = [*(np.mean(ranks <= k) for k in CUTOFFS), 1 / ranks[0]]
    return found


def missed_queries(
    queries: np.ndarray, corpus: np.ndarray, relevant: Sequence[Sequence[int]], skipped: Sequence[int | None]
) -> list[tuple[int, int, int]]:
    """(query, rank of its best relevant text, the text that came first) where that is not a relevant one.

    Arguments as in `retrieval_report`.
    """
    missed = []
    for start in range(0, len(queries), CHUNK):
        scores = queries[start : start + CHUNK] @ corpus.T
        for i, row in enumerate(scores, start):
            rank = int(_ranks(row, np.asarray(relevant[i]), skipped[i])[0])
            if rank > 1:
                row[[*relevant[i], *([] if skipped[i] is None else [skipped[i]])]] = -np.inf
                missed.append((i, rank, int(row.argmax())))
    return missed


def _ranks(scores: np.ndarray, relevant: np.ndarray, skipped: int | None) -> np.ndarray:
    """Ranks, from 1 and rising, of the relevant texts among all texts [texts] but the skipped one."""
    wanted = np.sort(scores[relevant])[::-1]
    others = np.ones(len(scores), bool)
    others[relevant] = False
    if skipped is not None:
        others[skipped] = False
    # Counting is linear in the corpus; sorting it for each query would cost a logarithm more.
    before = (scores[others][:, None] >= wanted[None, :]).sum(0)
    return before + np.arange(1, len(wanted) + 1)
