"""Findings of an audit: a line of JSON each, to be ticked and applied.

    {"kind": "wrong label", "where": "train.tsv:12", "given": "neg", "proposed": "pos", "given_probability": 0.02,
     "proposed_probability": 0.98, "text": "...", "apply": null, "edit": {"file": "train.tsv", "row": 10, ...}}

"apply": true accepts a finding, and "proposed" may be changed before. `edit` says where the label is in the file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from nlpctl.data.audit.corrected import FORMATS
from nlpctl.data.conll import JOINT
from nlpctl.data.kept import json_line
from nlpctl.data.lines import is_blank, refuse_surrogates
from nlpctl.errors import UserError
from nlpctl.files import parse_json, small_text, staged_file
from nlpctl.outputs import refuse_pipe

FINDINGS = "findings.jsonl"
WRONG, CONFLICT, OUTLIER = "wrong label", "conflict", "outlier"
KINDS = (WRONG, CONFLICT, OUTLIER)


@dataclass(frozen=True)
class Target:
    """The label of a row in its file: `row` counts the file's rows from 0. `word`: the first of some tagged words.

    `sha256`: of the file when it was audited. In another one `row` may be another row. `several`: the column holds any
    number of labels, so that it may be empty.
    """

    file: str
    sha256: str
    row: int
    format: str
    header: bool
    column: str
    word: int | None = None
    several: bool | None = None


@dataclass(frozen=True)
class Finding:
    """`given` and `proposed`: labels as the file writes them; `proposed` None: there is nothing to put in its place.

    `other`: the place of the row that contradicts this one. `edit` None: the label is in no file that could be changed.
    `apply`: what a person decided; None: nothing yet.
    """

    kind: str
    where: str
    text: str
    given: Any = None
    proposed: Any = None
    given_probability: float | None = None
    proposed_probability: float | None = None
    other: str | None = None
    other_label: Any = None
    distance: float | None = None
    apply: bool | None = None
    edit: Target | None = None
    line: int = field(default=0, compare=False)  # in the file of findings

    def to_json(self) -> dict[str, Any]:
        """Without what is not known, but for what a person may fill in."""
        values = {name: value for name, value in asdict(self).items() if name != "line"}
        kept = ("given", "proposed", "apply")
        return {name: value for name, value in values.items() if value is not None or name in kept}


def write_findings(file: Path, findings: Iterable[Finding]) -> None:
    with staged_file(file) as stream:
        for finding in findings:
            stream.write(f"{json_line(finding.to_json())}\n".encode())


def read_findings(file: Path) -> list[Finding]:
    """UserError, with file and line, for what is no finding."""
    refuse_pipe(file)
    if file.is_dir():
        inside = [each for each in (file / FINDINGS, file / "audit" / FINDINGS) if each.is_file()]
        hint = f"name {inside[0] if inside else f'{FINDINGS} of nlpctl data audit'}"
        raise UserError("this is a folder", str(file), hint)
    try:
        lines = small_text(file).split("\n")
    except (OSError, ValueError) as error:
        hint = "name findings.jsonl of nlpctl data audit, or the file that its page saved"
        raise UserError(f"the findings cannot be read ({error})", str(file), hint) from None
    found = list(_parsed(file, lines))
    if not found:
        raise UserError("there are no findings in this file", str(file), "name findings.jsonl of nlpctl data audit")
    return found


def _parsed(file: Path, lines: Iterable[str]) -> Iterator[Finding]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield _finding(parse_json(line), number)
        except (ValueError, TypeError, KeyError) as error:
            hint = "one finding a line, as nlpctl data audit writes them"
            raise UserError(f"this is no finding ({error})", f"{file}:{number}", hint) from None


def _finding(values: Any, number: int) -> Finding:
    if not isinstance(values, Mapping) or values.get("kind") not in KINDS:
        raise ValueError(f"kind is none of {', '.join(KINDS)}")
    if values.get("apply") not in (None, True, False):
        raise ValueError("apply is true, false or null")
    missing = [name for name in ("where", "text") if not isinstance(values.get(name), str)]
    unknown = sorted(values.keys() - {each.name for each in fields(Finding)})
    if missing or unknown:
        raise ValueError(f"{missing[0]} is missing" if missing else f"there is no key {unknown[0]!r}")
    edit = values.get("edit")
    target = None if edit is None else _target(edit)
    if target is not None:
        _check_target(target, values)
    return Finding(**{**values, "edit": target, "line": number})


def _target(edit: Any) -> Target:
    names = {each.name for each in fields(Target)}
    if not isinstance(edit, Mapping) or not names - {"word", "several"} <= edit.keys() <= names:
        raise ValueError("edit is incomplete")
    return Target(**edit)


def _check_target(target: Target, values: Mapping[str, Any]) -> None:
    kinds = {"file": str, "sha256": str, "row": int, "format": str, "header": bool, "column": str}
    wrong = [name for name, kind in kinds.items() if not isinstance(getattr(target, name), kind)]
    if wrong or target.row < 0 or target.format not in FORMATS:
        raise ValueError(f"edit.{wrong[0] if wrong else 'row'} is wrong")
    if "\0" in target.file:
        raise ValueError("edit.file is no name of a file")
    if target.several not in (None, True, False):
        raise ValueError("edit.several is wrong")
    refuse_surrogates(target.file, "edit.file")
    proposed = values.get("proposed")
    for each in proposed if isinstance(proposed, list) else () if proposed is None else (proposed,):
        _check_label(each, may_be_blank=bool(target.several) and not isinstance(proposed, list))
    if target.word is not None:
        if type(target.word) is not int or target.word < 0 or not isinstance(values.get("given"), list):
            raise ValueError("edit.word is wrong")
        same = isinstance(proposed, list) and len(proposed) == len(values["given"])
        tags = same and all(isinstance(tag, str) and tag.split() == [tag] for tag in proposed)
        if proposed is not None and not tags:
            raise ValueError("proposed needs a tag, without spaces, for each that is given")
    elif values.get("proposed") is not None and not _fits(values["proposed"], values.get("given"), target.format):
        told = json.dumps(values.get("given"), ensure_ascii=False)
        raise ValueError(f"proposed is not of the kind of given, {told}")
    elif target.format in ("tsv", "joined") and set("\t\n\r") & set(str(values.get("proposed"))):
        raise ValueError("proposed holds a tab or a line break, which this file cannot")
    if target.format == "joined" and any(JOINT in str(tag) for tag in proposed or ()):
        raise ValueError("proposed holds U+0002, which stands between tags in this file")


def _check_label(label: Any, may_be_blank: bool) -> None:
    """ValueError if no file can hold this label, or no task can have it."""
    if isinstance(label, str):
        refuse_surrogates(label, "proposed")
        if "\0" in label:
            raise ValueError("proposed holds the character NUL")
        if is_blank(label) and not may_be_blank:
            raise ValueError("proposed is blank, which is no label")
    elif not isinstance(label, int | float) or not math.isfinite(label):
        raise ValueError("proposed is neither a text nor a number")


def _fits(proposed: Any, given: Any, format: str) -> bool:
    """Whether a file can hold `proposed` in place of `given`: in JSON one label may be a number, another a text."""
    if format in ("json", "jsonl") and not isinstance(given, list):
        return isinstance(proposed, str | int | float)
    return isinstance(proposed, type(given))
