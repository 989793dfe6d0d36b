"""API keys and TLS: who is answered, what is refused before anything listens, and that no key is ever shown."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from nlpctl.errors import UserError
from nlpctl.serve.requests import Refused
from nlpctl.serve.secrets import ApiKeys, read_api_keys, tls_context, warn_of_open_files
from nlpctl.serve.settings import ServeSettings
from nlpctl.serve.starting import Starting, bound_socket, url

KEY = "correct-horse-battery-staple"
JSON = "Content-Type: application/json"


def key_file(folder: Path, content: bytes, mode: int = 0o600) -> Path:
    file = folder / "keys.txt"
    file.write_bytes(content)
    file.chmod(mode)
    return file


@pytest.mark.parametrize(
    "header, status",
    [
        ("X: y", 401),
        ("Authorization: Bearer wrong", 401),
        (f"Authorization: Basic {KEY}", 401),
        (f"Authorization: Bearer {KEY}x", 401),
        ("X-API-Key: ", 401),
        (f"Authorization: Bearer {KEY}", 200),
        (f"authorization: bearer  {KEY}", 200),
        (f"X-API-Key: {KEY}", 200),
        ("X-API-Key: second", 200),
    ],
)
def test_who_shows_a_key_is_answered(running, header, status):
    async def story():
        async with running(access=ApiKeys([KEY.encode(), b"second"])) as up:
            asked = up.request(b'{"text": "a"}', JSON, header)
            return await up.raw(asked), await up.raw(up.request(b"", header, method="GET", path="/metrics"))

    for answer in asyncio.run(story()):
        assert answer.status == status
        if status == 401:
            assert answer.headers["www-authenticate"] == "Bearer"
            (problem,) = answer.json["errors"]
            assert "API key" in problem["message"] and "X-API-Key" in problem["hint"]
            assert b"wrong" not in answer.body and KEY.encode() not in answer.body


def test_a_request_shows_two_keys_at_most():
    keys = ApiKeys([KEY.encode()])
    known, unknown = (b"x-api-key", KEY.encode()), (b"x-api-key", b"unknown")
    keys.check([unknown, (b"accept", b"*/*"), known])
    with pytest.raises(Refused, match="more than 2 API keys") as refused:
        keys.check([unknown] * 5000 + [known])
    assert refused.value.status == 401


def test_health_is_open_and_nothing_else(running):
    async def story():
        async with running(access=ApiKeys([b"k"])) as up:
            paths = ("/health", "/health/ready", "/metrics", "/openapi.json", "/predict", "/nothing", "/health/x")
            return {path: (await up.get(path)).status for path in paths}

    found = asyncio.run(story())
    assert {path for path, status in found.items() if status == 200} == {"/health", "/health/ready"}
    assert {status for path, status in found.items() if status != 200} == {401}


def test_the_description_names_the_keys(running):
    async def story():
        async with running(access=ApiKeys([b"k"])) as up:
            return await up.raw(up.request(b"", "X-API-Key: k", method="GET", path="/openapi.json"))

    description = asyncio.run(story()).json
    assert [*description["components"]["securitySchemes"]] == [*map(lambda each: [*each][0], description["security"])]
    assert all(description["paths"][path]["get"]["security"] == [] for path in ("/health", "/health/ready"))


def test_a_file_of_keys(tmp_path, capsys):
    keys = read_api_keys(key_file(tmp_path, f"# ours\n\n {KEY} \r\nsecond\n".encode()))
    keys.check([(b"x-api-key", b"second")])
    keys.check([(b"authorization", f"Bearer {KEY}".encode())])
    assert KEY not in str(vars(keys)) and capsys.readouterr().err == ""
    warn_of_open_files(ServeSettings(api_key_file=key_file(tmp_path, KEY.encode(), 0o644)))
    told = capsys.readouterr().err
    assert "can be read by other users" in told and KEY not in told


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "no key"),
        (b"# only\n\n", "no key"),
        (b"good\ntwo words", "keys.txt:2: a key with a blank"),
        ("schl\u00fcssel".encode(), "keys.txt:1: a key with"),
        (b"\xff\xfe\x00", "UTF-8"),
        (b"a" * 1_000_001, "more than 1000000 bytes"),
    ],
)
def test_a_file_of_keys_that_cannot_be_used(tmp_path, content, message):
    with pytest.raises(UserError, match=message) as error:
        read_api_keys(key_file(tmp_path, content))
    assert "two words" not in str(error.value) and "schl" not in str(error.value)


def test_what_is_no_file_of_keys(tmp_path):
    import os

    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "none", tmp_path, tmp_path / "pipe", Path("/dev/zero"), Path("a\0b")):
        with pytest.raises(UserError, match="--api-key-file"):
            read_api_keys(path)


@pytest.fixture(scope="session")
def pem(tmp_path_factory):
    """Folder with cert.pem and key.pem of localhost, other.pem (another key), locked.pem (with a password)."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here")
    folder = tmp_path_factory.mktemp("pem")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl("req", "-x509", *new, "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
            "-keyout", "key.pem", "-out", "cert.pem")  # fmt: skip
    openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", "other.pem")
    openssl("pkey", "-in", "key.pem", "-aes256", "-passout", "pass:x", "-out", "locked.pem")
    for file in folder.iterdir():
        file.chmod(0o600)
    return folder


def test_https_and_only_that(running, pem):
    tls, client = tls_context(pem / "cert.pem", pem / "key.pem"), ssl.create_default_context(cafile=pem / "cert.pem")

    async def story():
        async with running(tls=tls) as up:
            reader, writer = await asyncio.open_connection("127.0.0.1", up.port, ssl=client)
            writer.write(up.request(b'{"text": "a"}'))
            answer, version = await up.read(reader), writer.get_extra_info("ssl_object").version()
            writer.close()
            with pytest.raises((OSError, EOFError)):
                await up.post({"text": "a"})
            return answer, version

    answer, version = asyncio.run(story())
    assert answer.json == {"text": "a", "length": 1} and version in ("TLSv1.2", "TLSv1.3")


def test_who_shakes_no_hands_has_a_connection_too(running, pem):
    """It counts from its first moment, and is cut off like one who sends no head."""
    tls, client = tls_context(pem / "cert.pem", pem / "key.pem"), ssl.create_default_context(cafile=pem / "cert.pem")

    async def story():
        async with running(tls=tls, max_connections=2, head_seconds=1.0) as up:
            silent = [await up.connect() for _ in range(2)]
            while len(up.service.handshakes) < 2:
                await asyncio.sleep(0.001)
            refused, _ = await up.connect()
            assert await refused.read() == b"" and len(up.service.handshakes) == 2
            for reader, _ in silent:
                assert await asyncio.wait_for(reader.read(), 60) == b""
            answers = []
            for _ in range(2):
                reader, writer = await asyncio.open_connection("127.0.0.1", up.port, ssl=client)
                writer.write(up.request(b"", method="GET", path="/metrics"))
                answers.append(await up.read(reader))
            return answers[1].body.decode()

    told = asyncio.run(story())
    for reason, count in (("too many", 1), ("too slow", 2)):
        assert f'nlpctl_connections_cut_total{{reason="{reason}"}} {count}\n' in told


def test_https_from_the_first_moment(pem):
    tls, client = tls_context(pem / "cert.pem", pem / "key.pem"), ssl.create_default_context(cafile=pem / "cert.pem")
    settings = ServeSettings(port=0)
    with bound_socket(settings) as listening, Starting(listening, settings, tls):
        address = url(listening, tls=True)
        assert address.startswith("https://")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{address}/health", timeout=60, context=client)
        assert refused.value.code == 503 and json.load(refused.value)["status"] == "starting"


def test_who_comes_too_late_is_told_by_https(pem):
    from nlpctl.serve.server import turn_away

    tls, client = tls_context(pem / "cert.pem", pem / "key.pem"), ssl.create_default_context(cafile=pem / "cert.pem")

    async def story():
        with socket.create_server(("127.0.0.1", 0)) as listening:
            sender = asyncio.create_task(asyncio.open_connection(*listening.getsockname(), ssl=client))
            accepted, _ = await asyncio.to_thread(listening.accept)
            leaving = asyncio.create_task(turn_away(accepted, 10, tls))
            reader, writer = await sender
            writer.write(b"GET /health HTTP/1.1\r\n\r\n")
            answer = await asyncio.wait_for(reader.readuntil(b"}]}"), 10)
            writer.close()
            await leaving
            return answer

    assert asyncio.run(story()).startswith(b"HTTP/1.1 503 ")


@pytest.mark.parametrize(
    "certificate, key, message",
    [
        ("cert.pem", "other.pem", "not the key of"),
        ("cert.pem", "locked.pem", "password"),
        ("key.pem", "cert.pem", "no certificate and key"),
        ("cert.pem", "nothing", "--tls-key .*No such file"),
        ("nothing", "key.pem", "--tls-cert .*No such file"),
    ],
)
def test_files_of_tls_that_do_not_fit(pem, certificate, key, message):
    with pytest.raises(UserError, match=message):
        tls_context(pem / certificate, pem / key)


def test_a_certificate_without_its_key():
    for given, other in (("tls_cert", "--tls-key"), ("tls_key", "--tls-cert")):
        with pytest.raises(UserError, match=f"needs {other} too"):
            ServeSettings(**{given: Path("x.pem")})
