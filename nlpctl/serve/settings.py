"""The settings of `nlpctl serve`: address, batching and limits."""

from __future__ import annotations

import hashlib
import ssl
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from nlpctl import console
from nlpctl.errors import Problem, UserError, remedy
from nlpctl.outputs import refuse_pipe
from nlpctl.runtime.interrupt import STOP_SECONDS
from nlpctl.serve.requests import Refused
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


# --------------------------------------------------------------------------------------------------
# What a service is given in files of its owner: API keys, and TLS's certificate and key. They are never shown.

_MOST_BYTES = 1_000_000  # of a file
_MOST_SENT = 2  # keys of a request: one in each of the two headers


class ApiKeys:
    """The keys that open a service. Only their hashes are kept."""

    def __init__(self, keys: Iterable[bytes]):
        self._hashes = {hashlib.sha256(key).digest() for key in keys}

    def check(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Refused (401) unless the headers (names in lower case) hold a key: Authorization: Bearer, or X-API-Key.

        How long it takes to look a hash up says nothing of a key.
        """
        keys = list(islice(_sent_keys(headers), _MOST_SENT + 1))
        if len(keys) > _MOST_SENT:
            message = f"more than {_MOST_SENT} API keys"
        elif any(hashlib.sha256(key).digest() in self._hashes for key in keys):
            return
        else:
            message = "the API key is unknown" if keys else "an API key is needed"
        hint = "send the header Authorization: Bearer KEY, or X-API-Key: KEY"
        raise Refused(401, Problem(message, hint=hint), headers={"WWW-Authenticate": "Bearer"})


def _sent_keys(headers: Iterable[tuple[bytes, bytes]]) -> Iterable[bytes]:
    for name, value in headers:
        if name == b"x-api-key":
            yield value.strip()
        elif name == b"authorization":
            scheme, _, key = value.strip().partition(b" ")
            if scheme.lower() == b"bearer":
                yield key.strip()


@dataclass(frozen=True)
class Secrets:
    """What the files of the settings hold; None for what no file is given."""

    access: ApiKeys | None = None
    tls: ssl.SSLContext | None = None


def read_secrets(settings: ServeSettings) -> Secrets:
    """UserError if a file cannot be used. Call it before anything listens."""
    access = None if settings.api_key_file is None else read_api_keys(settings.api_key_file)
    return Secrets(access, read_tls(settings))


def read_tls(settings: ServeSettings) -> ssl.SSLContext | None:
    """None without TLS. UserError if a file cannot be used."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return tls_context(settings.tls_cert, settings.tls_key)


def read_api_keys(file: Path) -> ApiKeys:
    """The keys of `file`: one a line; `#` begins a comment line. UserError, which quotes no key, if it is unusable."""
    where = f"@[api-key-file] {file}"
    try:
        lines = _content(file, "@[api-key-file]").decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise UserError("not a text file in UTF-8", where, "write one key per line") from None
    keys = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith("#"):
            continue
        if not (line.isascii() and line.isprintable()) or " " in line:
            hint = "use ASCII letters, digits and signs only, one key per line"
            raise UserError("a key with a blank, or with a character that no header can hold", f"{file}:{number}", hint)
        keys[line.encode()] = number
    if not keys:
        raise UserError("there is no key in this file", where, "write one key per line, such as `openssl rand -hex 32`")
    return ApiKeys(keys)


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS 1.2 or newer with these files in PEM form. UserError if they cannot be used or do not belong together."""
    _content(certificate, "@[tls-cert]")
    _content(key, "@[tls-key]")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2

    def encrypted() -> str:
        hint = "write one without it: openssl pkey -in KEY -out NEW"
        raise UserError("the key is protected by a password", f"@[tls-key] {key}", hint)

    try:
        context.load_cert_chain(certificate, key, password=encrypted)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            message, hint = f"this is not the key of {certificate}", "name the key that the certificate was made with"
        else:
            message = f"{certificate} and {key} are no certificate and key in PEM form"
            hint = "@[tls-cert] takes the certificate with its chain, @[tls-key] the private key"
        raise UserError(message, f"@[tls-key] {key}", hint) from None
    return context


def _content(file: Path, flag: str) -> bytes:
    """The bytes of a small regular file; a pipe would wait, a device might never end."""
    refuse_pipe(file, flag)
    try:
        with file.open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: NUL in the name
        reason, hint = str(error), "check this path"
        if isinstance(error, OSError):
            reason, hint = error.strerror or reason, remedy(error)
        raise UserError(f"cannot read this file ({reason})", f"{flag} {file}", hint) from None
    if len(content) > _MOST_BYTES:
        raise UserError(f"this file has more than {_MOST_BYTES} bytes", f"{flag} {file}", "name the right file")
    return content


def warn_of_open_files(settings: ServeSettings) -> None:
    """Warn of each file of `read_secrets` that other users can read."""
    for file in (settings.api_key_file, settings.tls_key):
        if file is not None and file.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
            console.warn(f"{file} can be read by other users: chmod 600 {file}")
