"""From examples to predictions: features, batches of similar length, an engine, and back in order.

    rows --> chunks --> features, tokens, padded batches  |  the engine  |  predictions --> what is written
             in its own thread                             | this thread  |  in its own thread

Each stage is at most one chunk ahead of the next, so memory is constant. Small batches stay in one thread. An engine
with streams computes several batches at a time, in threads of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from nlpctl.data.batches.collate import Batch, Collator, failures_as_errors
from nlpctl.data.readers.row import BadRow
from nlpctl.data.text.encoder import TextEncoder
from nlpctl.engines.engine import Predictor, batch_context, streams_of
from nlpctl.errors import RunFailed
from nlpctl.runtime.process_state import gc_frozen, short_turns
from nlpctl.runtime.threads import ONE_STREAM, Ahead, Streams
from nlpctl.tasks.base import Predictions, Task

T = TypeVar("T")
Rows = TypeVar("Rows", bound=list[Any])

PREFETCH_BATCHES = 32  # prepared ahead of the engine, by a thread of their own
LONGEST_CHUNK = 1 << 24  # bytes of the texts that are answered and written together
CHUNK = 16_384  # examples of a labelled split sorted by length together
# A batch of at most so many rows stays in one thread: handing it over costs half a millisecond.
INLINE_MAX_ROWS = 8
INLINE_GROUP = 64  # such batches are prepared, computed and read so many at a time
# Batches that an engine computes one after the other before it opens its streams: loading takes as long as two or three
# of them, which 10 (int8) to 40 (fp32) further ones earn.
BATCHES_BEFORE_STREAMS = 32
MAX_UNREAD_BATCHES = 8  # computed, and their predictions not read yet

FeatureIndex = tuple[int, int]  # (an example of a chunk, one of its features)
Run = Callable[[Batch], tuple[np.ndarray, ...]]
OnBatch = Callable[[Sequence[FeatureIndex], Batch, tuple[np.ndarray, ...]], None]


def chunks(rows: Iterable[T], size: int) -> Iterator[list[T]]:
    """Cut a stream into lists of `size`; the last may be shorter. Only one list is in memory."""
    stream = iter(rows)
    while chunk := list(islice(stream, size)):
        yield chunk


def chunks_to_answer(rows: Iterable[T], size: int) -> Iterator[list[T]]:
    """As `chunks`, of rows that are read from somewhere: one ends also where its texts have LONGEST_CHUNK bytes, as
    each row of a packed file of a few hundred bytes may have.

    Every multiple of `size` is an end as well, so that what workers answer, or a later command, has the same chunks.
    Rows are examples, or pairs of an example and something else.
    """
    chunk, length = list[T](), 0
    for number, row in enumerate(rows, 1):
        chunk.append(row)
        example = row[0] if isinstance(row, tuple) else row
        length += getattr(example, "byte_length", 0)
        if number % size == 0 or length >= LONGEST_CHUNK:
            yield chunk
            chunk, length = [], 0
    if chunk:
        yield chunk


def chunk_of(batch_size: int) -> int:
    """How many examples of a labelled split are sorted by length together."""
    return max(CHUNK, batch_size)


def by_length(lengths: Sequence[Sequence[int]]) -> list[FeatureIndex]:
    """The features of a chunk, the shortest first; `lengths`: in tokens, of the features of each example."""
    places = [(owner, part) for owner, each in enumerate(lengths) for part in range(len(each))]
    return sorted(places, key=lambda place: lengths[place[0]][place[1]])


def tokens_of_batches(lengths: Sequence[int], batch_size: int) -> list[int]:
    """The tokens of each batch with its padding, by which goes what it takes; `lengths`: of the features, in order."""
    batches = (lengths[start : start + batch_size] for start in range(0, len(lengths), batch_size))
    return [len(batch) * max(1, *batch) for batch in batches]


def begun(places: Sequence[FeatureIndex]) -> int:
    """How many examples have their first feature here: over all batches as many as there are examples."""
    return sum(part == 0 for _, part in places)


@dataclass(frozen=True)
class Pipeline:
    """A task with a network that answers: from examples to predictions, in order.

    `collate` may keep labels; then `run` gets them too. Another thread reads the arrays that `run` returns, so `run`
    must not reuse them. `context`: open while many batches are computed. `streams`: of the engine, for `stream`:
    if there are several, `run` is called in several threads at once. `done`: hears after each batch how many examples
    it has begun, and its `worth`, as of `console.Progress`, in the thread that reads its outputs.
    """

    task: Task
    encoder: TextEncoder
    collate: Collator
    run: Run
    context: AbstractContextManager[Any] = nullcontext()
    streams: Streams = ONE_STREAM
    done: Callable[..., object] | None = None

    def predictions(self, examples: Sequence[Any], batch_size: int, watch: OnBatch | None = None) -> Predictions:
        """Per example the predictions of its features, batched by length, computed in this thread.

        `watch`: called with every batch: (example, its feature) of each of its rows, the batch, and its outputs.
        """
        chunk = _Chunk(examples)
        with self.context if len(examples) > batch_size else nullcontext():
            for step in self._prepared(chunk, batch_size):
                outputs = self.run(step.batch)
                if watch is not None:
                    watch(step.places, step.batch, outputs)
                self._read_predictions(step, outputs)
        return chunk.predictions

    def lengths(self, examples: Sequence[Any]) -> list[list[int]]:
        """How many tokens each feature of each example has."""
        with failures_as_errors():
            parts = [self.task.features(example, self.encoder) for example in examples]
            features = [feature for each in parts for feature in each]
            encodings = iter(self.collate.encodings(features) if features else ())
        return [[len(next(encodings).input_ids) for _ in each] for each in parts]

    def batches(self, examples: Sequence[Any], batch_size: int) -> Iterator[Batch]:
        """The batches that `predictions` would run."""
        return (step.batch for step in self._prepared(_Chunk(examples), batch_size))

    def stream(
        self,
        chunks: Iterable[Rows],
        batch_size: int,
        finish: Callable[[Rows, Predictions], T],
        chosen: Sequence[FeatureIndex] | None = None,
    ) -> Generator[T, None, None]:
        """The results of `finish(chunk, predictions of its good rows)`, in order.

        `chosen`: the features of the only chunk that are tokenised and computed, batch after batch; the predictions of
        the others are None.

        A chunk is a list of examples and bad rows; batches are formed within it, as in `predictions`. Reading,
        tokenising and `finish` run in threads next to the engine, unless the batches are small. If one fails, earlier
        chunks are yielded first.
        """
        if batch_size <= INLINE_MAX_ROWS:
            with gc_frozen(), self.context:
                for rows in chunks:
                    yield finish(rows, self._predictions_inline(_Chunk(rows), batch_size, chosen))
            return
        with ExitStack() as stack:
            # The first two keep the threads that feed the engine from waiting for garbage collection and the GIL.
            for context in (gc_frozen(), short_turns, self.context):
                stack.enter_context(context)
            steps = stack.enter_context(Ahead(self._steps(chunks, batch_size, chosen), PREFETCH_BATCHES))
            reader = stack.enter_context(_Jobs(1))
            # The engine computes in this thread at first. Once it has streams, it computes in theirs, and may have been
            # given `in_flight` batches whose outputs nobody has taken yet.
            engine, in_flight = _Jobs(0), 0
            batches = 0
            input_error: Exception | None = None

            def pass_on(left: int) -> None:
                """Hand what the engine has computed to the reader, in order, until `left` batches remain."""
                for step, outputs in engine.results(left):
                    if isinstance(step, _Step):
                        reader.add(self._read_predictions, step, outputs)
                    else:
                        reader.add(finish, step.rows, step.predictions, wanted=True)

            try:
                while True:
                    # Where the input pauses, finished answers are not held back: first the engine's, batch by batch,
                    # as long as nothing new arrives; then the reader's.
                    while not steps.ready and engine.count:
                        pass_on(engine.count - 1)
                    if not steps.ready:
                        yield from reader.results(0)
                    try:
                        step = next(steps)
                    except StopIteration:
                        break
                    except Exception as error:  # raised below, behind what the engine still has
                        input_error = error
                        break
                    batches += isinstance(step, _Step)
                    if batches > BATCHES_BEFORE_STREAMS and not in_flight and self.streams.count > 1:
                        yield from reader.results(0)
                        stack.enter_context(self.streams.open)
                        engine = stack.enter_context(_Jobs(self.streams.count, self.streams.enter))
                        in_flight = 2 * self.streams.count
                    engine.add(self._run_step, step, wanted=True)
                    pass_on(in_flight)
                    yield from reader.results(MAX_UNREAD_BATCHES)
                pass_on(0)
                if input_error is not None:
                    raise input_error
            except Exception:
                # Finished chunks come before the failure, so that an interrupted prediction keeps them.
                yield from reader.results(0)
                raise
            finally:
                input_error = None  # its traceback holds this frame
            yield from reader.results(0)

    def _run_step(self, step: _Step | _Chunk) -> tuple[_Step | _Chunk, Any]:
        """A step and the engine's outputs for its batch."""
        return step, self.run(step.batch) if isinstance(step, _Step) else None

    def _predictions_inline(
        self, chunk: _Chunk, batch_size: int, chosen: Sequence[FeatureIndex] | None
    ) -> Predictions:
        """The chunk's predictions, computed in this thread.

        Not batch after batch: an engine leaves nothing of Python in the processor's caches, and coming back for every
        row cost 0.1 ms, a tenth of a small network's time.
        """
        steps = self._prepared(chunk, batch_size, chosen)
        while turn := list(islice(steps, INLINE_GROUP)):
            computed = [self.run(step.batch) for step in turn]
            for step, outputs in zip(turn, computed, strict=True):
                self._read_predictions(step, outputs)
        return chunk.predictions

    def _steps(
        self, chunks: Iterable[Sequence[Any]], batch_size: int, chosen: Sequence[FeatureIndex] | None
    ) -> Generator[_Step | _Chunk, None, None]:
        """The batches of each chunk, then the chunk."""
        for rows in chunks:
            chunk = _Chunk(rows)
            yield from self._prepared(chunk, batch_size, chosen)
            yield chunk

    def _prepared(
        self, chunk: _Chunk, batch_size: int, chosen: Sequence[FeatureIndex] | None = None
    ) -> Iterator[_Step]:
        """Batches of a chunk's features, the longest first; `chosen`: as of `stream`."""
        with failures_as_errors():
            examples = [row for row in chunk.rows if not isinstance(row, BadRow)]
            parts = [self.task.features(example, self.encoder) for example in examples]
            chunk.predictions = Predictions([None] * len(each) for each in parts)
            places = [(owner, part) for owner, each in enumerate(parts) for part in range(len(each))]
            places = places if chosen is None else list(chosen)
            if not places:
                return
            features = [parts[owner][part] for owner, part in places]
            encodings = self.collate.encodings(features)
        order = list(range(len(places)))
        if chosen is None:
            # By length in tokens and not by byte_length, since the encodings are known here.
            order.sort(key=[len(each.input_ids) for each in encodings].__getitem__)
        tokens = tokens_of_batches([len(encodings[i].input_ids) for i in order], batch_size)
        of_token = begun(places) / sum(tokens)
        # The longest batches come first. In the other order each asks for larger blocks than those before have freed,
        # and the C library's heap grows with every batch: to five times as much memory (docs/upstream.md).
        for start in reversed(range(0, len(order), batch_size)):
            batch_rows = order[start : start + batch_size]
            rows = [features[i] for i in batch_rows]
            encoded = [encodings[i] for i in batch_rows]
            with failures_as_errors():
                batch = self.collate.arrays(rows, encoded)
            # After `arrays`, in which a collator may tokenise further texts of a row.
            chunk.predictions.truncated.update(places[i][0] for i in batch_rows if encodings[i].truncated)
            worth = of_token * tokens[start // batch_size]
            yield _Step(chunk, [places[i] for i in batch_rows], rows, batch, worth)

    def _read_predictions(self, step: _Step, outputs: tuple[np.ndarray, ...]) -> None:
        """Read the predictions of a batch into its chunk. RunFailed: the network gives no numbers."""
        refuse_overflow(outputs)
        for (owner, part), prediction in zip(step.places, self.task.predictions(outputs, step.features), strict=True):
            step.chunk.predictions[owner][part] = prediction
        if self.done is not None:
            self.done(begun(step.places), worth=step.worth)


def refuse_overflow(outputs: Iterable[np.ndarray]) -> None:
    """RunFailed if what a network gave for a batch holds NaN or infinity, from which answers and scores would be made.
    Minus infinity may be the score of what cannot be."""
    for each in outputs:
        # The sum is cheap, and not finite where there is a NaN; nor where infinities are, so this is looked at.
        with np.errstate(over="ignore", invalid="ignore"):
            doubtful = each.dtype.kind == "f" and not np.isfinite(each.sum())
        if doubtful and not (each < np.inf).all():
            message = "the network answers NaN or infinity: numbers are too large for its precision, or its training "
            message += "has diverged"
            raise RunFailed(message, hint="try @[precision=fp32], or train with a smaller training.learning_rate")


@dataclass(eq=False)
class _Chunk:
    """Rows that are sorted by length together. `predictions`: of the good rows, as far as they are computed."""

    rows: Sequence[Any]
    predictions: Predictions = field(default_factory=Predictions)


@dataclass(frozen=True, eq=False)
class _Step:
    """A batch of a chunk. `places`: of its features, among the good rows. `worth`: as of `console.Progress`."""

    chunk: _Chunk
    places: list[FeatureIndex]
    features: list[Any]
    batch: Batch
    worth: float


class _Jobs:
    """Jobs whose results are taken in their order. They run in `threads` threads; if 0, in the calling one, at once."""

    def __init__(self, threads: int, enter: Callable[[], None] | None = None) -> None:
        """`enter`: called first in each thread."""
        self._jobs: deque[tuple[Future[Any], bool]] = deque()
        self._threads = ThreadPoolExecutor(threads, initializer=enter) if threads else None

    def __enter__(self) -> _Jobs:
        return self

    def __exit__(self, *error: Any) -> None:
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)

    @property
    def count(self) -> int:
        """How many jobs were added whose results were not taken."""
        return len(self._jobs)

    def add(self, job: Callable[..., Any], *arguments: Any, wanted: bool = False) -> None:
        """Add a job. `wanted`: its result is one of `results`."""
        if self._threads is not None:
            added = self._threads.submit(job, *arguments)
        else:
            added = Future()
            added.set_result(job(*arguments))
        self._jobs.append((added, wanted))

    def results(self, left: int) -> Iterator[Any]:
        """Wait until at most `left` jobs are left; returns the results of the others, up to the first failure."""
        while len(self._jobs) > left:
            job, wanted = self._jobs.popleft()
            try:
                result = job.result()
            except Exception:
                while self._jobs:
                    self._jobs.popleft()[0].cancel()
                raise
            if wanted:
                yield result


def prediction_pipeline(task: Task, encoder: TextEncoder, predictor: Predictor) -> Pipeline:
    """For examples without labels, as `nlpctl predict` answers them."""
    collate = task.collator(encoder, labelled=False)
    return Pipeline(task, encoder, collate, predictor.outputs, batch_context(predictor), streams_of(predictor))


def evaluation_pipeline(task: Task, encoder: TextEncoder, predictor: Predictor) -> Pipeline:
    """For labelled examples, as `nlpctl eval` scores them; masked if the task predicts masked words."""

    def run(batch: Batch) -> tuple[np.ndarray, ...]:
        return task.scored_outputs(predictor.outputs, task.apply_mask(batch, None) if task.masks_inputs else batch)

    collate = task.collator(encoder, labelled=True)
    return Pipeline(task, encoder, collate, run, batch_context(predictor), streams_of(predictor))
