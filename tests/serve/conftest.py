"""A service whose engine is a function of the test, on a socket of its own, and a plain client."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from nlpctl.config.schema import DataSection
from nlpctl.data.rows.text_rows import TextRows
from nlpctl.serve.app import make_app
from nlpctl.serve.batcher import Batcher
from nlpctl.serve.requests import BodyReader
from nlpctl.serve.server import Server
from nlpctl.serve.service import Service
from nlpctl.serve.settings import ServeSettings
from nlpctl.serve.starting import bound_socket

SETTINGS = ServeSettings(
    port=0, batch_size=4, queue=8, max_wait=1e9, max_rows=6, max_body=2000, body_seconds=5, drain=0
)


@dataclass(frozen=True)
class Response:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Running:
    """A service under test, and ways to ask it."""

    service: Service
    server: Server
    port: int
    failures: list[BaseException]

    @staticmethod
    def request(body: bytes, *headers: str, method: str = "POST", path: str = "/predict") -> bytes:
        lines = [f"{method} {path} HTTP/1.1", "Host: x", *(headers or ("Content-Type: application/json",))]
        return "\r\n".join([*lines, f"Content-Length: {len(body)}"]).encode() + b"\r\n\r\n" + body

    @staticmethod
    async def read(reader: asyncio.StreamReader) -> Response:
        head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)).decode()
        status, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        body = await reader.readexactly(int(headers["content-length"])) if "content-length" in headers else b""
        return Response(int(status.split()[1]), headers, body)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def raw(self, data: bytes) -> Response:
        """The response to `data` on a new connection."""
        reader, writer = await self.connect()
        with contextlib.closing(writer):
            writer.write(data)
            return await self.read(reader)

    async def post(self, value: Any) -> Response:
        return await self.raw(self.request(json.dumps(value).encode()))

    async def get(self, path: str) -> Response:
        return await self.raw(self.request(b"", method="GET", path=path))


def echo(rows: list[Any]) -> list[dict[str, Any]]:
    return [{"text": row.text, "length": len(row.text)} for row in rows]


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`async with running(answer, queue=...) as up`: a service that listens; it is stopped at the end.

    It stops without waiting for requests that are on their way; tests/serve/test_server.py has it wait as it does.
    """
    monkeypatch.setattr("nlpctl.serve.server.QUIET", 0.01)

    @contextlib.asynccontextmanager
    async def run(
        answer: Callable = echo,
        policy: str = "error",
        access: Any = None,
        tls: Any = None,
        shared: bool = False,
        **settings: Any,
    ) -> AsyncIterator[Running]:
        chosen = dataclasses.replace(SETTINGS, **settings)
        failures: list[BaseException] = []
        rows = TextRows(dataclasses.replace(DataSection(), on_bad_row=policy))
        batcher = Batcher(answer, lambda row: 0, chosen, failures.append)
        reader = BodyReader(rows, chosen.max_rows, chosen.max_characters)
        service = Service(reader, batcher, chosen, lambda: {"task": "test"}, ("text",), failures.append, access=access)
        with bound_socket(chosen) as listening:
            server = Server(make_app(service), service, tls=tls, shared=shared)
            serving = asyncio.create_task(server.run_on(listening))
            while not server.started:
                await asyncio.sleep(0.01)
            try:
                yield Running(service, server, listening.getsockname()[1], failures)
            finally:
                if not service.stopping:
                    server.stop()
                await asyncio.wait_for(serving, 30)

    return run
