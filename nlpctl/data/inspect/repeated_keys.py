"""Keys that stand twice in an object of jsonl, of which JSON's readers silently take the last."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from nlpctl.data.changed_rows import unchanged
from nlpctl.data.open_split import FileRows
from nlpctl.data.readers.lines import decode
from nlpctl.data.readers.packed import open_unpacked
from nlpctl.data.readers.readers import file_lines
from nlpctl.data.readers.row import RowSource


def rows_with_repeated_keys(source: RowSource, most: int | None = None) -> dict[tuple[str, int | str], Sequence[str]]:
    """Per file and line of the first `most` objects of jsonl in each file (None: all): the keys that stand twice."""
    source = unchanged(source)
    found: dict[tuple[str, int | str], Sequence[str]] = {}
    if not isinstance(source, FileRows):
        return found
    for path, kind in zip(source.files, source.formats, strict=True):
        if kind == "jsonl":
            with open_unpacked(path) as stream:
                lines = (line for line in file_lines(stream, str(path), kind) if line[1].strip())
                for number, raw in islice(lines, most):
                    if keys := tuple(repeated_keys(decode(raw)[0])):
                        found[str(path), number] = keys
    return found


def repeated_keys(text: str) -> Iterator[str]:
    """The keys that stand twice in one object of a JSON text, at any depth; nothing if it is no JSON."""
    repeated: dict[str, None] = {}

    def noted(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            times = Counter(name for name, _ in pairs)
            repeated.update(dict.fromkeys(name for name in made if times[name] > 1))
        return made

    try:
        json.loads(text, object_pairs_hook=noted)
    except (ValueError, RecursionError):
        return
    yield from repeated
