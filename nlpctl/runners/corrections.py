"""`nlpctl data apply`: corrected copies of the files that findings are about. The files themselves stay."""

from __future__ import annotations

import contextlib
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nlpctl import console
from nlpctl.data.audit.corrected import Edit, corrected
from nlpctl.data.audit.found import OUTLIER, WRONG, Finding, read_findings
from nlpctl.errors import UserError
from nlpctl.files import staged_file, writing
from nlpctl.names import counted
from nlpctl.outputs import note_inputs, refuse_below_file
from nlpctl.runners.data import refuse_files


@dataclass(frozen=True)
class Applied:
    """`files`: each file and its corrected copy. `refused`: wrong labels that `first` named, but a person refused."""

    files: dict[str, Path]
    changed: int  # labels
    dropped: int  # rows
    refused: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def apply_findings(
    file: Path, output: Path, *, first: float = 0, drop: bool = False, overwrite: bool = False
) -> Applied:
    """Write corrected copies of the files that the ticked findings in `file` are about, into the folder `output`.

    `first`: so many wrong labels, the surest, are taken without a tick unless they are refused (apply: false). `drop`:
    leave rows out in place of changing their labels. UserError: nothing is ticked, a file changed since, or a copy
    exists.
    """
    findings = read_findings(file)
    wrong = [each for each in findings if each.kind == WRONG]
    if len(wrong) < first < math.inf:
        console.warn(f"{counted(len(wrong), 'wrong labels')} in {file}, fewer than the first {first:,}")
    # What a person sees at the top, those that were refused among them.
    top = {each.line: each.apply is not False for each in wrong[: int(min(first, len(wrong)))]}
    chosen = [each for each in findings if each.apply or top.get(each.line)]
    if not chosen:
        hint = 'tick findings on the page of the audit, or set "apply": true in their lines; --first N takes the surest'
        raise UserError(f"none of {len(findings):,} findings is ticked", str(file), hint)
    edits: dict[str, dict[int, list[Edit]]] = defaultdict(lambda: defaultdict(list))
    kinds = {}
    for finding in chosen:
        edit = _edit(finding, file, drop)
        target = finding.edit
        earlier = edits[target.file][target.row]
        same = [each for each in earlier if (each.column, each.word) == (edit.column, edit.word)]
        if any(each.after != edit.after for each in same):
            hint = "remove one of them, or its tick"
            raise UserError("another finding above changes this label differently", f"{file}:{finding.line}", hint)
        if not same:
            earlier.append(edit)
        kinds[target.file] = target.sha256, target.format, target.header
    copies = _copies(edits, output)
    refuse_below_file(output, "-o")
    audited = {each.edit.file for each in findings if each.edit is not None}  # also those of which nothing is ticked
    note_inputs([file, *audited], "the findings")
    refuse_files(list(copies.values()), overwrite)
    contents = {name: corrected(Path(name), *kinds[name], rows) for name, rows in edits.items()}
    # All are written to temporary files before the first is renamed.
    with writing(output, "name another folder: -o"), contextlib.ExitStack() as staged:
        for name, content in contents.items():
            staged.enter_context(staged_file(copies[name])).write(content)
    every = [changes for rows in edits.values() for changes in rows.values()]
    dropped = sum(any(edit.after is None for edit in changes) for changes in every)
    changed = sum(len(changes) for changes in every if all(edit.after is not None for edit in changes))
    return Applied(copies, changed, dropped, list(top.values()).count(False))


def _edit(finding: Finding, file: Path, drop: bool) -> Edit:
    where = f"{file}:{finding.line}"
    if finding.edit is None:
        hint = "labels of a data set, a function, an annotation tool, or data.map are corrected there"
        raise UserError("this label is in no file that could be changed", where, hint)
    leaves_out = drop or finding.kind == OUTLIER
    if finding.proposed is None and not leaves_out:
        hint = 'write the right label as "proposed", or use --drop to leave the row out'
        raise UserError("this finding proposes no label", where, hint)
    after = None if leaves_out else finding.proposed
    return Edit(finding.edit.column, finding.given, after, finding.edit.word)


def _copies(names: Sequence[str] | Any, output: Path) -> dict[str, Path]:
    """File to its copy. UserError if two would have one name."""
    copies = {name: output / Path(name).name for name in names}
    twice = [copy for copy, count in Counter(copies.values()).items() if count > 1]
    if twice:
        hint = "apply the findings of one folder at a time"
        raise UserError(f"two files are called {twice[0].name}", where=str(output), hint=hint)
    return copies
