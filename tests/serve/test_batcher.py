"""Batches form while the engine is busy, the queue is bounded, and one bad request spoils no other."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from nlpctl.errors import UserError
from nlpctl.runtime.threads import ONE_STREAM, Streams
from nlpctl.serve.batcher import OVERLOADS, BatchCosts, Batcher
from nlpctl.serve.requests import Refused
from tests.helpers.batched import Engine, busy, run


def values(batcher: Batcher) -> dict[str, float]:
    lines = [line for metric in batcher.metrics for line in metric.samples()]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_what_waits_makes_the_next_batches_in_order():
    async def story(batcher: Batcher, engine: Engine) -> None:
        first = await busy(batcher)
        others = [asyncio.create_task(batcher.submit(rows)) for rows in ([1, 2], [3], [4, 5], [6])]
        await asyncio.sleep(0)
        assert values(batcher)["nlpctl_queue_rows"] == 6
        engine.go.release(10)
        found = await asyncio.gather(first, *others)
        assert [[answer["row"] for answer in answers] for answers in found] == [[0], [1, 2], [3], [4, 5], [6]]

    engine, batcher, failures = run(story)
    assert engine.batches == [[0], [1, 2], [3, 4, 5, 6]]  # 4 rows at most, no request torn apart
    told = values(batcher)
    assert told["nlpctl_rows_total"] == 7 and told["nlpctl_batch_rows_sum"] == 7
    assert told["nlpctl_batch_rows_count"] == 3 and told["nlpctl_queue_rows"] == told["nlpctl_computed_rows"] == 0
    assert not failures


def test_a_request_larger_than_a_batch_goes_alone():
    async def story(batcher: Batcher, engine: Engine) -> None:
        first = await busy(batcher)
        others = [asyncio.create_task(batcher.submit(rows)) for rows in ([1], [2, 3, 4, 5, 6], [7])]
        engine.go.release(10)
        await asyncio.gather(first, *others)

    assert run(story)[0].batches == [[0], [1], [2, 3, 4, 5, 6], [7]]


def test_rows_of_similar_length_are_computed_together():
    """Within what was waiting; what comes later does not overtake it."""

    async def story(batcher: Batcher, engine: Engine) -> None:
        first = await busy(batcher)
        others = [asyncio.create_task(batcher.submit(rows)) for rows in ([50], [2, 60], [3], [70], [1], [4], [5])]
        await asyncio.sleep(0)
        engine.go.release()
        while len(engine.batches) < 1 or batcher._waiting_rows:
            await asyncio.sleep(0.001)
        late = asyncio.create_task(batcher.submit([0]))
        engine.go.release(10)
        found = await asyncio.gather(*others)
        assert [[answer["row"] for answer in answers] for answers in found] == [[50], [2, 60], [3], [70], [1], [4], [5]]
        await asyncio.gather(first, late)

    assert run(story, size=lambda row: row)[0].batches == [[0], [1, 3, 4, 5], [50, 2, 60, 70], [0]]


def test_a_full_queue_refuses_at_once_and_opens_again():
    async def story(batcher: Batcher, engine: Engine) -> None:
        first = await busy(batcher)
        waiting = [asyncio.create_task(batcher.submit([row])) for row in range(1, 8)]
        await asyncio.sleep(0)
        with pytest.raises(Refused) as refused:
            await batcher.submit([8, 9])  # 7 wait, 8 may
        assert refused.value.status == 503 and int(refused.value.headers["Retry-After"]) >= 1
        assert "7 of at most 8 rows wait (--queue), no room for 2 more" in str(refused.value)
        last = asyncio.create_task(batcher.submit([8]))
        await asyncio.sleep(0)
        with pytest.raises(Refused):
            batcher.check_room()
        engine.go.release(10)
        assert [answers[0]["row"] for answers in await asyncio.gather(first, *waiting, last)] == list(range(9))
        batcher.check_room(8)

    assert sum(run(story)[0].batches, []) == list(range(9))


def test_a_long_wait_is_refused_though_there_is_room():
    """By the pace of late; what would not have to wait is taken, however large it is."""

    async def story(batcher: Batcher, engine: Engine) -> None:
        engine.go.release()
        await batcher.submit([0])
        batcher._rate = 2.0  # rows per second
        first = await busy(batcher, 1)
        large = asyncio.create_task(batcher.submit([2, 3]))  # half a second to wait
        await asyncio.sleep(0)
        with pytest.raises(Refused) as refused:  # a second and a half
            await batcher.submit([4])
        assert refused.value.status == 503 and refused.value.headers == {"Retry-After": "1"}
        told = str(refused.value)  # not that the queue is full, which has room for seven more
        assert "wait about 1.5 s for those before it, and at most 1 s (--max-wait)" in told and "queue" not in told
        engine.go.release(10)
        await asyncio.gather(first, large)
        batcher._rate = 2.0
        assert len(await batcher.submit(list(range(8)))) == 8

    run(story, max_wait=1.0)


def test_the_wait_for_a_long_text_is_known_from_its_size():
    """The pace in rows knows nothing of it, and is low for a while after it."""

    async def story(batcher: Batcher, engine: Engine) -> None:
        batcher._single_stream.costs = costs = BatchCosts()
        for size in range(1, 20):
            costs.add(1, size, 0.001 * size)
        first = await busy(batcher, 5000)  # five seconds
        with pytest.raises(Refused) as refused:
            await batcher.submit([1])
        assert refused.value.headers == {"Retry-After": "3"}
        batcher._busy_since -= 4.5  # it is nearly done
        second = asyncio.create_task(batcher.submit([1]))
        await asyncio.sleep(0)
        engine.go.release(10)
        await asyncio.gather(first, second)
        batcher._rate = 0.1
        assert batcher._unfinished == 0 and len(await batcher.submit([2, 3])) == 2

    run(story, size=lambda row: row, max_wait=1.0)


def test_a_sender_that_goes_away_takes_its_rows_along():
    async def story(batcher: Batcher, engine: Engine) -> None:
        first = await busy(batcher)
        gone, stays = (asyncio.create_task(batcher.submit([row])) for row in (1, 2))
        await asyncio.sleep(0)
        gone.cancel()
        first.cancel()  # the engine has this one already
        await asyncio.gather(gone, first, return_exceptions=True)
        assert values(batcher)["nlpctl_queue_rows"] == 1
        engine.go.release(10)
        assert await stays == [{"row": 2}]

    engine, batcher, failures = run(story)
    assert engine.batches == [[0], [2]] and not failures
    assert values(batcher)["nlpctl_rows_total"] == 1


def test_one_request_that_fails_spoils_no_other():
    async def story(batcher: Batcher, engine: Engine) -> None:
        engine.poisoned = {2: UserError("too long", "data.max_seq_length", "raise it"), 3: MemoryError("no room")}
        first = await busy(batcher)
        others = [asyncio.create_task(batcher.submit([row])) for row in (1, 2, 3)]
        engine.go.release(10)
        found = await asyncio.gather(first, *others, return_exceptions=True)
        assert found[:2] == [[{"row": 0}], [{"row": 1}]]
        assert [error.status for error in found[2:]] == [422, 500]
        assert found[2].content() == {
            "errors": [{"message": "too long", "where": "data.max_seq_length", "hint": "raise it"}]
        }
        assert "MemoryError" in str(found[3].content())

    engine, batcher, failures = run(story)
    assert engine.batches == [[0], [1, 2, 3], [1], [2], [3]]
    assert [type(error) for error in failures] == [MemoryError]
    assert values(batcher)["nlpctl_engine_failures_total"] == 1


class PanicException(BaseException):
    """As pyo3 raises it for a panic of Rust code."""


def test_a_panic_fails_its_own_request():
    async def story(batcher: Batcher, engine: Engine) -> None:
        engine.poisoned = {2: PanicException("index out of bounds")}
        first = await busy(batcher)
        others = [asyncio.create_task(batcher.submit([row])) for row in (1, 2)]
        engine.go.release(10)
        found = await asyncio.wait_for(asyncio.gather(first, *others, return_exceptions=True), 10)
        assert found[:2] == [[{"row": 0}], [{"row": 1}]]
        assert found[2].status == 500 and "PanicException" in str(found[2].content())
        assert batcher.alive and await batcher.submit([3]) == [{"row": 3}]

    assert [type(error) for error in run(story)[2]] == [PanicException]


@pytest.mark.parametrize("place", ["_answer_all", "_finish"])
def test_a_defect_fails_the_requests_of_its_batch(place):
    """Whatever it is: nobody else answers them."""

    async def story(batcher: Batcher, engine: Engine) -> None:
        def broken(*arguments: Any) -> None:
            raise BaseException("a bug")

        setattr(batcher, place, broken)
        engine.go.release()
        with pytest.raises(Refused, match="BaseException"):
            await asyncio.wait_for(batcher.submit([1]), 10)

    assert [str(error) for error in run(story)[2]] == ["a bug"]


def test_an_idle_engine_waits_for_a_batch_to_fill_but_not_longer():
    async def full_batch(batcher: Batcher, engine: Engine) -> None:
        engine.go.release(10)
        requests = [asyncio.create_task(batcher.submit([0]))]
        for row in range(1, 4):
            await asyncio.sleep(0.01)
            requests.append(asyncio.create_task(batcher.submit([row])))
        await asyncio.gather(*requests)

    assert run(full_batch, batch_wait=30.0)[0].batches == [[0, 1, 2, 3]]

    async def half_a_batch(batcher: Batcher, engine: Engine) -> None:
        engine.go.release(10)
        await asyncio.gather(batcher.submit([0]), batcher.submit([1]))

    assert run(half_a_batch, batch_wait=0.05)[0].batches == [[0, 1]]


class Opened:
    """Notes when it is entered and left."""

    def __init__(self) -> None:
        self.story: list[str] = []

    def __enter__(self) -> None:
        self.story.append("opened")

    def __exit__(self, *error: Any) -> None:
        self.story.append("closed")


async def crowd(batcher: Batcher, engine: Engine, until: Callable[[], bool]) -> None:
    """Three requests at a time, until that is so."""
    while not until():
        engine.go.release(3)
        await asyncio.gather(*(batcher.submit([row]) for row in range(3)))


async def one_long(batcher: Batcher) -> tuple[asyncio.Task, threading.Event]:
    """A request that a stream computes until the event is set; from now on all others are answered at once."""
    begun, ends = threading.Event(), threading.Event()

    def answer(rows: list[int]) -> list[dict[str, int]]:
        if 9 in rows:
            begun.set()
            ends.wait(60)
        return [{"row": row} for row in rows]

    batcher._answer = answer
    slow, *others = [asyncio.create_task(batcher.submit([row])) for row in (9, 3, 4)]
    await asyncio.gather(*others)
    assert begun.is_set() and not slow.done() and batcher._side_by_side in batcher._running.values()
    return slow, ends


def test_batches_are_computed_side_by_side_once_more_requests_than_streams_meet():
    """And no longer where the engine that has taken over has no streams."""
    opened, entered = Opened(), []
    current = [Streams(2, opened, lambda: entered.append(threading.current_thread()))]

    async def story(batcher: Batcher, engine: Engine) -> None:
        for _ in range(2 * OVERLOADS):  # no more than the streams: all threads compute one batch after the other
            engine.go.release(2)
            await asyncio.gather(batcher.submit([0]), batcher.submit([1]))
        assert not opened.story
        await crowd(batcher, engine, lambda: bool(opened.story) and batcher._opening is None)
        side_by_side = [asyncio.create_task(batcher.submit([row])) for row in (3, 4, 5)]
        while len(batcher._running) < 2:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        assert len(batcher._running) == 2 and not any(each.done() for each in side_by_side)
        engine.go.release(3)
        await asyncio.gather(*side_by_side)
        current[0] = ONE_STREAM
        await crowd(batcher, engine, lambda: "closed" in opened.story)
        first = await busy(batcher)
        second = asyncio.create_task(batcher.submit([7]))
        await asyncio.sleep(0.05)
        assert len(batcher._running) == 1 and batcher._waiting_rows == 1
        engine.go.release(2)
        await asyncio.gather(first, second)

    _, batcher, failures = run(story, streams=lambda: current[0], batch_size=1, max_rows=1)
    assert opened.story == ["opened", "closed"] and len(set(entered)) == 2 and not failures


def test_a_long_request_in_a_stream_keeps_no_other_waiting():
    """Also when there are no longer more requests than streams: they go to the whole engine, and the streams end."""
    streams = Streams(2, Opened())

    async def story(batcher: Batcher, engine: Engine) -> None:
        await crowd(batcher, engine, lambda: batcher._side_by_side is not batcher._single_stream)
        slow, ends = await one_long(batcher)
        assert await batcher.submit([5]) == [{"row": 5}]
        assert batcher._side_by_side in batcher._running.values() and not slow.done()
        ends.set()
        assert await slow == [{"row": 9}]

    assert not run(story, streams=lambda: streams, batch_size=1, max_rows=1)[2]


def test_streams_are_closed_after_a_switch_once_they_have_computed_and_keep_nobody_waiting():
    opened = Opened()
    current = [Streams(2, opened)]

    async def story(batcher: Batcher, engine: Engine) -> None:
        await crowd(batcher, engine, lambda: batcher._side_by_side is not batcher._single_stream)
        slow, ends = await one_long(batcher)
        current[0] = ONE_STREAM
        for _ in range(3):
            await asyncio.gather(*(batcher.submit([row]) for row in range(3)))
        assert batcher._opening is not None and opened.story == ["opened"] and not slow.done()
        ends.set()
        assert await slow == [{"row": 9}]
        await batcher._opening
        assert opened.story == ["opened", "closed"]

    assert not run(story, streams=lambda: current[0], batch_size=1, max_rows=1)[2]


def test_what_waits_is_divided_among_the_free_streams():
    streams = Streams(2, Opened())

    async def story(batcher: Batcher, engine: Engine) -> None:
        await crowd(batcher, engine, lambda: batcher._side_by_side is not batcher._single_stream)
        engine.batches.clear()
        engine.go.release(2)
        await asyncio.gather(*(batcher.submit([row]) for row in range(4)))

    assert sorted(run(story, streams=lambda: streams)[0].batches) == [[0, 1], [2, 3]]


def test_the_pace_is_that_of_all_streams_together():
    """Or waits are estimated too long, and requests refused for nothing."""
    streams = Streams(4, Opened())

    async def story(batcher: Batcher, engine: Engine) -> None:
        engine.go.release(10_000)
        while batcher._side_by_side is batcher._single_stream:
            await asyncio.gather(*(batcher.submit([row]) for row in range(5)))

        def slowly(rows: list[int]) -> list[dict[str, int]]:
            time.sleep(0.05)
            return [{"row": row} for row in rows]

        batcher._answer, started = slowly, time.monotonic()
        await asyncio.gather(*(batcher.submit([row]) for row in range(64)))
        assert batcher._rate == pytest.approx(64 / (time.monotonic() - started), rel=0.5)  # that of one is a quarter

    run(story, streams=lambda: streams, batch_size=1, max_rows=1, queue=64)


def test_streams_are_closed_with_the_batcher():
    opened = Opened()
    streams = Streams(2, opened)

    async def story(batcher: Batcher, engine: Engine) -> None:
        await crowd(batcher, engine, lambda: bool(opened.story) and batcher._opening is None)

    run(story, streams=lambda: streams)
    assert opened.story == ["opened", "closed"]


def test_without_memory_for_streams_the_whole_engine_answers():
    class Full:
        def __enter__(self) -> None:
            raise MemoryError

        def __exit__(self, *error: Any) -> None:
            raise AssertionError("it was not open")

    streams = Streams(2, Full())

    async def story(batcher: Batcher, engine: Engine) -> None:
        await crowd(batcher, engine, lambda: batcher._opened_streams is streams and batcher._opening is None)
        engine.go.release(2)
        found = await asyncio.gather(batcher.submit([1]), batcher.submit([2]))
        assert found == [[{"row": 1}], [{"row": 2}]] and batcher._side_by_side is batcher._single_stream

    assert not run(story, streams=lambda: streams)[2]


def test_a_batcher_that_is_closed_is_not_alive():
    async def story(batcher: Batcher, engine: Engine) -> None:
        assert batcher.alive

    assert not run(story)[1].alive


def test_a_defect_is_seen_and_answered_though_it_cannot_be_reported():
    async def story(batcher: Batcher, engine: Engine) -> None:
        def broken(*arguments: Any) -> None:
            raise OSError("nobody reads what is reported")

        batcher._count_batch = batcher._report = broken
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        engine.go.release()
        assert await batcher.submit([1]) == [{"row": 1}]
        await asyncio.sleep(0)
        while batcher.alive:
            await asyncio.sleep(0.001)
        assert batcher._computed_rows == 0
        with pytest.raises(Refused) as refused:
            await batcher.submit([2])
        assert refused.value.status == 500

    run(story)


def test_a_defect_refuses_what_waits():
    async def story(batcher: Batcher, engine: Engine) -> None:
        computed = await busy(batcher)
        waiting = [asyncio.create_task(batcher.submit([row])) for row in (1, 2)]
        await asyncio.sleep(0)

        def broken(*arguments: Any) -> None:
            raise ValueError("a bug")

        batcher._count_batch = broken
        engine.go.release()
        assert await computed == [{"row": 0}]
        for each in waiting:
            with pytest.raises(Refused, match="ValueError"):
                await each

    assert [str(error) for error in run(story)[2]] == ["a bug"]


def test_a_defect_of_the_queue_itself_is_one_too():
    async def story(batcher: Batcher, engine: Engine) -> None:
        def broken() -> None:
            raise ValueError("a bug")

        batcher._take = broken
        with pytest.raises(Refused, match="ValueError"):
            await asyncio.wait_for(batcher.submit([1]), 60)
        assert not batcher.alive

    assert [str(error) for error in run(story)[2]] == ["a bug"]


def test_without_a_thread_requests_fail_and_do_not_wait(monkeypatch):
    async def story(batcher: Batcher, engine: Engine) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", no_thread)
            with pytest.raises(Refused) as refused:
                await asyncio.wait_for(batcher.submit([1]), 60)
        assert refused.value.status == 500 and batcher.alive
        engine.go.release(2)  # what could not be begun with is still in the thread's queue
        assert await batcher.submit([2]) == [{"row": 2}]

    def no_thread(self):
        raise RuntimeError("can't start new thread")

    assert len(run(story)[2]) == 1
