"""Threads of a pipeline: items made ahead of their consumer (`Ahead`); how many may ask an engine (`Streams`)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Generic, TypeVar

T = TypeVar("T")
_PATIENCE = 0.5  # seconds to wait for the thread at exit; a thread that reads a pipe may never end


@dataclass(frozen=True)
class _End:
    """The end marker after the last item. `error`: the exception that ended the iteration, None at its normal end."""

    error: BaseException | None


class Ahead(Generic[T]):
    """The items of a generator, produced in a thread while earlier ones are in use, at most `depth` ahead.

    Iterate inside a `with`: leaving it stops the thread after the item that it is making and closes the generator. An
    exception of the generator is raised in its place among the items. The thread never prevents the end of the process.
    """

    def __init__(self, items: Generator[T, None, None], depth: int):
        self._source = items
        self._made: SimpleQueue[T | _End] = SimpleQueue()
        self._room = threading.Semaphore(depth)
        self._stopped = False
        self._ended = False
        self._thread = threading.Thread(target=self._make, name="ahead", daemon=True)

    def __enter__(self) -> Ahead[T]:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stopped = True
        self._room.release()
        self._thread.join(_PATIENCE)

    @property
    def ready(self) -> bool:
        """Whether the next item, or the end, is available without waiting."""
        return not self._made.empty()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if self._ended:
            raise StopIteration
        item = self._made.get()
        if not isinstance(item, _End):
            self._room.release()
            return item
        self._ended = True
        if item.error is None:
            raise StopIteration
        raise item.error

    def _make(self) -> None:
        end = _End(None)
        try:
            self._room.acquire()
            for item in self._source:
                self._made.put(item)
                self._room.acquire()
                if self._stopped:
                    break
            self._source.close()
        # Also KeyboardInterrupt and SystemExit: a thread that ends silently would leave the consumer waiting.
        except BaseException as error:
            end = _End(error)
        self._made.put(end)


@dataclass(frozen=True)
class Streams:
    """How many threads may ask an engine for outputs at a time, and are together faster than one.

    That holds within `open`, in threads that called `enter` first, if there is one.
    """

    count: int
    open: AbstractContextManager[Any]
    enter: Callable[[], None] | None = None


ONE_STREAM = Streams(1, nullcontext())
