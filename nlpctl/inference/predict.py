"""`nlpctl predict`: rows in, one JSON line per row out, in the same order and in constant memory."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from io import TextIOWrapper
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from nlpctl import console, outputs
from nlpctl.config.schema import Recipe, RetrievalSection
from nlpctl.data.passthrough_columns import (
    BAD_ROW,
    KEEP_NONE,
    KeptRows,
    PassthroughColumns,
    json_line,
    keep_by_default,
    parse_keep,
    with_kept,
    without_bad_row,
)
from nlpctl.data.predict_input import PredictInput, open_inputs
from nlpctl.data.readers.packed import packing
from nlpctl.data.readers.row import BadRow, BlankLine, is_bad
from nlpctl.data.rows.task_rows import TaskRows, task_rows
from nlpctl.documents import DamagedDocument, Document, whole_content
from nlpctl.errors import UserError
from nlpctl.files import write_text_atomic, writing
from nlpctl.inference.open_model import find_model, open_trained_model, set_up_to_answer
from nlpctl.layout import TRUNCATED
from nlpctl.models.find import model_fingerprint
from nlpctl.models.folder import kept_values
from nlpctl.outputs import is_stream, open_stream, refuse_stream
from nlpctl.runtime.interrupt import sigterm_interrupts
from nlpctl.runtime.lock import Lock, take_lock

if TYPE_CHECKING:
    from nlpctl.engines.trained import TrainedModel
    from nlpctl.tasks.base import Predictions, Task

CHUNK_BATCHES = 32  # rows sorted by length within a chunk; also the unit of resuming


@dataclass(frozen=True)
class PredictResult:
    """How many rows were answered, how many were bad (skipped), of how many the network did not read all, and how long
    it took in seconds."""

    rows: int
    bad_rows: int
    truncated: int
    seconds: float
    output: Path | None


def input_of(recipe: Recipe, names: Sequence[str], format: str) -> PredictInput:
    """The opened input: what `names` stand for, read for the task of the recipe."""
    return open_inputs(task_rows(recipe.task, recipe.data), names, format)


def predict(
    recipe: Recipe,
    source: PredictInput,
    output: Path | None,
    *,
    keep: str | None = None,
    batch_size: int = 64,
    flush: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    truncated: bool = False,
    stdout: TextIO | None = None,
) -> PredictResult:
    """Answer every row of `source`; write to `output`, or to `stdout` (default: sys.stdout) when it is None.

    `keep`: the keys of a row that its answer repeats, id,date or all or none; by default all of those of an object, and
    none of a table's. UserError if there is no such key.

    `flush`: answer and write every batch as soon as its rows are read, before reading more. Otherwise many batches
    are read ahead, rows are batched by length, and reading overlaps with computing.

    `truncated`: every answer says whether its text was truncated.

    A file is written as OUTPUT.partial and renamed when complete. After an interruption, `resume` keeps the existing
    answers and continues; without it the prediction starts over. A bad row stops the command (data.on_bad_row: error)
    or its answer is {"error": ...} (skip). A blank line of plain text is answered with null. A device or a pipe
    receives the answers as they come.
    """
    kept = None if keep is None else parse_keep(keep)
    model_source = find_model(recipe)
    if output is not None:
        refuse_output(output, overwrite)
        if resume:
            refuse_stream(output, "an interrupted prediction cannot be resumed in it", "leave out @[resume=true]")
    # Check all rows first, so that a bad last line does not fail after an hour. A pipe cannot be read twice.
    total = source.check(kept or KEEP_NONE) if source.rereadable else None
    peeked = None
    # A person who types the rows is to see first what will answer, so these are not read ahead.
    if not source.rereadable and (source.paths or not sys.stdin.isatty()):
        peeked = PeekedRows(source.kept_rows(kept), batch_size)
    count = total if peeked is None else peeked.count
    if output is None or is_stream(output):
        model = open_trained_model(recipe, set_up_to_answer(recipe, model_source), model_source, batch_size, count)
        run = PredictionRun(recipe, model, source, kept, batch_size, flush, truncated, peeked)
        return run.write_through(output, total, stdout)
    partial = PartialOutput(output)
    # `identity`: everything that the answers depend on. It is stored with them, and `resume` requires the same. Checked
    # twice, since the engine is known only once the model is open, and all else can be refused before Paddle is
    # imported.
    identity = {**answers_identity(recipe, model_source, source, kept, batch_size, truncated), "flush": flush}
    if source.rereadable or resume:
        identity |= source.identity()  # refuses to resume from a pipe
    partial.check(identity, resume)
    setup = set_up_to_answer(recipe, model_source)
    model = open_trained_model(recipe, setup, model_source, batch_size, count)  # before anything is written
    run = PredictionRun(recipe, model, source, kept, batch_size, flush, truncated, peeked)
    identity |= {"engine": [model.predictor.engine, model.predictor.precision]}  # auto may have taken another one
    partial.check(identity, resume)
    done, bad, truncated_rows = partial.begin(identity, resume, run.chunk, overwrite)
    if done:
        console.note(f"resuming after {done:,} answered rows")
    room = "free disk space, then continue with @[resume=true]" if source.rereadable else "free disk space"
    with writing(partial.file, room), partial.file.open("a", encoding="utf-8") as stream:
        result = run.write(stream, done, total, partial.note_truncated)
        stream.flush()
        os.fsync(stream.fileno())
    partial.finish()
    rows, bad, truncated_rows = done + result.rows, bad + result.bad_rows, truncated_rows + result.truncated
    return PredictResult(rows, bad, truncated_rows, result.seconds, output)


def refuse_output(output: Path, overwrite: bool) -> None:
    """UserError if answers cannot be written packed, or `outputs.refuse_output` refuses the file."""
    if (packed := packing(str(output))) is not None and not is_stream(output):
        hint = f"name it {output.stem}, or leave out @[output]: nlpctl predict ... | {packed} > {output.name}"
        raise UserError("answers are not written packed", where=str(output), hint=hint)
    outputs.refuse_output(output, overwrite)
    outputs.refuse_inputs(*PartialOutput(output).files)


def check_bad_row(row: BadRow, policy: str) -> None:
    """UserError for a bad row if data.on_bad_row is "error"."""
    if policy == "error" and is_bad(row):
        raise _bad_row_error(row)


def _bad_row_error(row: BadRow) -> UserError:
    return UserError(row.reason, row.where, "fix the row, or skip bad rows: @[data.on_bad_row=skip]")


_FIRST = ("pooling", "embedding_size", "scale", "margin")  # keys of retrieval in the notes of older versions


def answer_settings(recipe: Recipe) -> dict[str, Any]:
    """The settings that determine how a given model reads and answers a row."""
    least = recipe.inference.min_confidence
    # Notes of older versions do not have the one, and have the other.
    own = {} if least is None else {"min_confidence": least}
    kept, plain = kept_values(recipe), vars(RetrievalSection())
    data = {**kept["data"], "tokenizer": "auto"}
    retrieval = {name: value for name, value in kept["retrieval"].items() if name in _FIRST or value != plain[name]}
    return {**kept, "data": data, "retrieval": retrieval, "on_bad_row": recipe.data.on_bad_row, **own}


class PeekedRows:
    """The rows of an input that can be read only once. `count` reads the first batch ahead; iteration gives all."""

    def __init__(self, rows: Iterator[tuple[Any, dict[str, Any]]], batch_size: int):
        self._rows, self._batch_size = rows, batch_size
        self._first: list[tuple[Any, dict[str, Any]]] = []

    def count(self, most: int) -> int:
        """How many rows there are, or `most` if there are more. Beyond the first batch nobody knows."""
        wanted = min(most, self._batch_size) - len(self._first)
        with sigterm_interrupts():
            self._first += islice(self._rows, max(0, wanted))
        return min(most, len(self._first))

    def __iter__(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        return chain(self._first, self._rows)


def answers_identity(
    recipe: Recipe,
    model: str,
    source: PredictInput,
    keep: PassthroughColumns | None,
    batch_size: int,
    truncated: bool = False,
) -> dict[str, Any]:
    """What the answers depend on besides the input, the engine, and how they are cut into chunks."""
    names = (keep_by_default(source.format) if keep is None else keep).names
    kept = {"keep": None if names is None else list(names)}
    settings = answer_settings(recipe) | ({TRUNCATED: True} if truncated else {})
    return {**model_fingerprint(model), "batch_size": batch_size, **kept, "settings": settings}


class RowsToAnswer(Protocol):
    """An input, or a part of it."""

    @property
    def task_rows(self) -> TaskRows:
        """What reads its rows."""
        ...

    def kept_rows(self, keep: PassthroughColumns | None, skip: int = 0) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Examples and bad rows but the first `skip`, each with what its answer repeats."""
        ...


@dataclass(frozen=True)
class AnsweredChunk:
    """The rows of a chunk, answered: `lines` of JSON. `truncated`: how many the network did not read whole. `error`: a
    bad row ends the command after them."""

    lines: str
    rows: int
    bad: int
    truncated: int
    error: UserError | None


@dataclass(frozen=True)
class PredictionRun:
    """Answers every row of `source` by `model`, in batches. `keep` None: as the formats have it."""

    recipe: Recipe
    model: TrainedModel
    source: RowsToAnswer
    keep: PassthroughColumns | None
    batch_size: int
    flush: bool
    truncated: bool = False  # whether answers say it
    peeked: PeekedRows | None = None  # the rows of `source`, where some were read already

    @property
    def chunk(self) -> int:
        """Number of rows answered and written together."""
        return self.batch_size * (1 if self.flush else CHUNK_BATCHES)

    def write(
        self, stream: TextIO, skip: int, total: int | None, note: Callable[[int, int], None] | None = None
    ) -> PredictResult:
        """Answer all rows but the first `skip`; `total` counts these too; None if unknown.

        `note(end, truncated)`: called before the lines up to row `end` are written, if any of them are truncated.
        """
        started, count, bad, truncated = time.monotonic(), 0, 0, 0
        left = None if total is None else total - skip
        answered = self.answered_chunks(skip)
        with sigterm_interrupts(), console.progress(left, "predict") as bar, closing(answered):
            for chunk in answered:
                if chunk.truncated and note is not None:
                    note(skip + count + chunk.rows, chunk.truncated)
                truncated += chunk.truncated
                with console.standard_output() if stream is sys.stdout else nullcontext():
                    stream.write(console.for_stdout(chunk.lines) if stream is sys.stdout else chunk.lines)
                    stream.flush()
                count += chunk.rows
                bad += chunk.bad
                if chunk.error is not None:
                    raise chunk.error
                bar.advance(chunk.rows)
        return PredictResult(count, bad, truncated, time.monotonic() - started, None)

    def write_through(self, output: Path | None, total: int | None, stdout: TextIO | None) -> PredictResult:
        """Write the answers to all rows to a device or a pipe; None is `stdout`."""
        if output is None:
            return self.write(stdout or sys.stdout, 0, total)
        hint = "name another file: @[output=FILE]"
        with writing(output, hint), TextIOWrapper(open_stream(output), "utf-8") as stream:
            return replace(self.write(stream, 0, total), output=output)

    def answered_chunks(self, skip: int) -> Generator[AnsweredChunk, None, None]:
        """The answers to all rows but the first `skip`, chunk by chunk."""
        from nlpctl.engines.pipeline import chunks_to_answer, prediction_pipeline

        pipeline = prediction_pipeline(self.model.task, self.model.encoder, self.model.predictor)
        self.source.task_rows.encoder = self.model.encoder
        rows = self.source.kept_rows(self.keep, skip) if self.peeked is None else iter(self.peeked)
        read = map(KeptRows, chunks_to_answer(rows, self.chunk))
        if not self.flush:
            yield from pipeline.stream(read, self.batch_size, self._answer_chunk)
            return
        for chunk in read:
            yield self._answer_chunk(chunk, pipeline.predictions(chunk, self.batch_size))

    def _answer_chunk(self, rows: KeptRows, predictions: Predictions) -> AnsweredChunk:
        answers, bad = answers_with_kept(self.source.task_rows, self.model.task, rows, predictions, self.truncated)
        lines = "".join(f"{json_line(answer)}\n" for answer in answers)
        error = None if bad is None else _bad_row_error(bad)
        return AnsweredChunk(lines, len(rows), sum(map(is_bad, rows)), len(predictions.truncated), error)


def answers_with_kept(
    columns: TaskRows, task: Task, rows: KeptRows, predictions: Predictions, truncated: bool
) -> tuple[list[dict[str, Any]], BadRow | None]:
    """`row_answers`, each with the kept part of its row; and None.

    Where a bad row is an error (data.on_bad_row): the answers to the rows before the first bad one, and this row.
    """
    answers = row_answers(columns, task, rows, predictions, truncated)
    whole = [with_kept(answer, kept) for answer, kept in zip(answers, rows.kept, strict=True)]
    bad = next((place for place, row in enumerate(rows) if is_bad(row)), None)
    if bad is None or columns.data.on_bad_row == "skip":
        return whole, None
    return whole[:bad], rows[bad]


def bad_row_answer(row: BadRow) -> dict[str, Any]:
    """The answer to a bad row."""
    return {BAD_ROW: f"{row.where}: {row.reason}"}


def row_answers(
    columns: TaskRows, task: Task, rows: Sequence[Any], predictions: Predictions, truncated: bool = False
) -> list[dict[str, Any]]:
    """The answer to each of `rows` (examples, bad rows, blank lines), in order; `predictions` belong to the examples.

    That to a blank line is null. What is less sure than inference.min_confidence is withheld. `truncated`: each answer
    says whether its text was truncated. `columns`: gives the columns of the input that an answer repeats.
    """
    examples, least = [row for row in rows if not isinstance(row, BadRow)], task.recipe.inference.min_confidence
    answers = task.answers(examples, predictions)
    if least is not None:
        answers = [task.abstain(answer, least) for answer in answers]
    if truncated:
        answers = [answer | {TRUNCATED: place in predictions.truncated} for place, answer in enumerate(answers)]
    remaining, not_truncated = iter(answers), {TRUNCATED: False} if truncated else {}

    def answer(row: Any) -> dict[str, Any]:
        if isinstance(row, BlankLine):
            assert columns.plain_column is not None, "only plain text has blank lines"
            return without_bad_row({columns.plain_column: ""}) | dict.fromkeys(task.answer_keys) | not_truncated
        if isinstance(row, BadRow):
            return bad_row_answer(row)
        return without_bad_row(columns.input_columns(row)) | next(remaining)

    return [answer(row) for row in rows]


def shards_of(output: Path) -> Path:
    """The folder of a divided prediction to `output` while it is made (inference/shard_folder.py)."""
    return output.with_name(output.name + ".shards")


def _is_bad_row_answer(line: bytes) -> bool:
    """Whether an answered line is that of a bad row."""
    try:
        return BAD_ROW in json.loads(line)
    except (ValueError, TypeError):  # the last line was cut off when the process was killed
        return False


@dataclass(frozen=True)
class PartialNote(Document):
    """OUTPUT.partial.json: what the answers in OUTPUT.partial depend on (input, model, settings, engine).

    It is written before the first answer, and compared by --resume.
    """

    identity: Mapping[str, Any] = whole_content()


class PartialOutput:
    """OUTPUT.partial holds the answers so far, OUTPUT.partial.json their `identity` (input, model, settings), and
    OUTPUT.partial.truncated how many rows were truncated: a line per chunk that has such, "its last row, their
    number"."""

    def __init__(self, output: Path):
        self.output = output
        self.file = output.with_name(output.name + ".partial")
        self.note = output.with_name(output.name + ".partial.json")
        self.truncated_file = output.with_name(output.name + ".partial.truncated")
        self.files = self.file, self.note, self.truncated_file
        self._lock: Lock | None = None  # held from `begin` to `finish`, or to the end of the process

    def check(self, identity: dict[str, Any], resume: bool) -> None:
        """UserError if existing answers are to be kept and belong to another `identity`, which may be incomplete."""
        if resume and shards_of(self.output).exists():
            raise UserError("the interrupted prediction was divided", str(self.output), "give its @[workers] again")
        if not self._goes_on(resume):
            return
        try:
            note = PartialNote.load(self.note).identity
            others = [name for name in identity if name not in note or note[name] != identity[name]]
        except DamagedDocument:
            note, others = {}, list(identity)
        if others == ["engine"]:
            began, now = (" ".join(map(str, each["engine"])) for each in (note, identity))
            raise UserError(
                f"the interrupted prediction was computed by {began}, and would resume in {now}",
                where=str(self.file),
                hint=f"use the original engine, @[engine={note['engine'][0]}] @[precision={note['engine'][1]}]; or "
                "leave out @[resume=true] to start over",
            )
        if others:
            raise UserError(
                "the interrupted prediction was made from another input or model, or with other settings",
                where=str(self.file),
                hint="leave out @[resume=true] to start over",
            )

    def begin(
        self, identity: dict[str, Any], resume: bool, chunk: int, overwrite: bool = False
    ) -> tuple[int, int, int]:
        """Prepare the partial file; returns the number of rows already answered in it, and of bad and truncated rows
        among them.

        `identity` describes input, settings and model, as for `check`. UserError if the file cannot be written, or
        another prediction has given the output its name meanwhile, which is not to `overwrite`.

        Only whole chunks are kept. So the batches, and the last bits of the probabilities, are those of an
        uninterrupted run.
        """
        with writing(self.output, "name another file: @[output=FILE]"):
            self.output.parent.mkdir(parents=True, exist_ok=True)
            self._take()
            goes_on = self._goes_on(resume)
            try:
                outputs.refuse_output(self.output, overwrite)
            except UserError:
                if not goes_on:
                    self.file.unlink()
                self.let_go()
                raise
            if not goes_on:
                self.file.write_bytes(b"")  # first: older answers must never exist together with the new note
                self.truncated_file.unlink(missing_ok=True)
                PartialNote(identity).save(self.note)
                return 0, 0, 0
        kept_rows, kept_bad, kept_bytes, bad, size = 0, 0, 0, 0, 0
        with self.file.open("r+b") as stream:
            for count, line in enumerate(stream, start=1):
                size += len(line)
                bad += _is_bad_row_answer(line)
                # A killed process may have left half a line, or a chunk that was written in part.
                if count % chunk == 0 and line.endswith(b"\n"):
                    kept_rows, kept_bad, kept_bytes = count, bad, size
            stream.truncate(kept_bytes)
        return kept_rows, kept_bad, self._keep_truncated(kept_rows)

    def note_truncated(self, end: int, count: int) -> None:
        """Note that `count` rows of the chunk up to row `end` are truncated, before their answers are written."""
        with self.truncated_file.open("a", encoding="ascii") as stream:
            stream.write(f"{end} {count}\n")

    def _keep_truncated(self, rows: int) -> int:
        """How many of the first `rows` rows were truncated; what is noted of others is dropped."""
        try:
            lines = self.truncated_file.read_text(encoding="ascii").splitlines()
        except FileNotFoundError:
            return 0
        noted = [tuple(map(int, line.split())) for line in lines]
        kept = [(end, count) for end, count in noted if end <= rows]
        write_text_atomic(self.truncated_file, "".join(f"{end} {count}\n" for end, count in kept))
        return sum(count for _, count in kept)

    def _take(self) -> None:
        """Lock the partial file, before anything is read or truncated. UserError if another prediction holds it."""
        while True:
            self.file.touch()  # only an existing file can be locked
            with contextlib.suppress(FileNotFoundError):  # the one that held it has given the file its name meanwhile
                self._lock = take_lock(self.file)
                if self._lock is None:
                    hint = "wait for it, or name another file: @[output=FILE]"
                    raise UserError("another prediction is writing this file", where=str(self.file), hint=hint)
                if self._lock.is_of(self.file):
                    return
            self.let_go()

    def _goes_on(self, resume: bool) -> bool:
        return resume and self.file.exists() and self.note.exists()

    def finish(self) -> None:
        """Give the complete file its name."""
        os.replace(self.file, self.output)
        self.note.unlink(missing_ok=True)
        self.truncated_file.unlink(missing_ok=True)
        self.let_go()

    def let_go(self) -> None:
        """Allow another prediction to write the file."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None
