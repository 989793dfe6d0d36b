"""Scores of parts of a split: of the rows with a label, of a length, or with a value in a column.

Imports neither Paddle nor, before something is scored, NumPy: the page of a run shows slices that are stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

from nlpctl.config.tasks import scores

if TYPE_CHECKING:
    import numpy as np

    from nlpctl.data.rows.examples import ExampleList
    from nlpctl.data.rows.task_rows import TaskRows
    from nlpctl.tasks.base import Task
    from nlpctl.tasks.tallies import Tallies

LABEL, LENGTH = "label", "length"  # kinds of slices beside the columns of the data
LEAST_ROWS = 10  # of a slice that is shown
MOST = 30  # slices, the largest
MOST_OF_A_RUN = 10  # of each kind, the weakest of these

Named = Sequence[tuple[str, ...]]  # the slices that each example is in


@dataclass(frozen=True)
class Slice:
    """Some rows of a split: a score of theirs, and how far it lies above that of all other rows (negative: below)."""

    name: str
    rows: int
    score: float
    interval: tuple[float, float]  # of the score
    above: float
    above_interval: tuple[float, float]


def by_label(task: Task, rows: TaskRows, examples: ExampleList) -> Named:
    """By the labels of a row. One without any is in no slice: F1, which its task is compared by, is 0 there."""
    return [rows.label_names(example, task.labels) for example in examples]


def by_length(rows: TaskRows, examples: ExampleList) -> Named:
    """By quarters of the rows, from the shortest to the longest, in characters of their texts."""
    import numpy as np

    lengths = np.array([sum(map(len, rows.passages(example).values())) for example in examples])
    values, counts = np.unique(lengths, return_counts=True)
    shares = counts.cumsum() / len(lengths)  # of the rows up to each length: a cut is the length nearest to a quarter
    cuts = np.unique([values[np.abs(shares - share).argmin()] for share in (0.25, 0.5, 0.75)])
    cuts = cuts[cuts < values[-1]]
    ends = [0, *cuts.tolist(), int(values[-1])]
    names = [f"{low + 1} to {high} characters" for low, high in pairwise(ends)]
    return [(names[place],) for place in np.searchsorted(cuts, lengths).tolist()]


def main_score(task: Task, report: dict[str, Any]) -> str:
    """The score that slices are compared by."""
    return next(name for name in scores(task.name) if name in report)


def sliced(score: str, tallies: Tallies, named: Named, most: int = MOST) -> list[Slice]:
    """Of the MOST largest slices of LEAST_ROWS or more the `most` furthest below the rest, the furthest first."""
    import numpy as np

    named = _scored(tallies, named)
    names = Counter(name for row in named for name in set(row))
    largest = [name for name, rows in names.most_common(MOST) if LEAST_ROWS <= rows < tallies.rows]
    return slices(tallies, score, {name: np.array([name in row for row in named]) for name in largest}, most)


def left_out(tallies: Tallies, named: Named, listed: Sequence[Slice]) -> int:
    """How many slices are not among those `listed`, which `sliced` gave."""
    return len({name for row in _scored(tallies, named) for name in row}) - len(listed)


def _scored(tallies: Tallies, named: Named) -> Named:
    return named if tallies.examples is None else [named[row] for row in tallies.examples.tolist()]


def slices_of_run(
    task: Task, rows: TaskRows, examples: ExampleList, report: dict[str, Any], tallies: Tallies
) -> dict[str, Any]:
    """By label and by length, for a run's page: {"score": NAME, "by": {KIND: [slice]}, "left_out": {KIND: number}},
    without empty kinds."""
    score = main_score(task, report)
    kinds = {LABEL: by_label(task, rows, examples), LENGTH: by_length(rows, examples)}
    by_kind = {kind: sliced(score, tallies, named, MOST_OF_A_RUN) for kind, named in kinds.items()}
    return {
        "score": score,
        "by": {kind: [asdict(each) for each in listed] for kind, listed in by_kind.items() if listed},
        "left_out": {kind: left_out(tallies, kinds[kind], listed) for kind, listed in by_kind.items() if listed},
    }


def slices(tallies: Tallies, score: str, members: Mapping[str, np.ndarray], most: int = MOST) -> list[Slice]:
    """The `most` worst slices, the worst first. `members`: per name bool [rows], with rows inside and outside."""
    import numpy as np
    from scipy.sparse import csr_matrix

    from nlpctl.tasks.intervals import drawn_scores, middle

    parts = []
    for name, chosen in members.items():
        both = np.column_stack([chosen, np.ones(len(chosen))])
        share = replace(tallies, kind="means", names=("inside",), counts=csr_matrix(both))
        pair = tallies.only(chosen), tallies.only(~chosen)
        whole, rest = (float(each.scores(np.ones(each.rows))[score]) for each in pair)
        parts.append((name, whole, whole - rest, (*pair, share)))
    parts = sorted(parts, key=lambda part: part[2])[:most]
    drawn = iter(drawn_scores([each for *_, drawn_of in parts for each in drawn_of]) if parts else ())
    result = []
    for name, whole, difference, _ in parts:
        chosen = members[name]
        *both_sides, shares = islice(drawn, 3)
        whole_draws = (shares["inside"] > 0) & (shares["inside"] < 1)  # others have no score of one side
        inside, outside = (each[score][whole_draws] for each in both_sides)
        ends = middle(inside, tallies.support(score, chosen))
        above = middle(inside - outside)
        if inside.min() == inside.max():  # its interval is not from the draws
            low, high = middle(outside)
            above = ends[0] - high, ends[1] - low
        result.append(Slice(name, int(chosen.sum()), whole, ends, difference, above))
    return result
