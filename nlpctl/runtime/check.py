"""One line of `nlpctl doctor`, and asking another Python process, since the doctor imports nothing heavy."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Literal

from nlpctl.runtime.child import module_path

Status = Literal["ok", "warning", "failure"]
IMPORT_SECONDS = 180  # a cold start from a network disk


@dataclass(frozen=True)
class Check:
    """What was looked at, how it is, and what to do about it ("" when nothing)."""

    name: str
    status: Status
    detail: str
    remedy: str = ""


@dataclass(frozen=True)
class Answer:
    """What a Python process printed, and how it failed ("" when it did not)."""

    output: str
    error: str


def ask_python(code: str, environ: dict[str, str] | None = None, seconds: float = IMPORT_SECONDS) -> Answer:
    """Run `code` in a fresh Python that finds the same modules as this one."""
    env = {**os.environ, **(environ or {}), "PYTHONPATH": module_path(), "PYTHONIOENCODING": "utf-8"}
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=env, timeout=seconds)
    except subprocess.TimeoutExpired:
        return Answer("", f"no answer within {seconds:g} s")
    output, errors = (stream.decode("utf-8", errors="replace") for stream in (done.stdout, done.stderr))
    if done.returncode == 0:
        return Answer(output.strip(), "")
    return Answer(output.strip(), _last_error(errors) or _ending(done.returncode))


def _last_error(text: str) -> str:
    """The line that says what went wrong: the last that names an error, else the last there is."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    naming = [line for line in lines if "Error:" in line or "error:" in line]
    return (naming or lines or [""])[-1]


def _ending(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"
