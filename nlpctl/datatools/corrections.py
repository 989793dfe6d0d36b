"""`nlpctl data apply`: corrected copies of the files that findings are about. The files themselves stay."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from nlpctl import console
from nlpctl.checksums import sha256_of
from nlpctl.config.input_formats import INPUT_FORMATS
from nlpctl.data.passthrough_columns import json_line
from nlpctl.data.readers.annotated import Mark
from nlpctl.data.readers.annotation_rows import SPANS, file_records
from nlpctl.data.readers.conll import DOCUMENT, JOINT, TAGS, ends_sentence
from nlpctl.data.readers.json_rows import json_bytes
from nlpctl.data.readers.lines import is_blank, refuse_surrogates
from nlpctl.data.readers.readers import read_rows
from nlpctl.data.readers.row import BadRow, Row, place
from nlpctl.data.readers.spans import TEXT, mark_of, with_spans
from nlpctl.data.readers.tables import COMMA, QUOTED_TSV, separated
from nlpctl.datatools.split import refuse_files
from nlpctl.documents import Count, convert, fields_of, positive
from nlpctl.errors import UserError
from nlpctl.files import parse_json, small_text, staged_file, writing
from nlpctl.names import counted
from nlpctl.outputs import note_inputs, refuse_below_file, refuse_pipe
from nlpctl.report.language import later

# -- corrected copies of data files -----------------------------------------------------------------------------------
#
# Cells and lines are changed, everything else stays byte for byte. Of a json document, which is one text, the form may
# change, but no other value does.

_AGAIN = "audit the data as they are now: train the folds again, then nlpctl data audit"


@dataclass(frozen=True)
class Edit:
    """A change of one row. `before` is what `column` holds now; with `word`, what its items from there on are.

    `after` None: the row is left out.
    """

    column: str
    before: Any
    after: Any
    word: int | None = None


class SpanEdit(Edit):
    """`before` and `after` are some spans of a text, as objects; the others that the row has stay."""


def corrected(path: Path, sha256: str, kind: str, header: bool, edits: Mapping[int, Sequence[Edit]]) -> bytes:
    """The bytes of the file with some rows changed. `kind`: its format; `edits`: by the place of a row in the file.

    UserError: the file cannot be read, has another checksum than `sha256` (a row added above moves all others), or a
    row is not what its edit says.
    """
    refuse_pipe(path)
    shape, rows = file_records(str(path)) if kind == SPANS else ("lines", list(read_rows(path, kind, header, ())))
    if sha256_of(path) != sha256:
        raise UserError("the file changed since it was audited", str(path), f"restore it, or {_AGAIN}")
    for at, changes in edits.items():
        _check(rows[at] if at < len(rows) else None, changes, path)
    if kind == "json" or shape == "array":
        return _document(path, edits)
    if kind not in _LINES or shape != "lines":
        raise UserError(f"labels in {kind} files cannot be changed", str(path), "change them by hand")
    return _by_lines(path.read_bytes(), kind, header, rows, edits)


def _check(row: Row | BadRow | None, changes: Sequence[Edit], path: Path) -> None:
    """UserError if a row is not what its edits say, or cannot be what they make of it."""
    for edit in changes:
        if row is None or isinstance(row, BadRow) or not _holds(row, edit):
            where = str(path) if row is None else place(str(path), row.line)
            hint = 'leave "given" and "edit" of a finding as nlpctl data audit wrote them'
            raise UserError("this row is not what its finding says", where, hint)
        if isinstance(edit, SpanEdit) and edit.after is not None:
            try:
                row = row._replace(values={**row.values, edit.column: _changed(row.values, edit)})
            except ValueError as error:
                hint = 'change "proposed" of the finding, or remove its tick'
                raise UserError(f"no such spans can be here: {error}", place(str(path), row.line), hint) from None


def _holds(row: Row, edit: Edit) -> bool:
    """Whether a row holds what an edit is to change: the value of its column, some of its items, or some spans."""
    value = row.values.get(edit.column)
    if isinstance(edit, SpanEdit):
        try:
            return {*_marks(row.values, edit.before)} <= {*_marks(row.values, value)}
        except (ValueError, TypeError, KeyError):
            return False
    if edit.word is not None:
        value = value[edit.word : edit.word + len(edit.before)] if isinstance(value, list) else None
    return bool(value == edit.before)


def _marks(values: Mapping[str, Any], spans: Any) -> list[Mark]:
    return [mark_of(values[TEXT], span) for span in spans]


def _changed(values: Mapping[str, Any], edit: Edit) -> Any:
    """What the column of an edit holds afterwards. ValueError: spans that no text can have."""
    value = values[edit.column]
    if isinstance(edit, SpanEdit):
        return with_spans(values[TEXT], value, _marks(values, edit.before), _marks(values, edit.after))
    if edit.word is None:
        # A browser writes 2.0 as 2, which would be another label.
        whole = isinstance(value, float) and isinstance(edit.after, int) and not isinstance(edit.after, bool)
        return float(edit.after) if whole else edit.after
    return [*value[: edit.word], *edit.after, *value[edit.word + len(edit.before) :]]


# -- formats -----------------------------------------------------------------------------------------------------


def _by_lines(
    content: bytes, kind: str, header: bool, rows: Sequence[Row | BadRow], edits: Mapping[int, Sequence[Edit]]
) -> bytes:
    lines = content.split(b"\n")
    write = _LINES[kind]
    if INPUT_FORMATS[kind].in_quotes:
        _, separator = separated(enumerate(content.removeprefix(codecs.BOM_UTF8).split(b"\n"), 1), header)
        write = partial(_quoted, "\t" if kind == QUOTED_TSV else separator)
    starts = [row.line for row in rows if isinstance(row.line, int)]  # in a file of lines all have a number
    ends = dict(pairwise([*starts, len(lines) + 1]))
    for at in sorted(edits, reverse=True):  # from the end, since a row may lose lines
        row, changes = rows[at], edits[at]
        assert isinstance(row, Row) and isinstance(row.line, int), "_check refuses bad rows"
        start, end = row.line - 1, ends[row.line] - 1
        if any(edit.after is None for edit in changes):
            lines[start:end] = _without(lines[start:end], kind, row)
            continue
        for edit in changes:
            lines[start:end] = write(lines[start:end], row, edit)
            row = row._replace(values={**row.values, edit.column: _changed(row.values, edit)})
    return b"\n".join(lines)


def _without(lines: list[bytes], kind: str, row: Row) -> list[bytes]:
    """The lines from a row to the next one, without the row; the end of the file stays."""
    taken = _places(lines, row)[-1] + 1 if kind == "conll" else _record_length(lines, kind)
    if kind == "conll" and len(lines) > taken + 1 and ends_sentence(lines[taken].decode(errors="replace"), tagged=True):
        taken += 1  # the blank line behind the sentence
    return lines[taken:]


def _record_length(lines: Sequence[bytes], kind: str) -> int:
    """The number of lines of a record; a quoted cell of csv may run over several."""
    if not INPUT_FORMATS[kind].in_quotes:
        return 1
    quotes = 0
    for number, line in enumerate(lines, 1):
        quotes += line.count(b'"')
        if quotes % 2 == 0:
            return number
    return len(lines)


def _refuse_twice(cells: Sequence[Any], row: Row) -> None:
    """UserError if a name of the header stands for several cells: a row holds one of them, so places are not known."""
    if len(cells) != len(row.values):
        message = "two columns of the header have one name"
        raise UserError(message, f"{row.source}:{row.line}", f"rename one of them; then {_AGAIN}")


def _table(lines: list[bytes], row: Row, edit: Edit) -> list[bytes]:
    value = _changed(row.values, edit)
    cells = lines[0].removesuffix(b"\r").split(b"\t")
    end = lines[0][len(lines[0].removesuffix(b"\r")) :]
    _refuse_twice(cells, row)
    cells[list(row.values).index(edit.column)] = (JOINT.join(value) if isinstance(value, list) else value).encode()
    return [b"\t".join(cells) + end, *lines[1:]]


def _quoted(separator: str, lines: list[bytes], row: Row, edit: Edit) -> list[bytes]:
    count = _record_length(lines, "csv")
    records = csv.reader((f"{line.decode('utf-8-sig')}\n" for line in lines[:count]), delimiter=separator)
    _refuse_twice(next(records), row)
    values = {**row.values, edit.column: _changed(row.values, edit)}
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=separator, lineterminator="\r\n")
    writer.writerow(values.values())  # it quotes what is in the line's end only
    text = stream.getvalue().removesuffix("\r\n")
    text += "\r" if lines[count - 1].endswith(b"\r") else ""
    return [*text.encode().split(b"\n"), *lines[count:]]


def _json_line(lines: list[bytes], row: Row, edit: Edit) -> list[bytes]:
    values = {**row.values, edit.column: _changed(row.values, edit)}
    end = b"\r" if lines[0].endswith(b"\r") else b""
    return [json_bytes(values) + end, *lines[1:]]


def _words(lines: list[bytes], row: Row, edit: Edit) -> list[bytes]:
    """The last cell of the line of each word."""
    changed, places = list(lines), _places(lines, row)
    for i, tag in enumerate(edit.after, edit.word or 0):
        old = row.values[edit.column][i].encode()
        head, _, tail = changed[places[i]].rpartition(old)
        changed[places[i]] = head + str(tag).encode() + tail
    return changed


def _places(lines: Sequence[bytes], row: Row) -> list[int]:
    """The place of the line of each word. A mark of documents inside of a sentence is no word."""
    marks = [DOCUMENT.encode()]
    words = [i for i, line in enumerate(lines) if line.replace(b"\t", b" ").strip(b"\r").split(b" ")[:1] != marks]
    return words[: len(row.values[TAGS])]


_LINES: Mapping[str, Callable[[list[bytes], Row, Edit], list[bytes]]] = {
    "tsv": _table,
    "joined": _table,
    "csv": partial(_quoted, COMMA),
    QUOTED_TSV: partial(_quoted, "\t"),
    "jsonl": _json_line,
    SPANS: _json_line,
    "conll": _words,
}
FORMATS = (*_LINES, "json")


def _document(path: Path, edits: Mapping[int, Sequence[Edit]]) -> bytes:
    document = json.loads(path.read_text(encoding="utf-8-sig"))
    rows = document if isinstance(document, list) else document["data"]
    for at, changes in edits.items():
        for edit in changes:
            if edit.after is not None:
                rows[at][edit.column] = _changed(rows[at], edit)
    gone = {at for at, changes in edits.items() if any(edit.after is None for edit in changes)}
    rows[:] = [row for at, row in enumerate(rows) if at not in gone]
    return json_bytes(document, indent=2) + b"\n"


# -- findings of an audit: a line of JSON each, to be ticked and applied ----------------------------------------------
#
# {"kind": "wrong label", "where": "train.tsv:12", "given": "neg", "proposed": "pos", "given_probability": 0.02,
# "proposed_probability": 0.98, "text": "...", "apply": null, "edit": {"file": "train.tsv", "row": 10, ...}}
#
# "apply": true accepts a finding, and "proposed" may be changed before. `edit` says where the label is in the file.


FINDINGS = "findings.jsonl"
WRONG, CONFLICT, OUTLIER = "wrong label", "conflict", "outlier"
KINDS = (WRONG, CONFLICT, OUTLIER)
# Where labels come from that `apply_findings` cannot change.
ELSEWHERE = later("a data set, a function, an export of an annotation tool, a packed file, or data.map")


def _kind(value: str) -> None:
    if value not in KINDS:
        raise ValueError(f"is none of {', '.join(KINDS)}")


def _format(value: str) -> None:
    if value not in FORMATS:
        raise ValueError(f"is none of {', '.join(FORMATS)}")


def _file_name(value: str) -> None:
    if "\0" in value:
        raise ValueError("is no name of a file")


@dataclass(frozen=True)
class Target:
    """The label of a row in its file: `row` counts the file's rows from 0. `word`: the first of some tagged words, or
    where in the text some spans begin, which `given` and `proposed` are then.

    `sha256`: of the file when it was audited. In another one `row` may be another row. `several`: the column holds any
    number of labels, so that it may be empty.
    """

    file: Annotated[str, _file_name]
    sha256: str
    row: Count
    format: Annotated[str, _format]
    header: bool
    column: str
    word: Count | None = None
    several: bool | None = None


@dataclass(frozen=True)
class Finding:
    """`given` and `proposed`: labels as the file writes them; `proposed` None: there is nothing to put in its place.

    `rows`: how many rows have this text with these labels; `copies`: where the others are, as `edit` is for the first.
    `other`: the place of the row that contradicts this one. `edit` None: the label is in no file that could be changed.
    `apply`: what a person decided; None: nothing yet.
    """

    kind: Annotated[str, _kind]
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
    rows: Annotated[int, positive] = 1
    edit: Target | None = None
    copies: tuple[Target, ...] | None = None
    line: int = field(default=0, compare=False)  # in the file of findings

    def to_json(self) -> dict[str, Any]:
        """Without what is not known, but for what a person may fill in."""
        values = {name: value for name, value in asdict(self).items() if name != "line"}
        values["copies"] = list(values["copies"] or ()) or None
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
    findings = list(_parsed(file, lines))
    if not findings:
        raise UserError("there are no findings in this file", str(file), "name findings.jsonl of nlpctl data audit")
    return findings


def _parsed(file: Path, lines: Iterable[str]) -> Iterator[Finding]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield _finding(parse_json(line), number)
        except (ValueError, TypeError) as error:
            hint = "one finding a line, as nlpctl data audit writes them"
            raise UserError(f"this is no finding ({error})", f"{file}:{number}", hint) from None


def _finding(values: Any, number: int) -> Finding:
    finding: Finding = convert(values, Finding)
    if unknown := sorted(values.keys() - fields_of(Finding).keys()):
        raise ValueError(f"there is no key {unknown[0]!r}")
    if finding.copies and finding.edit is None:
        raise ValueError("copies needs edit")
    for target in () if finding.edit is None else (finding.edit, *(finding.copies or ())):
        _check_labels(finding.given, finding.proposed, target)
    return replace(finding, line=number)


def _check_labels(given: Any, proposed: Any, target: Target) -> None:
    """ValueError if what is proposed cannot stand in the file in place of what is given."""
    if target.format == SPANS:
        _check_spans(given, "given")
        if proposed is not None:
            _check_spans(proposed, "proposed")
        return
    for each in proposed if isinstance(proposed, list) else () if proposed is None else (proposed,):
        _check_label(each, may_be_blank=bool(target.several) and not isinstance(proposed, list))
    if target.word is not None:
        if not isinstance(given, list):
            raise ValueError("edit.word is set, but given is no list of tags")
        tags = (
            isinstance(proposed, list)
            and len(proposed) == len(given)
            and all(isinstance(tag, str) and tag.split() == [tag] for tag in proposed)
        )
        if proposed is not None and not tags:
            raise ValueError("proposed needs a tag, without spaces, for each that is given")
    elif proposed is not None and not _fits(proposed, given, target.format):
        raise ValueError(f"proposed is not of the kind of given, {json.dumps(given, ensure_ascii=False)}")
    elif target.format in ("tsv", "joined") and set("\t\n\r") & set(str(proposed)):
        raise ValueError("proposed holds a tab or a line break, which this file cannot")
    if target.format == "joined" and any(JOINT in str(tag) for tag in proposed or ()):
        raise ValueError("proposed holds U+0002, which stands between tags in this file")


def _check_spans(spans: Any, name: str) -> None:
    """ValueError if these are no spans; whether a text has them is told where it is read."""
    if not isinstance(spans, list) or not all(isinstance(span, dict) for span in spans):
        raise ValueError(f"{name} is no list of spans")
    for span in spans:
        if not {"start", "end", "label"} <= span.keys() or not isinstance(span["label"], str):
            raise ValueError(f"a span of {name} needs start, end and label")
        _check_label(span["label"], may_be_blank=False)


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
        hint = 'tick findings on the page of the audit, or set "apply": true in their lines; '
        hint += "@[first=N] takes the surest"
        raise UserError(f"none of {len(findings):,} findings is ticked", str(file), hint)
    edits: dict[str, dict[int, list[Edit]]] = defaultdict(lambda: defaultdict(list))
    kinds = {}
    for finding in chosen:
        first_target, after = _change(finding, file, drop)
        for target in (first_target, *(finding.copies or ())):
            of_spans = target.format == SPANS
            edit = (SpanEdit if of_spans else Edit)(target.column, finding.given, after, target.word)
            earlier = edits[target.file][target.row]
            same = [each for each in earlier if (each.column, each.word) == (edit.column, edit.word)]
            if any(each.after != edit.after for each in same):
                hint = "remove one of them, or its tick"
                raise UserError("another finding above changes this label differently", f"{file}:{finding.line}", hint)
            if not same:
                earlier.append(edit)
            kinds[target.file] = target.sha256, target.format, target.header
    copies = _copies(edits, output)
    refuse_below_file(output, "@[output]")
    targets = [each for finding in findings for each in (finding.edit, *(finding.copies or ())) if each is not None]
    audited = {each.file for each in targets}  # also those of which nothing is ticked
    note_inputs([file, *audited], "the findings")
    refuse_files(list(copies.values()), overwrite)
    contents = {name: corrected(Path(name), *kinds[name], rows) for name, rows in edits.items()}
    # All are written to temporary files before the first is renamed.
    with writing(output, "name another folder: @[output]"), contextlib.ExitStack() as staged:
        for name, content in contents.items():
            staged.enter_context(staged_file(copies[name])).write(content)
    every = [changes for rows in edits.values() for changes in rows.values()]
    dropped = sum(any(edit.after is None for edit in changes) for changes in every)
    changed = sum(len(changes) for changes in every if all(edit.after is not None for edit in changes))
    return Applied(copies, changed, dropped, list(top.values()).count(False))


def _change(finding: Finding, file: Path, drop: bool) -> tuple[Target, Any]:
    """Where its label is, and what it becomes; None: the row is left out. UserError: neither can be said."""
    where = f"{file}:{finding.line}"
    if finding.edit is None:
        hint = f"it is corrected where it comes from: {ELSEWHERE}"
        raise UserError("this label is in no file that could be changed", where, hint)
    leaves_out = drop or finding.kind == OUTLIER
    if finding.proposed is None and not leaves_out:
        hint = 'write the right label as "proposed", or use @[drop=true] to leave the row out'
        raise UserError("this finding proposes no label", where, hint)
    return finding.edit, None if leaves_out else finding.proposed


def _copies(names: Sequence[str] | Any, output: Path) -> dict[str, Path]:
    """File to its copy. UserError if two would have one name."""
    copies = {name: output / Path(name).name for name in names}
    twice = [copy for copy, count in Counter(copies.values()).items() if count > 1]
    if twice:
        hint = "apply the findings of one folder at a time"
        raise UserError(f"two files are called {twice[0].name}", where=str(output), hint=hint)
    return copies
