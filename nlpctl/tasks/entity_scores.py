"""Entity-level scores: an entity is correct if its type and both boundaries match exactly, as in seqeval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nlpctl.data.tag_scheme import Span

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


def entity_report(gold: Sequence[Sequence[Span]], predicted: Sequence[Sequence[Span]]) -> dict[str, Any]:
    """Precision, recall and F1 over all entities (micro), averaged over types (macro, weighted), and per type.

    gold[i] and predicted[i] are the entities of sentence i. Types are those that occur in either. A ratio with
    denominator 0 is 0. Equal to seqeval's default mode with zero_division=0.
    """
    expected: Counter[str] = Counter()
    found: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for true, guessed in zip(gold, predicted, strict=True):
        expected.update(span.type for span in true)
        found.update(span.type for span in guessed)
        right.update(span.type for span in set(true) & set(guessed))
    types = sorted(expected | found)
    per_type = {kind: _figures(right[kind], found[kind], expected[kind]) for kind in types}
    overall = _figures(right.total(), found.total(), expected.total())
    support = expected.total()
    return {
        "rows": len(gold),
        "precision": overall["precision"],
        "recall": overall["recall"],
        "f1": overall["f1"],
        "macro_f1": _ratio(sum(figures["f1"] for figures in per_type.values()), len(types)),
        "weighted_f1": _ratio(sum(figures["f1"] * figures["support"] for figures in per_type.values()), support),
        "entities": support,
        "labels": per_type,
    }


def entity_columns(
    rows: Sequence[tuple[Sequence[Span], Sequence[Span], int, int]],
) -> tuple[list[str], csr_matrix]:
    """The types of entities, and the columns of the tallies "entities" (tallies.py).

    `rows`: of each sentence the entities expected and found, the number of right tags, and that of its words.
    """
    from scipy.sparse import lil_matrix

    types = sorted({span.type for gold, found, *_ in rows for span in [*gold, *found]})
    place = {kind: i for i, kind in enumerate(types)}
    columns = lil_matrix((len(rows), 3 * len(types) + 2))
    for row, (gold, found, right_tags, words) in enumerate(rows):
        for third, spans in enumerate((set(gold) & set(found), found, gold)):
            for span in spans:
                columns[row, third * len(types) + place[span.type]] += 1
        columns[row, -2], columns[row, -1] = right_tags, words
    return types, columns.tocsr()


def _figures(right: int, found: int, expected: int) -> dict[str, Any]:
    precision, recall = _ratio(right, found), _ratio(right, expected)
    f1 = _ratio(2 * precision * recall, precision + recall)
    return {"precision": precision, "recall": recall, "f1": f1, "support": expected}


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
