"""22 kinds of malformed requests with the statuses that may answer them, and one that is never finished."""

from __future__ import annotations

import asyncio
import gzip
import json
from dataclasses import dataclass

JSON = "Content-Type: application/json"


@dataclass(frozen=True)
class Kind:
    """A malformed request. `statuses` is empty if the sender disconnects before it can be answered."""

    name: str
    request: bytes
    statuses: tuple[int, ...]


def _post(body: bytes, *headers: str, path: str = "/predict", method: str = "POST") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *(headers or (JSON,)), f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _chunked(total: int) -> bytes:
    head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\n{JSON}\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"x" * 50_000
    return head.encode() + (b"%x\r\n%s\r\n" % (len(chunk), chunk)) * (total // len(chunk)) + b"0\r\n\r\n"


def _json(value: object) -> bytes:
    return _post(json.dumps(value).encode())


def kinds(key: str, max_rows: int, max_body: int) -> list[Kind]:
    """Every kind, for a model that takes rows with the one key `key`."""
    good = json.dumps({key: "good"}).encode()
    raw = f"POST /predict HTTP/1.1\r\nHost: localhost\r\n{JSON}\r\n".encode()
    return [
        Kind("empty body", _post(b""), (400,)),
        Kind("not JSON", _post(b"good"), (400,)),
        Kind("truncated JSON", _post(good[:-2]), (400,)),
        Kind("not UTF-8", _post(b'{"%s": "\xff\xfe"}' % key.encode()), (400,)),
        Kind("nested 200,000 deep", _post(b"[" * 200_000), (400,)),
        Kind("a number of 5,000 digits", _post(b"9" * 5000), (400, 422)),
        Kind("a string", _json("good"), (422,)),
        Kind("an empty list", _json([]), (422,)),
        Kind("a list of strings", _json(["good"]), (422,)),
        Kind("a missing key", _json({f"{key}s": "good"}), (422,)),
        Kind("a number for a text", _json({key: 1}), (422,)),
        Kind("a blank text", _json([{key: "good"}, {key: " "}]), (422,)),
        Kind("half a surrogate pair", _post(b'{"%s": "\\ud800"}' % key.encode()), (422,)),
        Kind("too many rows", _json([{key: "good"}] * (max_rows + 1)), (413,)),
        Kind("too many bytes", _post(b" " * (max_body + 1)), (413,)),
        Kind("too many bytes in chunks", _chunked(2 * max_body), (413,)),
        Kind("a form", _post(b"text=good", "Content-Type: application/x-www-form-urlencoded"), (415,)),
        Kind("compressed", _post(gzip.compress(good), JSON, "Content-Encoding: gzip"), (415,)),
        Kind("another method", _post(good, method="PUT"), (405,)),
        Kind("another path", _post(good, path="/predict/../etc/passwd"), (404,)),
        Kind("a Content-Length that is not a number", raw + b"Content-Length: many\r\n\r\n" + good, (400,)),
        Kind("not HTTP", b"\x16\x03\x01\x02\x00\x01\x00" * 40 + b"\r\n\r\n", (400,)),
        Kind("a body that never ends", raw + b"Content-Length: 900\r\n\r\n" + good, ()),
    ]


async def send(host: str, port: int, kind: Kind) -> int | None:
    """The status that answers a request of this kind; None: no answer. The sender disconnects early if allowed."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(kind.request)
        await writer.drain()
        if not kind.statuses:
            return None
        head = await asyncio.wait_for(reader.readuntil(b"\r\n"), 60)
        return int(head.split()[1])
    except (ConnectionError, asyncio.IncompleteReadError, asyncio.TimeoutError):
        return None
    finally:
        writer.close()
