"""The address of a service. It is bound before the model is loaded, which takes seconds."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator

from nlpctl.errors import UserError
from nlpctl.serving.settings import ServeSettings

BACKLOG = 2048  # connections that the kernel lets wait


@contextlib.contextmanager
def bound_socket(settings: ServeSettings) -> Iterator[socket.socket]:
    """A socket bound to the address that does not listen yet. UserError if the address is not available."""
    host, port = settings.host, settings.port
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError):
        message = f"there is no address for {host!r}"
        raise UserError(message, "--host", "use a name or address of this machine, or 0.0.0.0 for all") from None
    with socket.socket(family, kind, protocol) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(address)
        except OSError as error:
            raise cannot_listen(error, settings) from None
        yield listening


def cannot_listen(error: OSError, settings: ServeSettings) -> UserError:
    """The UserError for an OSError of bind or listen."""
    message = f"cannot listen on {settings.host} port {settings.port}: {error.strerror}"
    if error.errno == errno.EADDRINUSE:
        return UserError(message, "--port", "stop that process, or use another port; 0 chooses a free one")
    if error.errno == errno.EACCES:
        return UserError(message, "--port", "ports below 1024 need administrator rights: use a higher one")
    return UserError(message, "--host", "use a name or address of this machine, or 0.0.0.0 for all")


def url(listening: socket.socket, tls: bool = False) -> str:
    """The URL of the service."""
    scheme = "https" if tls else "http"
    host, port = listening.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
