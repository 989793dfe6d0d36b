"""What each row adds to the scores of a split: enough to score any selection of its rows, and to compare two models.

All scores of a split are functions of sums over its rows: of counts, or of scores of single rows. `Tallies` holds the
summands, so that thousands of resampled splits are scored by one product of matrices (intervals.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from nlpctl.errors import UserError
from nlpctl.files import parse_json, staged_file, write_npz
from nlpctl.formats.array_files import read_npz

if TYPE_CHECKING:  # an export is answered without scores
    from scipy.sparse import csr_matrix

Scores = dict[str, np.ndarray]
MOST_BINS = 10_000


@dataclass(frozen=True, eq=False)
class Tallies:
    """The summands of a split's scores; a row is an example, or a query of semantic_indexing.

    `kind`: of SCORES_OF_KIND, which says how sums become scores. `names`: the labels, types or scores that the columns
    stand for.
    """

    kind: str
    names: tuple[str, ...]
    counts: csr_matrix  # float64 [rows, columns]
    right: np.ndarray  # bool [rows]: rows that are answered without a mistake
    keys: np.ndarray  # uint32 [rows]: checksums of what was asked and what was right, to compare equal rows only
    groups: np.ndarray | None = None  # int64 [rows]: rows with an equal number depend on each other; None: no row does
    examples: np.ndarray | None = None  # int64 [rows]: the example behind each row; None: row i is example i

    @property
    def rows(self) -> int:
        return len(self.right)

    def scores(self, weights: np.ndarray) -> Scores:
        """The scores of a split that has row i `weights[i]` times, from float64 [rows] or [splits, rows].

        A score is a number, or float64 [splits]. With weights of 1 they are the figures of the task's report.
        """
        return SCORES_OF_KIND[self.kind](np.asarray(weights @ self.counts), self.names)

    def support(self, score: str, chosen: np.ndarray | None = None) -> int:
        """The support of a score: how many rows (or groups of rows) it is computed from.

        These are the rows, of those `chosen` (bool [rows]), that have what `score` is a share of. A sentence without an
        entity, for example, tells nothing of the recall.
        """
        columns = SUPPORT_COLUMNS.get(self.kind, lambda width: {})(self.counts.shape[1]).get(score)
        counted = np.ones(self.rows, bool) if chosen is None else chosen
        if columns is not None:
            counted = counted & (np.asarray(self.counts[:, columns].sum(1)).ravel() > 0)
        return int(counted.sum()) if self.groups is None else len(np.unique(self.groups[counted]))

    def merged(self, units: np.ndarray, count: int) -> Tallies:
        """The rows with an equal number in `units` (int [rows], below `count`) as one row each."""
        from scipy.sparse import csr_matrix

        spread = csr_matrix((np.ones(self.rows), (units, np.arange(self.rows))), shape=(count, self.rows))
        return replace(self, counts=(spread @ self.counts).tocsr(), groups=None)

    def only(self, chosen: np.ndarray) -> Tallies:
        """The rows of `chosen` (bool [rows]); the others stay and add nothing."""
        from scipy.sparse import diags

        return replace(self, counts=(diags(chosen.astype(np.float64)) @ self.counts).tocsr())


def make_tallies(
    kind: str, names: Sequence[str], columns: Any, right: Any, asked: Sequence[Any], groups: np.ndarray | None = None
) -> Tallies:
    """The tallies of rows: `columns` [rows, columns], `right` [rows], and `asked`: what each row asks, with what would
    be right, as plain values."""
    from scipy.sparse import csr_matrix

    keys = np.array([crc32(ascii(each).encode()) for each in asked], np.uint32)
    counts = csr_matrix(columns, dtype=np.float64)
    return Tallies(kind, tuple(names), counts, np.asarray(right, bool), keys, groups)


def one_hot(columns: Sequence[np.ndarray], width: int) -> csr_matrix:
    """float64 [rows, width] with a 1 in each of the given columns of a row; `columns`: arrays int [rows]."""
    from scipy.sparse import csr_matrix

    rows = np.concatenate([np.arange(len(each)) for each in columns])
    places = np.concatenate(columns)
    return csr_matrix((np.ones(len(places)), (rows, places)), shape=(len(columns[0]), width))


def class_columns(gold: np.ndarray, given: np.ndarray, labels: int) -> csr_matrix:
    """The columns of the tallies "classes", from int [rows] label ids."""
    from scipy.sparse import csr_matrix

    rows = np.arange(len(gold))
    right = gold == given
    places = np.concatenate([gold[right], labels + given, 2 * labels + gold])
    return csr_matrix(
        (np.ones(len(places)), (np.concatenate([rows[right], rows, rows]), places)), (len(gold), 3 * labels)
    )


def bins(scores: np.ndarray) -> tuple[np.ndarray, int]:
    """The bin of each row, the lowest scores first, int [rows], and the number of bins; equal scores share one.

    More than MOST_BINS different scores are cut into bins of equally many, which moves AUC by 1 / (2 * MOST_BINS).
    """
    distinct, places = np.unique(scores, return_inverse=True)
    count = min(len(distinct), MOST_BINS)
    return places * count // len(distinct), count


# -- from sums [..., columns] to scores [...] --------------------------------------------------------


def _classes(sums: np.ndarray, names: Sequence[str]) -> Scores:
    """Columns: rows of label i that were given it, rows that were given label i, rows of label i."""
    right, given, support = _thirds(sums)
    f1 = ratio(2 * right, given + support)
    rows = support.sum(-1)
    accuracy = ratio(right.sum(-1), rows)
    return {
        "accuracy": accuracy,
        "macro_f1": f1.mean(-1),
        "micro_f1": accuracy,
        "weighted_f1": ratio((f1 * support).sum(-1), rows),
    }


def _matches(sums: np.ndarray, names: Sequence[str]) -> Scores:
    """Columns: as for the classes "no match" and "match"; then matches per `bins` of the score, then other rows."""
    classes, ranked = sums[..., :6], sums[..., 6:]
    right, given, support = _thirds(classes)
    width = ranked.shape[-1] // 2
    f1 = ratio(2 * right, given + support)[..., 1]
    return {"f1": f1, "auc": area_under_roc(ranked[..., :width], ranked[..., width:]), **_classes(classes, names)}


def area_under_roc(matches: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The area under the ROC curve, from counts per bin [..., bins], the lowest scores first.

    The share of pairs of a match and another row in which the match has the higher score; equal scores count half.
    0.5, that of guessing, where all rows are of one kind.
    """
    below = np.cumsum(others, axis=-1) - others / 2
    pairs = np.asarray(matches.sum(-1) * others.sum(-1))
    return np.divide((matches * below).sum(-1), pairs, out=np.full(pairs.shape, 0.5), where=pairs > 0)


def _label_sets(sums: np.ndarray, names: Sequence[str]) -> Scores:
    """Columns: as for classes, then rows with all labels right, then rows."""
    right, given, support = _thirds(sums[..., :-2])
    f1 = ratio(2 * right, given + support)
    return {
        "micro_f1": ratio(2 * right.sum(-1), given.sum(-1) + support.sum(-1)),
        "macro_f1": f1.mean(-1),
        "weighted_f1": ratio((f1 * support).sum(-1), support.sum(-1)),
        "exact_match": ratio(sums[..., -2], sums[..., -1]),
    }


def _entities(sums: np.ndarray, names: Sequence[str]) -> Scores:
    """Columns: entities of type i that are right, found, expected; then right tags, then words."""
    right, predicted, expected = _thirds(sums[..., :-2])
    f1 = ratio(2 * right, predicted + expected)
    present = ((predicted + expected) > 0).sum(-1)
    return {
        "precision": ratio(right.sum(-1), predicted.sum(-1)),
        "recall": ratio(right.sum(-1), expected.sum(-1)),
        "f1": ratio(2 * right.sum(-1), predicted.sum(-1) + expected.sum(-1)),
        "macro_f1": ratio(f1.sum(-1), present),
        "weighted_f1": ratio((f1 * expected).sum(-1), expected.sum(-1)),
        "accuracy": ratio(sums[..., -2], sums[..., -1]),
    }


def _words(sums: np.ndarray, names: Sequence[str]) -> Scores:
    """Columns: as for entities, each word being one; then the words of entity types that are right, found, expected."""
    right, predicted, expected = (sums[..., i] for i in (-3, -2, -1))
    return {**_entities(sums[..., :-3], names), "entity_f1": ratio(2 * right, predicted + expected)}


def _means(sums: np.ndarray, names: Sequence[str]) -> Scores:
    """Columns: a score of the row per name, then 1."""
    return {name: ratio(sums[..., i], sums[..., -1]) for i, name in enumerate(names)}


def _kept(sums: np.ndarray, names: Sequence[str]) -> Scores:
    """Columns: decisions that are sure enough and right, sure enough, all."""
    return {"coverage": ratio(sums[..., 1], sums[..., 2]), "precision": ratio(sums[..., 0], sums[..., 1])}


def _hidden_words(sums: np.ndarray, names: Sequence[str]) -> Scores:
    """Columns: summed loss of the hidden tokens, those guessed right, all of them."""
    loss = ratio(sums[..., 0], sums[..., 2])
    accuracy = ratio(sums[..., 1], sums[..., 2])
    return {"loss": loss, "perplexity": np.exp(np.minimum(loss, 700.0)), "masked_accuracy": accuracy}


SCORES_OF_KIND: Mapping[str, Callable[[np.ndarray, Sequence[str]], Scores]] = {
    "classes": _classes,
    "matches": _matches,
    "label_sets": _label_sets,
    "entities": _entities,
    "words": _words,
    "means": _means,
    "kept": _kept,
    "hidden_words": _hidden_words,
}


def _shares_of_label_sets(width: int) -> dict[str, slice]:
    labels = (width - 2) // 3
    return dict.fromkeys(("micro_f1", "macro_f1", "weighted_f1"), slice(labels, 3 * labels))


def _shares_of_entities(width: int) -> dict[str, slice]:
    types = (width - 2) // 3
    predicted, expected, either = (slice(types * i, types * j) for i, j in ((1, 2), (2, 3), (1, 3)))
    return {"precision": predicted, "recall": expected, **dict.fromkeys(("f1", "macro_f1", "weighted_f1"), either)}


# Per kind, from the number of columns: those that sum to what a score is a share of. Every row counts for the others.
SUPPORT_COLUMNS: Mapping[str, Callable[[int], Mapping[str, slice]]] = {
    "matches": lambda width: {"f1": slice(3, 6, 2)},
    "label_sets": _shares_of_label_sets,
    "entities": _shares_of_entities,
    "words": lambda width: {**_shares_of_entities(width - 3), "entity_f1": slice(width - 2, width)},
    "kept": lambda width: {"precision": slice(1, 2)},
}


def _thirds(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    width = sums.shape[-1] // 3
    return sums[..., :width], sums[..., width : 2 * width], sums[..., 2 * width :]


def ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole, 0 where whole is 0."""
    return np.divide(part, whole, out=np.zeros(np.shape(part)), where=np.asarray(whole) > 0)


# -- on disk -----------------------------------------------------------------------------------------


def save_tallies(file: Path, tallies: Tallies) -> None:
    """Write an .npz file, aside and renamed."""
    arrays = {name: getattr(tallies.counts, name) for name in ("data", "indices", "indptr", "shape")}
    arrays |= {"right": tallies.right, "asked": tallies.keys}
    if tallies.groups is not None:
        arrays["groups"] = tallies.groups
    file.parent.mkdir(exist_ok=True)
    with staged_file(file) as handle:
        write_npz(handle, {"about": json.dumps([tallies.kind, tallies.names]), **arrays}, compressed=True)


def load_tallies(file: Path) -> Tallies | None:
    """What `save_tallies` wrote; None if there is no file, or that of an older version. UserError if it is damaged."""
    from scipy.sparse import csr_matrix

    if not file.is_file():
        return None
    try:
        arrays = read_npz(file)
        if "keys" in arrays:  # checksums of the texts alone, whatever was right
            return None
        kind, names = parse_json(str(arrays["about"]))
        counts = csr_matrix(
            (arrays["data"], arrays["indices"], arrays["indptr"]), shape=tuple(arrays["shape"].tolist())
        )
        counts.check_format()
        groups = arrays.get("groups")
        tallies = Tallies(kind, tuple(names), counts, arrays["right"], arrays["asked"], groups)
        lengths = {len(each) for each in (tallies.right, tallies.keys, groups) if each is not None}
        if kind not in SCORES_OF_KIND or lengths != {counts.shape[0]} or not counts.shape[0]:
            raise ValueError(kind)
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError) as error:
        raise UserError("the file is damaged", where=str(file), hint="remove it: only comparisons need it") from error
    return tallies
