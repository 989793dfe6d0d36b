"""A service that a test started, and requests to it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any


def listening(process: Any) -> tuple[str, list[str]]:
    """Wait until `nlpctl serve` listens: its address, and the lines it wrote before."""
    log: list[str] = []
    while not (log and log[-1].startswith("serving ")):
        log.append(process.stderr.readline())
        assert log[-1], "".join(log)
    return log[-1].split(" on ")[1].split()[0], log


def post(url: str, value: Any, key: str = "") -> tuple[int, Any]:
    """The status and the content of POST /predict. `key`: the API key."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"{url}/predict", json.dumps(value).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
