"""Converts rows to examples of the task; logs bad rows.

    Row --ExampleReader--> an example of the task, or a BadRow that says why there is none

Rows are read in one of two ways: good_rows gives row and example, iter_examples the examples alone. What happens to bad
rows is for the log that is passed in. Examples do not store their places, to save memory: `places` finds them again.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from nlpctl.data.readers.lines import FROM_GBK, NOT_UTF8
from nlpctl.data.readers.row import MISSING, BadRow, BadWord, Row, RowSource, problems_of
from nlpctl.data.rows.labels import LabelSet
from nlpctl.data.rows.task_rows import Example, TaskRows
from nlpctl.errors import Problem, UserError
from nlpctl.names import counted, subject

if TYPE_CHECKING:
    import numpy as np

SHOWN = 10  # bad rows that are listed
SKIP = "@[data.on_bad_row=skip]"  # not as a key: not every command has a recipe to write it in


class ExampleReader:
    """Turns the rows of a task into examples; `labels` None: without their labels."""

    def __init__(self, rows: TaskRows, labels: LabelSet | None) -> None:
        self.rows = rows
        self.labels = labels

    def read(self, row: Row | BadRow) -> Any:
        """The example in `row`, or a BadRow that says why there is none."""
        if isinstance(row, BadRow):
            return row
        try:
            return self.rows.read(row.values, self.labels)
        except BadWord as error:
            return BadRow(row.source, row.line_of(error.word), str(error))
        except ValueError as error:
            return BadRow(row.source, row.line, str(error))


class BadRowLog:
    """Counts bad rows and keeps the first ten. Under "error" the tenth, or the end of reading, stops the command."""

    def __init__(self, policy: Literal["error", "skip"]) -> None:
        self.policy = policy
        self.first: list[BadRow] = []
        self.kinds: Counter[str] = Counter()

    @property
    def total(self) -> int:
        return self.kinds.total()

    def add(self, row: BadRow) -> None:
        """Count `row`. UserError at the tenth where the policy is "error"."""
        self.kinds[row.kind] += 1
        if len(self.first) < SHOWN:
            self.first.append(row)
        if self.policy == "error" and self.total == SHOWN:
            self._stop(f"{SHOWN} bad rows or more; reading stopped at the tenth")

    def finish(self) -> None:
        """Call when reading has ended. UserError if there were bad rows and the policy is "error"."""
        if self.policy == "error" and self.total:
            self._stop(f"{counted(self.total, 'bad rows')} in all")

    def summary(self) -> dict[str, Any]:
        """For the manifest."""
        return {
            "policy": self.policy,
            "total": self.total,
            "kinds": dict(self.kinds.most_common()),
            "first": [f"{row.where}: {row.reason}" for row in self.first],
        }

    def _stop(self, total: str) -> None:
        hint = f"fix them, or go on without them: {SKIP}"
        if all(kind.startswith(MISSING) for kind in self.kinds):
            hint = "name the keys that hold them, as in @[data.columns.text=KEY], or go on without these rows: "
            hint += SKIP
        elif set(self.kinds) == {"unknown label"}:
            hint += "; known labels are those of the trained model, of data.labels, or else of the training data"
        elif NOT_UTF8 in self.kinds:
            hint += FROM_GBK
        raise UserError(problems=[*problems_of(self.first), Problem(total, hint=hint)])


class ExampleList(list[Example]):
    """A whole split in memory: a million short texts cost their text and some 60 bytes each."""

    def lengths(self) -> np.ndarray:
        """[rows] int64, the byte_length of each example."""
        import numpy as np  # late: `recipe validate` reads rows without it

        return np.fromiter((example.byte_length for example in self), np.int64, len(self))


class BadRows(Protocol):
    """Takes the bad rows: BadRowLog stops or counts, as data.on_bad_row says; InspectedSplit counts and goes on."""

    def add(self, row: BadRow) -> None: ...


def good_rows(source: Iterable[Row | BadRow], reader: ExampleReader, bad: BadRows) -> Iterator[tuple[Row, Any]]:
    """Each good row of `source` and its example. The others go to `bad`, which may raise UserError.

    Whoever reads with a BadRowLog calls its `finish` at the end.
    """
    for row in source:
        example = reader.read(row)
        if isinstance(example, BadRow):
            bad.add(example)
        else:
            yield row, example  # type: ignore[misc]  # a BadRow has no example


def iter_examples(source: Iterable[Row | BadRow], reader: ExampleReader, log: BadRowLog) -> Iterator[Example]:
    """The good examples of one pass over `source`. Bad rows go to `log`, which may raise UserError, also at the end."""
    # Not by good_rows: every training row passes here, and a second generator would cost time.
    for row in source:
        example = reader.read(row)
        if isinstance(example, BadRow):
            log.add(example)
        else:
            yield example
    log.finish()


def load_examples(source: RowSource, reader: ExampleReader, log: BadRowLog) -> ExampleList:
    """All good examples of `source` in memory. UserError: bad rows (by `log`'s policy), or none that is good."""
    examples = ExampleList(iter_examples(source, reader, log))
    if not examples:
        raise no_good_row(source, log)
    return examples


def scan_examples(source: RowSource, reader: ExampleReader, log: BadRowLog) -> int:
    """One pass in constant memory, before a streaming run: the number of good examples. Errors as `load_examples`."""
    count = sum(1 for _ in iter_examples(source, reader, log))
    if not count:
        raise no_good_row(source, log)
    return count


def require_full_batch(rows: int, global_batch_size: int) -> None:
    """UserError if dropping the last, smaller batch would leave none, or there are no rows at all."""
    if not rows:
        raise UserError("no training row has a token", where="data.train", hint="give rows with text")
    if rows < global_batch_size:
        raise UserError(
            f"{subject(rows, 'training rows', 'does', 'do')} not fill one batch of {global_batch_size}",
            where="training.dataloader_drop_last",
            hint="set it to false, or use a smaller training.per_device_train_batch_size",
        )


def no_good_row(source: RowSource, log: BadRowLog) -> UserError:
    """The error for rows all of which are bad."""
    reasons = ", ".join(f"{kind} ({count})" for kind, count in log.kinds.most_common(3))
    hint = "fix the rows; data.on_bad_row: error lists the first ten"
    message = f"no row is usable; {counted(log.total, 'bad rows')}: {reasons}"
    return UserError(message, where=source.description, hint=hint)


@dataclass(frozen=True)
class Placed:
    """An example, or a part of one that fits the window, and the place of its row, file:line."""

    where: str
    item: Any


class FeatureList(ExampleList):
    """The features of `examples` (the parts that fit the window), and the owner of each: its place among `examples`."""

    def __init__(self, examples: Sequence[Any], cut: Callable[[Any], Sequence[Any]]):
        super().__init__()
        self.examples = examples
        self.owners = array("i")
        for i, example in enumerate(examples):
            parts = cut(example)
            self.extend(parts)
            self.owners.extend([i] * len(parts))

    def owner(self, feature: int) -> Any:
        """The example that the feature at this index is a part of."""
        return self.examples[self.owners[feature]]


class PlacingReader(ExampleReader):
    """Reads a row into a Placed example."""

    def read(self, row: Row | BadRow) -> Placed | BadRow:
        example = super().read(row)
        return example if isinstance(example, BadRow) else Placed(f"{row.source}:{row.line}", example)


def places(rows: Iterable[Row | BadRow], reader: ExampleReader, examples: Sequence[Any]) -> list[str | None]:
    """file:line of each example; None if no row yields it any more.

    Equal examples get different rows, if there are as many rows of that content.
    """
    wheres: list[str | None] = [None] * len(examples)
    waiting: defaultdict[int, list[int]] = defaultdict(list)  # by length, so that few have to be compared
    for i, example in enumerate(examples):
        waiting[example.byte_length].append(i)
    placing = PlacingReader(reader.rows, reader.labels)
    for row in rows:
        placed = placing.read(row)
        if isinstance(placed, BadRow):
            continue
        same_length = waiting.get(placed.item.byte_length, [])
        same = next((i for i in same_length if examples[i] == placed.item), None)
        if same is not None:
            wheres[same] = placed.where
            # Each row is used once, so that a repeated example gets the places of different rows.
            same_length.remove(same)
            # Everything asked for is found: the rest of a large file need not be read.
            if not any(waiting.values()):
                break
    # data.balance draws rows several times, and each stands in its file once: its copies have its place.
    for i in [i for i, where in enumerate(wheres) if where is None]:
        alike = (wheres[k] for k, example in enumerate(examples) if wheres[k] is not None and example == examples[i])
        wheres[i] = next(alike, None)
    return wheres
