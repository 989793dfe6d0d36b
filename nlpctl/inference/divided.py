"""`nlpctl predict --workers`: one prediction, divided among processes or the nodes of a Ray cluster.

The input is cut into ranges, which the workers count and check; then into shards, which they answer. The borders of
shards are those of the chunks in which one process reads, so batches and answers are the same, bit by bit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nlpctl import console
from nlpctl.config.input_formats import INPUT_FORMATS
from nlpctl.config.schema import Recipe
from nlpctl.data.passthrough_columns import KEEP_NONE, PassthroughColumns, parse_keep
from nlpctl.data.predict_input import InputFile, PredictInput, kept_columns
from nlpctl.data.predict_shards import Range, Scanned, Shard, countable, cut_input, cut_shards, with_lines
from nlpctl.data.readers.packed import packing
from nlpctl.data.rows.examples import BadRowLog
from nlpctl.errors import UserError
from nlpctl.inference.embed import require_vectors
from nlpctl.inference.open_model import find_model
from nlpctl.inference.predict import (
    CHUNK_BATCHES,
    PartialOutput,
    PredictResult,
    answers_identity,
    refuse_output,
)
from nlpctl.inference.shard_folder import PartNote, ShardFolder, ShardPlan, refuse_parts
from nlpctl.inference.shard_worker import ShardWorker, ShardWorkerConfig, open_pool
from nlpctl.names import counted
from nlpctl.outputs import refuse_inputs, refuse_stream
from nlpctl.runtime.interrupt import sigterm_interrupts
from nlpctl.runtime.lock import sole_writer
from nlpctl.runtime.worker_pool import WorkerPool, WorkerStats
from nlpctl.runtime.worker_slots import ParallelConfig

SHARD_ROWS = 16384  # at most, but at least a chunk: enough work to pay for two files and a pipeline
LARGE_PACKED = 4 << 20  # bytes; a smaller file is unpacked again for each of its shards, which costs less than a copy
LONG = 16  # ranges; the check of more gets a progress bar
FEWEST_SHARDS = 128  # of a shorter input, whose shards are smaller: no worker waits long for the last one


@dataclass(frozen=True)
class DividedResult(PredictResult):
    """As of `predict`; and what each worker did in this call."""

    shards: int
    workers: tuple[WorkerStats, ...]


@dataclass(frozen=True)
class _Cut:
    """The input, read by the workers."""

    ranges: Sequence[Range]
    scanned: Sequence[Scanned]

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.scanned)


def predict_divided(
    recipe: Recipe,
    source: PredictInput,
    output: Path,
    *,
    workers: int | None = None,
    cluster: str | None = None,
    keep: str | None = None,
    batch_size: int = 64,
    parts: str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    truncated: bool = False,
) -> DividedResult:
    """Answer every row of `source` in `workers` processes; write to the file `output`, or with `parts`, their
    format, to the folder.

    `cluster`: the address of a Ray cluster, whose nodes do it; by default as many workers as it has cores or cards.

    The file holds what `predict` would write, byte for byte. The answers of a shard are written at once or not at all;
    those of a killed worker are computed again. `resume` goes on after an interruption of this process, also with
    another number of workers. UserError, bad rows and `truncated`: as for `predict`.
    """
    kept = None if keep is None else parse_keep(keep)
    model = find_model(recipe)
    _refuse_unfit(source)
    if parts is not None:
        refuse_parts(output, overwrite)
    else:
        _refuse_file(output, overwrite)
    order = ShardWorkerConfig(recipe, model, source.files, kept, batch_size, output.absolute(), truncated=truncated)
    identity = {**answers_identity(recipe, model, source, kept, batch_size, truncated), "parts": parts}
    parallel = ParallelConfig(workers, cluster, resume)
    return _divided(order, source, identity, parallel, _Work(ShardWorker.answer, _finisher(parts)))


def embed_divided(
    recipe: Recipe,
    source: PredictInput,
    output: Path,
    *,
    workers: int | None = None,
    cluster: str | None = None,
    batch_size: int = 64,
    resume: bool = False,
    overwrite: bool = False,
) -> DividedResult:
    """Write what `write_embeddings` (embed.py) would write to the .npy file `output`, divided like answers."""
    require_vectors(recipe)
    find_model(recipe)
    _refuse_file(output, overwrite)
    parallel = ParallelConfig(workers, cluster, resume)
    return vectors_divided(recipe, source, output, batch_size, parallel, ShardFolder.finish_array)


def vectors_divided(
    recipe: Recipe,
    source: PredictInput,
    output: Path,
    batch_size: int,
    parallel: ParallelConfig,
    finish: Callable[[ShardFolder, int], None],
) -> DividedResult:
    """The vectors of all rows of `source`, of which `finish(folder of parts, their number)` makes `output`."""
    model = find_model(recipe)
    _refuse_unfit(source)
    order = ShardWorkerConfig(recipe, model, source.files, KEEP_NONE, batch_size, output.absolute())
    identity = {**answers_identity(recipe, model, source, KEEP_NONE, batch_size), "parts": "vectors"}
    work = _Work(ShardWorker.embed, lambda pool, folder, count, plan: finish(folder, count))
    return _divided(order, source, identity, parallel, work)


@dataclass(frozen=True)
class _Work:
    """What is done with a shard, and with all of them when they are done: (pool, folder, their number, plan)."""

    job: Callable[[ShardWorker, Shard, tuple[str, str]], PartNote]
    finish: Callable[[WorkerPool, ShardFolder, int, ShardPlan], None]


def _divided(
    order: ShardWorkerConfig,
    source: PredictInput,
    identity: dict[str, Any],
    parallel: ParallelConfig,
    work: _Work,
) -> DividedResult:
    folder, identity = ShardFolder(order.output), {**identity, **source.identity()}
    source = _with_copies(source, folder)
    order = dataclasses.replace(order, files=source.files)
    with sigterm_interrupts(), sole_writer(folder.folder), contextlib.ExitStack() as ended:
        folder.refuse_foreign()
        refuse_inputs(folder.folder)
        plan = _plan_to_resume(folder, identity, order.recipe) if parallel.resume else None
        begun = plan is not None
        with open_pool(order, parallel, folder.log) as pool:
            if plan is None:
                ended.enter_context(folder.begun())  # left when the workers, which write there too, have ended
                _unpack(pool, source)
                cut = _read_input(pool, source, order.keep)
                plan = _begun(pool, folder, identity, cut)
            else:
                _unpack(pool, source)
                cut = _cut_of(plan)
            return _answered(pool, folder, plan, cut, work, begun)


def _with_copies(source: PredictInput, folder: ShardFolder) -> PredictInput:
    """The input, with places for copies of packed files. Without one, each shard is reached from a file's beginning."""

    def large(file: InputFile) -> bool:
        return packing(file.where) is not None and not INPUT_FORMATS[file.format].whole and file.size >= LARGE_PACKED

    copied = (str(folder.copy(number)) if large(file) else None for number, file in enumerate(source.files))
    files = (dataclasses.replace(file, unpacked=copy) for file, copy in zip(source.files, copied, strict=True))
    return dataclasses.replace(source, files=tuple(files))


def _unpack(pool: WorkerPool, source: PredictInput) -> None:
    """Write the copies that are not there."""
    copies = ((number, file.unpacked) for number, file in enumerate(source.files))
    missing = [number for number, copy in copies if copy is not None and not Path(copy).exists()]
    if missing:
        console.note(f"unpacking {counted(len(missing), 'files')}")
    for _ in pool.results((ShardWorker.unpack, number) for number in missing):
        pass


def _refuse_unfit(source: PredictInput) -> None:
    if not source.rereadable:
        hint = "give files; a pipe is answered by one process"
        raise UserError("standard input cannot be divided", where="@[workers]", hint=hint)
    source.refuse_other_encodings()


def _refuse_file(output: Path, overwrite: bool) -> None:
    refuse_output(output, overwrite)
    refuse_stream(output, "a divided prediction cannot be written to it", "name a file: @[output=FILE]")


def _plan_to_resume(folder: ShardFolder, identity: dict[str, Any], recipe: Recipe) -> ShardPlan | None:
    """The plan of the interrupted prediction, None if there was none. UserError if it was another one."""
    plan = folder.plan()
    if plan is None:
        if PartialOutput(folder.output).file.exists():
            hint = "leave out @[workers]"
            raise UserError("the interrupted prediction was made by one process", str(folder.output), hint)
        return None
    over = "leave out @[resume=true] to start over"
    if {**plan.identity, **identity} != plan.identity:
        message = "the interrupted prediction was made from another input or model, or with other settings"
        raise UserError(message, where=str(folder.folder), hint=over)
    wanted = (recipe.inference.engine, recipe.inference.precision)
    if any(asked not in ("auto", began) for asked, began in zip(wanted, plan.engine, strict=True)):
        began = " ".join(plan.engine)
        hint = f"leave out @[engine] and @[precision], which continues in them; or {over}"
        raise UserError(f"the interrupted prediction was computed by {began}", where=str(folder.folder), hint=hint)
    return plan


def _read_input(pool: WorkerPool, source: PredictInput, keep: PassthroughColumns | None) -> _Cut:
    """The ranges of the input, read by the workers. UserError for what `PredictInput.check` would refuse."""
    ranges = cut_input(source)
    unknown = countable(ranges)
    counts = {unknown[i]: count for i, count, _ in pool.results((ShardWorker.count, part) for part in unknown)}
    ranges = with_lines(source, ranges, counts)
    scanned_by_range: dict[int, Scanned] = {}
    # The check of a short input is over before a bar could be read.
    progress = console.progress(len(ranges), "check", "parts") if len(ranges) > LONG else contextlib.nullcontext()
    with progress as bar:
        for number, scanned, _ in pool.results((ShardWorker.scan, part) for part in ranges):
            scanned_by_range[number] = scanned
            if bar is not None:
                bar.advance()
    cut = _Cut(ranges, [scanned_by_range[number] for number in range(len(ranges))])
    _refuse_rows(source, cut, keep)
    return cut


def _refuse_rows(source: PredictInput, cut: _Cut, keep: PassthroughColumns | None) -> None:
    """What one process that reads the ranges in order would stop at."""
    log = BadRowLog(source.task_rows.data.on_bad_row)
    for scanned in cut.scanned:
        for row in scanned.first_bad:
            log.add(row)
        if scanned.error is not None:
            raise scanned.error
    log.finish()
    if not cut.rows:
        raise source.no_rows()
    for file in source.files:
        kept_columns(file, keep)
    first = next((scanned for scanned in cut.scanned if scanned.good), None)
    if first is not None and first.unkept is not None:
        raise first.unkept


def _begun(pool: WorkerPool, folder: ShardFolder, identity: dict[str, Any], cut: _Cut) -> ShardPlan:
    """A plan, written to the folder, which is there. One worker chooses the engine for all."""
    ((_, (engine, precision, warnings), _),) = pool.results([(ShardWorker.engine, cut.rows // len(pool.stats))])
    for warning in warnings:
        console.warn(warning)
    chunk = identity["batch_size"] * CHUNK_BATCHES
    chunks = -(-cut.rows // chunk)
    plan = ShardPlan(
        identity=identity,
        engine=(engine, precision),
        shard_rows=chunk * max(1, min(SHARD_ROWS // chunk, chunks // FEWEST_SHARDS)),
        ranges=tuple((each.file, each.begin, each.end, each.line) for each in cut.ranges),
        scanned=tuple((each.rows, each.bad, each.marks) for each in cut.scanned),
    )
    folder.keep_plan(plan)
    return plan


def _cut_of(plan: ShardPlan) -> _Cut:
    scanned = [Scanned(rows, bad, (), marks, True, None, None) for rows, bad, marks in plan.scanned]
    return _Cut([Range(*each) for each in plan.ranges], scanned)


def _answered(
    pool: WorkerPool, folder: ShardFolder, plan: ShardPlan, cut: _Cut, work: _Work, begun: bool
) -> DividedResult:
    """`begun`: parts that are there already count. Without it they are of a worker elsewhere that outlived its run."""
    started = time.monotonic()
    shards = list(cut_shards(cut.ranges, cut.scanned, plan.shard_rows))
    kept = folder.kept(shards) if begun else {}
    if kept:
        console.note(f"resuming after {sum(each.rows for each in kept.values()):,} answered rows")
    left = [shard for shard in shards if shard.number not in kept]
    console.note(f"{counted(len(pool.stats), 'workers')}, {counted(len(left), 'shards')}: {' '.join(plan.engine)}")
    bad, truncated = (sum(getattr(each, name) for each in kept.values()) for name in ("bad_rows", "truncated"))
    jobs = ((work.job, shard, plan.engine) for shard in left)
    with console.progress(sum(shard.rows for shard in left), "predict") as bar:
        for job, sums, worker in pool.results(jobs):
            folder.note(left[job].number, sums)
            pool.stats[worker].rows += sums.rows
            bad += sums.bad_rows
            truncated += sums.truncated
            bar.advance(sums.rows)
    work.finish(pool, folder, len(shards), plan)
    seconds = time.monotonic() - started
    return DividedResult(cut.rows, bad, truncated, seconds, folder.output, len(shards), tuple(pool.stats))


def _finisher(parts: str | None) -> Callable[[WorkerPool, ShardFolder, int, ShardPlan], None]:
    """How the answers get the form that `parts` asks for."""
    if parts is None:
        return lambda pool, folder, count, plan: folder.finish_file(count)
    if parts == "parquet":
        return lambda pool, folder, count, plan: folder.finish_folder(_as_parquet(pool, count), plan)
    return lambda pool, folder, count, plan: folder.finish_folder(folder.checked_sums(count), plan)


def _as_parquet(pool: WorkerPool, count: int) -> list[PartNote]:
    """All parts as Parquet files of one schema."""
    from nlpctl.inference.parquet_parts import common_schema

    schemas = {
        number: schema for number, schema, _ in pool.results((ShardWorker.schema, number) for number in range(count))
    }
    schema = common_schema(schemas[number] for number in range(count))
    jobs = ((ShardWorker.to_parquet, number, schema) for number in range(count))
    written = {number: sums for number, sums, _ in pool.results(jobs)}
    return [written[number] for number in range(count)]
