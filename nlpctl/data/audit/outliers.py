"""Texts that are like no others: far from their nearest neighbours, by the character n-grams that they share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

NEIGHBOURS = 5
MOST_KNOWN = 5_000  # texts among which neighbours are looked for; of more, a random part
FAR = 3.5  # robust standard deviations beyond the median, the usual cut (Iglewicz and Hoaglin, 1993)
_AT_ONCE = 1_000
_SEED = 7


def find_outliers(texts: Sequence[str]) -> list[tuple[int, float]]:
    """(index, distance) of the outliers, the farthest first. The distance is the mean cosine distance, 0 to 1, to the
    five nearest other texts.
    """
    if len(texts) <= 2 * NEIGHBOURS:
        return []
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectors = TfidfVectorizer(analyzer="char", ngram_range=(1, 2), sublinear_tf=True, dtype=np.float32)
    try:
        vectors = vectors.fit_transform(texts)
    except ValueError:  # texts without any character that counts
        return []
    known = np.arange(len(texts))
    if len(texts) > MOST_KNOWN:
        known = np.sort(np.random.default_rng(_SEED).choice(len(texts), MOST_KNOWN, replace=False))
    columns = vectors[known].T.tocsr()
    distances = np.empty(len(texts))
    for start in range(0, len(texts), _AT_ONCE):
        near = (vectors[start : start + _AT_ONCE] @ columns).toarray()
        near[known[None, :] == np.arange(start, start + len(near))[:, None]] = -1.0  # itself
        best = np.partition(near, -NEIGHBOURS, axis=1)[:, -NEIGHBOURS:]
        distances[start : start + len(near)] = 1 - best.mean(1)
    middle = np.median(distances)
    spread = 1.4826 * np.median(np.abs(distances - middle))
    if spread <= 0:
        return []
    far = np.flatnonzero(distances > middle + FAR * spread)
    return [(int(i), float(distances[i])) for i in far[np.argsort(-distances[far], kind="stable")]]
