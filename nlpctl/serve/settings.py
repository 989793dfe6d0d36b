"""The settings of `nlpctl serve`: address, batching and limits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nlpctl.errors import Problem, UserError
from nlpctl.runtime.interrupt import STOP_SECONDS
from nlpctl.spelling import option

LAST_CALLS = 15.0  # most seconds until open connections are idle; each gets one more answer
LAST_BATCH = 3.0  # seconds for the engine to finish its batch, which cannot be cancelled, within the longest stop


@dataclass(frozen=True)
class ServeSettings:
    """Limits protect the service: requests beyond them are refused at once."""

    host: str = "127.0.0.1"
    port: int = 8000  # 0: any free port
    workers: int = 1  # processes that answer, each with limits of its own
    batch_size: int = 32  # rows per batch
    batch_wait: float = 0.0  # seconds that an idle engine waits for a batch to fill
    queue: int = 512  # rows that may wait; further requests get 503
    max_wait: float = 2.0  # longest expected wait of a request in seconds; above it the request gets 503
    max_rows: int = 256  # rows of a request
    max_characters: int = 200_000  # characters of all rows of a request
    max_body: int = 1_000_000  # bytes of a request
    max_connections: int = 2048  # open ones; further ones get 503
    head_seconds: float = 10.0  # seconds in which the head of a request must arrive
    body_seconds: float = 10.0  # seconds in which the body of a request must arrive
    drain: float = 1.0  # seconds between the signal to stop and the end of listening
    api_key_file: Path | None = None  # one key per line; without it every client is answered
    tls_cert: Path | None = None  # both or none: HTTPS
    tls_key: Path | None = None

    @property
    def longest_stop(self) -> float:
        """Seconds from the signal to stop to the end of a process: `drain`, last calls, and running requests."""
        return max(STOP_SECONDS, self.drain + LAST_CALLS + 1)

    def __post_init__(self) -> None:
        """UserError lists every value that is out of range."""
        least = {"workers": 1, "batch_size": 1, "queue": 1, "max_rows": 1, "max_characters": 1, "max_body": 2}
        least |= {"max_connections": 1, "batch_wait": 0, "max_wait": 0, "drain": 0}
        wrong = [
            Problem(f"{vars(self)[name]} is less than {low}", option(name.replace("_", "-")), f"give {low} or more")
            for name, low in least.items()
            if vars(self)[name] < low
        ]
        if not 0 <= self.port <= 65535:
            wrong.append(Problem(f"there is no port {self.port}", "@[port]", "use 1 to 65535; 0 chooses a free port"))
        if self.max_rows > self.queue >= 1:
            message = f"a request of {self.max_rows} rows does not fit into a queue of {self.queue}"
            wrong.append(Problem(message, "@[max-rows]", "use a larger @[queue], or a smaller @[max-rows]"))
        if (self.tls_cert is None) != (self.tls_key is None):
            given, other = ("@[tls-cert]", "@[tls-key]") if self.tls_key is None else ("@[tls-key]", "@[tls-cert]")
            wrong.append(Problem(f"it needs {other} too", given, "give both, or neither for HTTP without TLS"))
        if wrong:
            raise UserError(problems=wrong)
