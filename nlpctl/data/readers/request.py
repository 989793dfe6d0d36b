"""What is asked of a reader besides the lines of a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nlpctl.data.readers.annotated import AnnotatedTask, OnlyAnnotated


@dataclass(frozen=True)
class ReadRequest:
    """How a file is to be read. A reader uses of it what its format knows.

    `format`: a name in INPUT_FORMATS. `header`: whether a table begins with the names of its columns (data.header).
    `required`: columns that a row must have, else it is bad; of plain text, what a line is called. `task`: makes
    columns of the records of annotated formats; None: they have their texts alone. `columns`: those that are wanted,
    where leaving out the others saves time; None: all. `groups`: of a format with row groups, the first one that is
    read, the one before which reading ends (None: the end of the file), and the number of the first row.
    `blank_lines`: rows for the blank lines of plain text, too.
    """

    format: str
    header: bool = True
    required: Sequence[str] = ()
    task: AnnotatedTask | None = None
    columns: Sequence[str] | None = None
    groups: tuple[int, int | None, int] = (0, None, 1)
    blank_lines: bool = False

    @property
    def expected(self) -> Sequence[str]:
        """Columns that are probably there. Rows that data.map is to change need none, but the recipe names some."""
        if self.required or self.task is None:
            return self.required
        return self.task.required(labelled=isinstance(self.task, OnlyAnnotated))
