"""Labels that are probably wrong, by confident learning (Northcutt, Jiang, Chuang: Confident Learning, 2021).

cleanlab estimates from out-of-fold probabilities how often label i was given in place of j, and picks as many rows of
each pair, those of which the model is surest.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nlpctl.data.rows.tag_scheme import Span, TagScheme
from nlpctl.errors import UserError
from nlpctl.extras import of_extra


class WrongLabel(NamedTuple):
    """A row with the label that it would get. `given`, `proposed`: probabilities of the label it has and of that one.

    For several labels a row, `label` is a tuple of ids: all that the row would have.
    """

    row: int
    label: Any
    given: float
    proposed: float


class WrongTags(NamedTuple):
    """Words [start, end) of a row whose entities are probably wrong. `given`: the least probability of their tags."""

    row: int
    start: int
    end: int
    given: float


def find_issues(gold: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """The rows that are probably labelled wrongly, the surest first. int [rows], float [rows, labels].

    UserError if cleanlab is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from cleanlab.filter import find_label_issues
    except ImportError as error:
        raise of_extra(error) or UserError(
            f"cleanlab cannot be imported ({error})", hint="pip install 'cleanlab>=2.9,<3'"
        ) from None
    if len(np.unique(gold)) < 2:
        return np.zeros(0, np.int64)
    shares = shares.astype(np.float64)
    shares = shares / shares.sum(1, keepdims=True)  # float32 does not add up to 1 as closely as cleanlab asks
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # One process: the work is small, and its processes would be forked from this one.
        issues = find_label_issues(gold, shares, return_indices_ranked_by="self_confidence", n_jobs=1)
    return np.asarray(issues, np.int64)


def wrong_classes(gold: np.ndarray, shares: np.ndarray) -> list[WrongLabel]:
    """For one label a row."""
    wrong = []
    for row in find_issues(gold, shares).tolist():
        best = int(shares[row].argmax())
        wrong.append(WrongLabel(row, best, float(shares[row, gold[row]]), float(shares[row, best])))
    return wrong


def wrong_label_sets(gold: np.ndarray, shares: np.ndarray) -> list[WrongLabel]:
    """For any number of labels a row, bool [rows, labels]: each label is a decision by itself."""
    turned = np.zeros_like(gold)
    for label in range(gold.shape[1]):
        yes = shares[:, label]
        turned[find_issues(gold[:, label].astype(np.int64), np.column_stack([1 - yes, yes])), label] = True
    right = np.where(gold, shares, 1 - shares)  # the probability of each decision that was given
    wrong = []
    for row in np.flatnonzero(turned.any(1)).tolist():
        labels = tuple(np.flatnonzero(gold[row] ^ turned[row]).tolist())
        least = float(right[row, turned[row]].min())
        wrong.append(WrongLabel(row, labels, least, 1 - least))
    return sorted(wrong, key=lambda each: each.given)


def wrong_tags(
    gold: Sequence[np.ndarray],
    given: Sequence[np.ndarray],
    shares: Sequence[np.ndarray],
    names: Sequence[str],
    scheme: TagScheme,
) -> list[WrongTags]:
    """Stretches of words in which the entities of the labels `gold` and of the predictions `given` differ.

    Per row int [words], int [words], float [words, tags]. A stretch counts if one of its words is an issue by itself;
    it is corrected as a whole, so that no half of an entity is left. The surest come first: where only the type
    differs, then where the labels have no entity, other ends, no entity in the predictions. Names that the training
    rows lack are missed with high probability, so a probability alone would put those first (docs/decisions.md).
    """
    flat = np.concatenate(gold)
    issues = np.zeros(len(flat), bool)
    everything = np.concatenate(shares)
    issues[find_issues(flat, everything)] = True
    own = everything[np.arange(len(flat)), flat]
    wrong, first = [], 0
    for row, (tags, answer) in enumerate(zip(gold, given, strict=True)):
        sides = [set(scheme.entities([names[tag] for tag in side])) for side in (tags, answer)]
        differing = sides[0] ^ sides[1]
        for start, end in _stretches(differing):
            inside = slice(first + start, first + end)
            if issues[inside].any():
                ends = [{_place(span) for span in differing & side if start <= span.start < end} for side in sides]
                least = float(own[inside][issues[inside]].min())
                wrong.append((_doubt(*ends), WrongTags(row, start, end, least)))
        first += len(tags)
    return [each for _, each in sorted(wrong, key=lambda pair: (pair[0], pair[1].given))]


def _doubt(labelled: set[tuple[int, int]], predicted: set[tuple[int, int]]) -> int:
    """How little it says that labels and predictions differ, from 0, by the ends of their entities."""
    if labelled == predicted:
        return 0
    if not labelled:
        return 1
    return 2 if predicted else 3


def _stretches(differing: set[Span]) -> list[tuple[int, int]]:
    """What these entities cover; those that overlap are one."""
    stretches: list[tuple[int, int]] = []
    for span in sorted(differing, key=_place):
        if stretches and span.start < stretches[-1][1]:
            start, end = stretches[-1]
            stretches[-1] = start, max(end, span.end)
        else:
            stretches.append((span.start, span.end))
    return stretches


def _place(span: Span) -> tuple[int, int]:
    return span.start, span.end


# -- whether findings are worth taking without a look -----------------------------------------------------------------

RIGHT = 0.8  # share of right findings from which they are
MISTAKEN = 0.15  # share of contradicted labels: of models with more in the surest rows nothing can be told
BANDS, LEAST_IN_BAND = 10, 50  # of rows of which the models are alike sure
_SHARES = np.linspace(0.001, 1, 1000)  # of all labels


class Worth(NamedTuple):
    """Whether the `first` so many findings may be taken without a look: RIGHT of them are right if `needed`, a share of
    all labels, are wrong. `most`: more cannot be wrong."""

    first: int
    needed: float
    most: float

    @property
    def pays(self) -> bool:
        """Whether enough labels may be wrong, by models that have learned the task."""
        return self.needed <= self.most <= MISTAKEN


def worth_of_first(gold: np.ndarray, shares: np.ndarray, rows: Sequence[int]) -> list[Worth]:
    """Of a tenth, a third, and all of the findings `rows`, the surest first; int [rows], float [rows, labels]. Empty if
    there are too few rows to tell.

    Supposes that labels are wrong as often in easy rows as in hard ones. Of the labels that models contradict in a band
    of rows, as sure of each, so many are wrong, and the rest are mistakes of the models. In the surest band these are
    the fewest, so no more labels are wrong than they contradict there.
    """
    if len(gold) < BANDS * LEAST_IN_BAND:
        return []
    contradicted, band = np.zeros(BANDS), np.empty(len(gold), np.int64)
    for i, chosen in enumerate(np.array_split(np.argsort(-shares.max(1), kind="stable"), BANDS)):
        contradicted[i], band[chosen] = (shares[chosen].argmax(1) != gold[chosen]).mean(), i
    worth = []
    for count in sorted({len(rows) // 10, len(rows) // 3, len(rows)} - {0}):
        of_bands = contradicted[band[np.asarray(rows[:count])]]  # above 0, as each finding contradicts a label
        right = np.minimum(1, _SHARES[:, None] / of_bands).mean(1)  # of the findings, for each share of wrong labels
        needed = float(_SHARES[np.argmax(right >= RIGHT)])
        worth.append(Worth(count, round(needed, 3), float(contradicted[0])))
    return worth


# -- texts that are like no others ------------------------------------------------------------------------------------
#
# Far from their nearest neighbours, by the character n-grams that they share.

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
