"""A service: a trained model behind a queue, and what the handlers of requests share."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import nlpctl
from nlpctl import console
from nlpctl.config.schema import Recipe
from nlpctl.data.readers.row import BadRow
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.inference.open_model import open_trained_model, set_up_to_answer
from nlpctl.inference.predict import row_answers
from nlpctl.runtime.interrupt import sigterm_waits
from nlpctl.runtime.process import ProcessSetup
from nlpctl.serve.metrics import SECONDS, Counter, Gauge, Histogram, Snapshot, process_metrics, snapshots
from nlpctl.serve.requests import BodyReader
from nlpctl.serve.secrets import ApiKeys
from nlpctl.serve.settings import ServeSettings

if TYPE_CHECKING:
    from nlpctl.engines.auto import RowCount
    from nlpctl.serve.batcher import Batcher

# A lone client sends its next request within a millisecond. Waking the engine's threads for it cost a quarter of the
# requests per second (int8, two cores).
SPIN_US = 1000
BYTES_PER_TOKEN = 16  # or fewer, in any language


@dataclass
class Service:
    """Shared state of the handlers. `facts`: task, engine ... for /health, where the engine may change.

    `find_faster`: called in a thread of its own, once the service answers; goes over to a faster engine. `access`: None
    opens all paths; those of HEALTH are always open. `metrics_of_all`: of all processes of the service, where it has
    several.
    """

    reader: BodyReader
    batcher: Batcher
    settings: ServeSettings
    facts: Callable[[], Mapping[str, str]]
    keys: tuple[str, ...]  # keys that a row must have, for /openapi.json
    report: Callable[[BaseException], None]
    find_faster: Callable[[], None] | None = None
    access: ApiKeys | None = None
    metrics_of_all: Callable[[], Awaitable[list[Snapshot]]] | None = None
    stopping: bool = False
    unfinished: int = 0  # requests that were still running at the end, and got 503
    arriving: int = 0  # requests whose bodies are being read
    arrived: int = 0  # requests of all paths since the start
    handshakes: set[asyncio.Task[Any]] = field(default_factory=set)  # of TLS; before them there is no connection
    requests: Counter = field(
        default_factory=lambda: Counter("nlpctl_requests_total", "Requests by path and status.", ("path", "status"))
    )
    seconds: Histogram = field(
        default_factory=lambda: Histogram(
            "nlpctl_request_seconds", "Seconds of an answered request, including its arrival.", SECONDS
        )
    )

    cut: Counter = field(
        default_factory=lambda: Counter(
            "nlpctl_connections_cut_total", "Connections that the service ended: too many, or too slow.", ("reason",)
        )
    )

    truncated: Counter = field(
        default_factory=lambda: Counter(
            "nlpctl_truncated_rows_total", "Answered rows that were cut at data.max_seq_length."
        )
    )

    def metrics(self) -> list[Snapshot]:
        facts = Gauge("nlpctl_info", "The served model.", lambda: 1, {**self.facts(), "version": nlpctl.__version__})
        stopping = Gauge("nlpctl_stopping", "1 after the signal to stop.", lambda: self.stopping)
        own = (facts, stopping, self.requests, self.seconds, self.cut, self.truncated)
        return snapshots([*own, *self.batcher.metrics, *process_metrics()])


def note_starting(address: str) -> None:
    console.note(f"starting on {address}; every request gets 503 until the model is ready")


def note_serving(recipe: Recipe, address: str) -> None:
    console.note(f"serving {recipe.task} on {address} (Ctrl-C stops)")


def note_stopping() -> None:
    console.note("finishing accepted requests; Ctrl-C again to stop now")


def set_up_to_serve(recipe: Recipe, source: str) -> ProcessSetup:
    """Prepare this process. SIGTERM waits meanwhile: Paddle's import would answer it with a C++ stack."""
    with sigterm_waits():
        return replace(set_up_to_answer(recipe, source), spin_us=SPIN_US)


def make_service(
    recipe: Recipe,
    setup: ProcessSetup,
    source: str,
    settings: ServeSettings,
    access: ApiKeys | None = None,
    rows: RowCount = None,
) -> Service:
    """The service of the model that `find_model` found as `source`; its batcher is not started yet.

    `access`: as of `Service`; `rows`: as of `open_trained_model`.
    """
    from nlpctl.engines.pipeline import prediction_pipeline
    from nlpctl.serve.batcher import Batcher

    model = open_trained_model(recipe, setup, source, settings.batch_size, rows)
    # Both go over to another engine at once: a task has the calibration of its engine.
    current = model, prediction_pipeline(model.task, model.encoder, model.predictor)
    columns = task_rows(recipe.task, recipe.data)
    columns.encoder = model.encoder

    def answer(read: Sequence[Any]) -> list[dict[str, Any]]:
        _, pipeline = current
        return row_answers(
            columns, pipeline.task, read, pipeline.predictions(read, settings.batch_size), truncated=True
        )

    def go_over_to_faster() -> None:
        """Time the engines next to the service, and answer the next batches with the fastest."""
        nonlocal current
        assert model.find_faster is not None
        try:
            faster = model.find_faster()
        except Exception as error:  # the service goes on as it is
            console.warn(f"auto: timing the engines failed: {error}")
            return
        if faster is not None:
            current = faster, prediction_pipeline(faster.task, faster.encoder, faster.predictor)
            console.note(f"now answering with {faster.predictor.engine} {faster.predictor.precision}")

    # What is longer is cut off, and costs no more, unless it is read in windows.
    longest = sys.maxsize if columns.in_windows else BYTES_PER_TOKEN * recipe.data.max_seq_length

    def size(row: Any) -> int:
        return 0 if isinstance(row, BadRow) else min(row.byte_length, longest)

    def report(error: BaseException) -> None:
        console.warn(f"a request failed: {type(error).__name__}: {error}")

    def facts() -> dict[str, str]:
        predictor = current[0].predictor
        return {"task": recipe.task, "engine": predictor.engine, "precision": predictor.precision}

    return Service(
        BodyReader(columns, settings.max_rows, settings.max_characters),
        Batcher(answer, size, settings, report, lambda: current[1].streams),
        settings,
        facts,
        columns.required(labelled=False),
        report,
        find_faster=None if model.find_faster is None else go_over_to_faster,
        access=access,
    )
