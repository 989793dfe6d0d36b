"""An engine of the batcher's tests, which waits to be told, and a batcher with it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from nlpctl.runtime.threads import ONE_STREAM, Streams
from nlpctl.serve.batcher import Batcher
from nlpctl.serve.settings import ServeSettings


class Engine:
    """Answers numbers by themselves; waits for `go` before each batch, and keeps the batches."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.go = threading.Semaphore(0)
        self.poisoned: dict[int, Exception] = {}

    def __call__(self, rows: list[int]) -> list[dict[str, Any]]:
        self.go.acquire()
        self.batches.append(list(rows))
        for row in rows:
            if row in self.poisoned:
                raise self.poisoned[row]
        return [{"row": row} for row in rows]


def run(
    test: Callable[[Batcher, Engine], Coroutine],
    size: Callable[[int], int] = lambda row: 0,
    streams: Callable[[], Streams] = lambda: ONE_STREAM,
    **settings: Any,
) -> tuple[Engine, Batcher, list]:
    engine, failures = Engine(), []

    async def story() -> Batcher:
        chosen = ServeSettings(**{"batch_size": 4, "queue": 8, "max_rows": 8, "max_wait": 1e9, **settings})
        batcher = Batcher(engine, size, chosen, failures.append, streams)
        batcher.start()
        try:
            await asyncio.wait_for(test(batcher, engine), 20)
        finally:
            engine.go.release(100)
            await batcher.close()
        return batcher

    return engine, asyncio.run(story()), failures


async def busy(batcher: Batcher, row: int = 0) -> asyncio.Task:
    """A request that the engine has begun with."""
    task = asyncio.create_task(batcher.submit([row]))
    while batcher._computed_rows == 0:
        await asyncio.sleep(0.001)
    return task
