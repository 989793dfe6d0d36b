"""Where a service listens. The address is taken before the model is loaded, which takes seconds."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator

from nlpctl.errors import UserError
from nlpctl.serving.settings import ServeSettings


@contextlib.contextmanager
def bound_socket(settings: ServeSettings) -> Iterator[socket.socket]:
    """A socket with the wanted address that does not listen yet. UserError where it cannot be had."""
    host, port = settings.host, settings.port
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError):
        message = f"there is no address for {host!r}"
        raise UserError(message, "--host", "give a name or address of this machine; 0.0.0.0 is all of them") from None
    with socket.socket(family, kind, protocol) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(address)
        except OSError as error:
            raise cannot_listen(error, settings) from None
        yield listening


def cannot_listen(error: OSError, settings: ServeSettings) -> UserError:
    """What an OSError of bind or listen means."""
    message = f"cannot listen on {settings.host} port {settings.port}: {error.strerror}"
    if error.errno == errno.EADDRINUSE:
        return UserError(message, "--port", "stop what listens there, or give another port; 0 takes a free one")
    if error.errno == errno.EACCES:
        return UserError(message, "--port", "ports below 1024 are the administrator's: give a higher one")
    return UserError(message, "--host", "give a name or address of this machine; 0.0.0.0 is all of them")


def url(listening: socket.socket) -> str:
    """Where the service is to be found."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
