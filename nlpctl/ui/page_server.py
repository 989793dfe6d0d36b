"""uvicorn for pages: a signal ends it, and the command ends as it should."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any

import uvicorn

from nlpctl.serve.requests import Refused, refuse_framing

_PAGE_HEAD = 1024 * 1024  # bytes of a request's address and headers; a form may send a long text in its address

App = Callable[..., Awaitable[None]]


def _framed(app: App) -> App:
    """`app`, but a request whose end is not certain is refused."""

    async def answer(scope: dict[str, Any], receive: Callable, send: Callable) -> None:
        try:
            refuse_framing(scope)
        except Refused as error:
            await send({"type": "http.response.start", "status": error.status, "headers": [(b"connection", b"close")]})
            await send({"type": "http.response.body", "body": f"{error}\n".encode()})
            return
        await app(scope, receive, send)

    return answer


class PageServer(uvicorn.Server):
    """uvicorn whose `serve` returns at Ctrl-C and SIGTERM; at the second it does not wait for open requests."""

    def __init__(self, app: App, listens: Callable[[], None]):
        """`listens` is called once requests are answered."""
        config = uvicorn.Config(
            _framed(app),
            http="h11",
            h11_max_incomplete_event_size=_PAGE_HEAD,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
        )
        super().__init__(config)
        self._listens = listens

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._listens()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The signal handler. uvicorn's own would raise the signal again, after which the command could not end."""
        self.force_exit = self.should_exit
        self.should_exit = True
