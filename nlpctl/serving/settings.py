"""What `nlpctl serve` may be told: where it listens, how it batches, and what it refuses."""

from __future__ import annotations

from dataclasses import dataclass

from nlpctl.errors import Problem, UserError


@dataclass(frozen=True)
class ServeSettings:
    """Limits protect the service: what goes beyond them is refused at once, not kept waiting."""

    host: str = "127.0.0.1"
    port: int = 8000  # 0: any that is free
    batch_size: int = 32  # rows that are computed together
    batch_wait: float = 0.0  # seconds that an idle engine waits for a batch to fill
    queue: int = 512  # rows that may wait; a request beyond them gets 503
    max_wait: float = 2.0  # seconds that a request may have to wait, at the pace of late; beyond them it gets 503
    max_rows: int = 256  # rows of a request
    max_body: int = 1_000_000  # bytes of a request
    body_seconds: float = 10.0  # until a request must have arrived
    drain: float = 1.0  # seconds between the signal to stop and the end of listening

    def __post_init__(self) -> None:
        """UserError with every value that is out of range."""
        least = {"batch_size": 1, "queue": 1, "max_rows": 1, "max_body": 2, "batch_wait": 0, "max_wait": 0, "drain": 0}
        wrong = [
            Problem(f"{vars(self)[name]} is less than {low}", f"--{name.replace('_', '-')}", f"give {low} or more")
            for name, low in least.items()
            if vars(self)[name] < low
        ]
        if not 0 <= self.port <= 65535:
            wrong.append(Problem(f"there is no port {self.port}", "--port", "give 1 to 65535; 0 takes a free one"))
        if self.max_rows > self.queue >= 1:
            message = f"a request of {self.max_rows} rows could never wait in a queue of {self.queue}"
            wrong.append(Problem(message, "--max-rows", "give a larger --queue, or a smaller --max-rows"))
        if wrong:
            raise UserError(problems=wrong)
