"""Requests over a real socket: answers, and refusals with reasons."""

from __future__ import annotations

import asyncio
import json
import math
import sys
import threading
from pathlib import Path

import pytest

from nlpctl.errors import UserError

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def test_one_row_and_several(running):
    async def story():
        async with running() as up:
            one = await up.post({"text": "good 好", "more": [1, math.inf]})
            several = await up.post([{"text": "a"}, {"text": "bb"}])
            return one, several

    one, several = asyncio.run(story())
    assert one.status == several.status == 200
    assert one.headers["content-type"] == "application/json"
    assert one.json == {"text": "good 好", "length": 6, "more": [1, None]} and "好".encode() in one.body
    assert several.json == [{"text": "a", "length": 1}, {"text": "bb", "length": 2}]


def test_an_answer_says_on_request_whether_its_text_was_cut(running):
    def answer(rows):
        return [{"text": row.text, "truncated": len(row.text) > 3} for row in rows]

    async def story():
        async with running(answer) as up:
            rows = json.dumps([{"text": "long", "truncated": "mine"}, {"text": "a"}]).encode()
            twice = "?truncated=true&truncated=false"
            parameters = ("", "?truncated=true", "?truncated=1", twice, "?min_confidence=0.9")
            paths = [f"/predict{each}" for each in parameters]
            found = [await up.raw(up.request(rows, path=path)) for path in paths]
            return *found, (await up.get("/metrics")).body.decode()

    silent, told, wrong, twice, unknown, metrics = asyncio.run(story())
    assert unknown.status == 422 and "there is no such parameter" in unknown.body.decode()
    assert silent.json == [{"text": "long", "truncated": "mine"}, {"text": "a"}]
    assert told.json[0] == {"text": "long", "truncated": True, "given_truncated": "mine"}
    assert told.json[1] == {"text": "a", "truncated": False}
    assert wrong.status == 422 and "truncated=true" in wrong.body.decode()
    assert twice.status == 422 and "stands twice" in twice.body.decode()
    assert "nlpctl_truncated_rows_total 2" in metrics


REFUSED = {
    "empty": (b"", 400, "body", "empty"),
    "not json": (b"good", 400, "body", "Expecting value at character 1"),
    "not utf-8": (b'{"text": "\xff"}', 400, "body", "byte 0xff at byte 11"),
    "utf-16": ('{"text": "a"}'.encode("utf-16"), 400, "body", "not UTF-8"),
    "deep": (b"[" * 1900, 400, "body", "nested too deeply"),
    "a string": (b'"good"', 422, "body", "a string"),
    "null": (b"null", 422, "body", "null"),
    "no rows": (b"[]", 422, "body", "no rows"),
    "no object": (b'[{"text": "a"}, 3]', 422, "body:$[1]", "a number"),
    "missing key": (b'{"txet": "a"}', 422, "body:$", "the keys are 'txet'; write 'text' in place of 'txet'"),
    "wrong type": (b'{"text": ["a"]}', 422, "body:$", "text is not a string: got list"),
    "blank": (b'[{"text": "a"}, {"text": " "}]', 422, "body:$[1]", "blank text"),
    "surrogate": (rb'{"text": "\ud800"}', 422, "body:$", "half a surrogate pair"),
    "keys": (json.dumps({str(i): 1 for i in range(101)}).encode(), 422, "body:$", "too many keys: 101"),
    "repeated key": (rb'[{"text": "a"}, {"text": "b", "\u0074ext": "c"}]', 400, "body", "'text' stands twice"),
    "rows": (json.dumps([{"text": "a"}] * 7).encode(), 413, "body", "7 rows in a request; the limit is 6"),
    "bytes": (b'{"text": "' + b"a" * 2000 + b'"}', 413, "body", "larger than 2000 bytes"),
}


@pytest.mark.parametrize("body, status, where, message", REFUSED.values(), ids=REFUSED)
def test_a_body_that_cannot_be_used(running, body, status, where, message):
    async def story():
        async with running() as up:
            return await up.raw(up.request(body)), await up.post({"text": "a"})

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)  # Python's own; libraries that other tests import raise it
    try:
        refused, fine = asyncio.run(story())
    finally:
        sys.setrecursionlimit(limit)
    assert refused.status == status, refused.body
    (problem,) = refused.json["errors"]
    assert problem["where"] == where and message in problem["message"], problem
    assert fine.status == 200


@pytest.mark.parametrize("more", [10, 70_000], ids=["small", "large"])  # the large one is read in a thread
def test_how_deep_a_row_may_be(running, more):
    def nested(depth: int) -> bytes:
        return b'{"text": "a", "more": "%s", "deep": %s}' % (b"x" * more, b"[" * (depth - 1) + b"]" * (depth - 1))

    async def story():
        async with running(max_body=100_000) as up:
            return [await up.raw(up.request(nested(depth))) for depth in (100, 101, 960)]

    fits, *refused = asyncio.run(story())
    assert fits.status == 200 and [answer.status for answer in refused] == [400, 400]
    assert all("more than 100 lists and objects" in answer.body.decode() for answer in refused)


def test_all_bad_rows_are_named_and_a_long_list_is_cut(running):
    async def story():
        async with running(max_rows=100, queue=100) as up:
            return await up.post([{"text": " "}, {"text": "a"}, {}]), await up.post([{}] * 30)

    few, many = asyncio.run(story())
    assert [problem["where"] for problem in few.json["errors"]] == ["body:$[0]", "body:$[2]"]
    assert len(many.json["errors"]) == 10 and "30 of 30 rows are bad" in many.json["errors"][0]["message"]


def test_bad_rows_are_passed_on_where_the_recipe_skips_them(running):
    async def story():
        async with running(lambda rows: [{"row": type(row).__name__} for row in rows], policy="skip") as up:
            return await up.post([{"text": "a"}, {}]), await up.post([{}])

    mixed, bad = asyncio.run(story())
    assert mixed.status == 200 and mixed.json == [{"row": "TextExample"}, {"row": "BadRow"}]
    assert bad.status == 422


@pytest.mark.parametrize(
    "headers, status",
    [
        (["Content-Type: application/json; charset=utf-8"], 200),
        (["Content-Type: Application/JSON;charset=\"UTF-8\""], 200),
        (["Content-Type: application/json; charset=gbk"], 415),
        (["Content-Type: text/plain"], 415),
        (["X: y"], 415),
        (["Content-Type: application/json", "Content-Encoding: gzip"], 415),
        (["Content-Type: application/json", "Content-Encoding: identity"], 200),
    ],
)
def test_content_types(running, headers, status):
    async def story():
        async with running() as up:
            return await up.raw(up.request(b'{"text": "a"}', *headers))

    found = asyncio.run(story())
    assert found.status == status
    assert status == 200 or found.json["errors"][0]["hint"]


def test_other_paths_and_methods(running):
    async def story():
        async with running() as up:
            paths = ("/predict", "/nothing", "/predict/", "/openapi.json")
            return [await up.get(path) for path in paths]

    method, path, slash, description = asyncio.run(story())
    assert method.status == 405 and method.headers["allow"] == "POST"
    assert method.json["errors"][0]["where"] == "GET /predict"
    assert path.status == slash.status == 404 and path.json["errors"][0]["message"] == "not found"
    post = description.json["paths"]["/predict"]["post"]
    row, rows = post["requestBody"]["content"]["application/json"]["schema"]["oneOf"]
    assert row["required"] == ["text"] and rows["maxItems"] == 6 and set(post["responses"]) >= {"200", "422", "503"}
    health, metrics = (description.json["paths"][path]["get"]["responses"] for path in ("/health", "/metrics"))
    assert set(health) == {"200", "503"} and set(metrics) == {"200", "401"}
    assert [*metrics["200"]["content"]] == ["text/plain"] and "security" not in description.json


def test_the_engine_fails(running):
    """The sender is told whose fault it is; the service goes on."""

    def answer(rows):
        if rows[0].text == "break":
            raise RuntimeError("secret")
        if rows[0].text == "long":
            raise UserError("too long for the window", "data.max_seq_length", "shorten it")
        return [{} for _ in rows]

    async def story():
        async with running(answer) as up:
            found = [await up.post({"text": text}) for text in ("break", "long", "fine")]
            return found, up.failures

    (broken, long, fine), failures = asyncio.run(story())
    assert (broken.status, long.status, fine.status) == (500, 422, 200)
    assert b"secret" not in broken.body and long.json["errors"][0]["message"] == "too long for the window"
    assert [str(error) for error in failures] == ["secret"]


def test_a_bug_is_told_as_json_too(running):
    async def story():
        async with running() as up:
            up.service.reader = None
            return await up.post({"text": "a"}), up.failures

    answer, failures = asyncio.run(story())
    assert answer.status == 500 and "AttributeError" in answer.json["errors"][0]["message"]
    assert [type(error) for error in failures] == [AttributeError]


def test_a_full_queue_is_told_and_health_answers_meanwhile(running):
    go = threading.Event()

    def answer(rows):
        go.wait(60)
        return [{} for _ in rows]

    async def story():
        async with running(answer, queue=2, max_rows=2) as up:
            first = asyncio.create_task(up.post({"text": "a"}))
            while not up.service.batcher._computed_rows:
                await asyncio.sleep(0.001)
            waiting = asyncio.create_task(up.post([{"text": "a"}] * 2))
            while not up.service.batcher._waiting_rows:
                await asyncio.sleep(0.001)
            refused, health, metrics = await up.post({"text": "a"}), await up.get("/health"), await up.get("/metrics")
            go.set()
            return refused, health, metrics, await first, await waiting, await up.get("/metrics")

    refused, health, metrics, first, waiting, later = asyncio.run(story())
    assert refused.status == 503 and int(refused.headers["retry-after"]) >= 1
    assert "busy: 2 of at most 2 rows wait" in refused.body.decode()
    assert health.status == 200 and health.json == {"status": "ok", "task": "test"}
    assert first.status == waiting.status == 200
    assert "nlpctl_queue_rows 2\n" in metrics.body.decode() and metrics.headers["content-type"].startswith("text/plain")
    told = later.body.decode()
    assert 'nlpctl_requests_total{path="/predict",status="503"} 1\n' in told
    assert 'nlpctl_requests_total{path="/predict",status="200"} 2\n' in told
    assert "nlpctl_rows_total 3\n" in told and "nlpctl_queue_rows 0\n" in told and 'task="test"' in told


def test_a_sender_that_leaves_is_not_computed(running):
    go, seen = threading.Event(), []

    def answer(rows):
        seen.extend(row.text for row in rows)
        go.wait(60)
        return [{} for _ in rows]

    async def story():
        async with running(answer) as up:
            first = asyncio.create_task(up.post({"text": "first"}))
            while not seen:
                await asyncio.sleep(0.001)
            _, writer = await up.connect()
            writer.write(up.request(b'{"text": "gone"}'))
            while not up.service.batcher._waiting_rows:
                await asyncio.sleep(0.001)
            writer.close()
            while up.service.batcher._waiting_rows:
                await asyncio.sleep(0.001)
            go.set()
            return await first, await up.post({"text": "last"}), up.failures

    first, last, failures = asyncio.run(story())
    assert first.status == last.status == 200 and seen == ["first", "last"] and not failures


def test_a_body_that_does_not_arrive(running):
    async def story():
        async with running(body_seconds=0.1) as up:
            late = await up.raw(up.request(b'{"text": "a"}')[:-1])
            up.service.arriving = up.service.settings.queue  # as if so many were on their way
            return late, await up.post({"text": "a"})

    late, many = asyncio.run(story())
    assert late.status == 408 and late.headers["connection"] == "close"
    assert many.status == 503 and "8 requests are being received" in many.body.decode()


def test_two_requests_on_one_connection_also_after_a_refusal(running):
    async def story():
        async with running() as up:
            reader, writer = await up.connect()
            writer.write(up.request(b" " * 5000) + up.request(b"broken") + up.request(b'{"text": "a"}'))
            found = [await up.read(reader) for _ in range(3)]
            writer.close()
            return found

    assert [response.status for response in asyncio.run(story())] == [413, 400, 200]


def test_malformed_requests_of_all_kinds(running, monkeypatch):
    """Those of scripts/check_serve.py, all at once, twice."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    from serve_malformed import kinds, send

    async def story():
        async with running(max_body=200_000, max_rows=100, queue=100) as up:
            asked = kinds("text", 100, 200_000) * 2
            found = await asyncio.gather(*(send("127.0.0.1", up.port, kind) for kind in asked))
            return asked, found, await up.post({"text": "a"}), up.failures

    asked, found, fine, failures = asyncio.run(story())
    assert len({kind.name for kind in asked}) >= 20
    pairs = [(kind, status) for kind, status in zip(asked, found, strict=True) if kind.statuses]
    assert not [(kind.name, status) for kind, status in pairs if status not in kind.statuses]
    assert fine.status == 200 and not failures
