"""What a service is given in files of its owner: API keys, and TLS's certificate and key. They are never shown."""

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
from nlpctl.serve.requests import Refused
from nlpctl.serve.settings import ServeSettings

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
