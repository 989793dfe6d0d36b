"""Doctor's checks of Python and its packages: versions against the pins, and whether they can be imported."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable

from nlpctl.errors import UserError
from nlpctl.runtime.check import Check, ask_python
from nlpctl.runtime.device import CPU_WHEEL, GPU_WHEEL, Probes, paddle_wheel
from nlpctl.runtime.versions import Pin, installed_version, pins

TESTED_PYTHON = (3, 11)
IMPORTED = ("paddle", "paddlenlp", "paddleslim", "paddle2onnx", "onnxruntime")

# Compressing and decompressing through zlib is what fails or crashes where Paddle was imported first.
_ZLIB_CODE = """
import nlpctl, os, paddle, zlib
data = os.urandom(1 << 16) * 4
assert zlib.decompress(zlib.compress(data)) == data
"""


def python_version(running: tuple[int, int] | None = None) -> Check:
    """The Python that runs this; others than the tested one only earn a warning."""
    running = running or (sys.version_info.major, sys.version_info.minor)
    tested = ".".join(map(str, TESTED_PYTHON))
    detail = f"{platform.python_version()} ({sys.executable})"
    if running == TESTED_PYTHON:
        return Check("python", "ok", detail)
    return Check("python", "warning", detail, f"nlpctl is tested with Python {tested}: make the environment with it")


def paddle_package(probes: Probes | None = None) -> Check:
    """Exactly one of the two Paddle packages must be there."""
    try:
        return Check("paddle package", "ok", paddle_wheel(probes))
    except UserError as error:
        problem = error.problems[0]
        return Check("paddle package", "failure", problem.message, problem.hint)


def pinned_packages(installed: Callable[[str], str | None] = installed_version) -> list[Check]:
    """One line per declared package; of the extras only the Paddle that is installed counts."""
    wheels = [name for name in (CPU_WHEEL, GPU_WHEEL) if installed(name) is not None]
    return [_pinned(pin, installed(pin.package)) for pin in pins() if pin.extra == "" or pin.package in wheels]


def _pinned(pin: Pin, version: str | None) -> Check:
    if version is None:
        return Check(pin.package, "failure", f"not installed (needed: {pin})", f"pip install '{pin}'")
    if not pin.allows(version):
        return Check(pin.package, "failure", f"{version}, but {pin} is needed", f"pip install '{pin}'")
    return Check(pin.package, "ok", f"{version} ({pin.bounds or 'any version'})")


def import_health(module: str) -> Check:
    """Whether `module` can be imported after nlpctl, in a process of its own."""
    name = f"import {module}"
    answer = ask_python(f"import nlpctl, {module}", {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""})
    if not answer.error:
        return Check(name, "ok", "works")
    remedy = "mend the versions above; else reinstall: pip install --force-reinstall nlpctl with its extra cpu or gpu"
    return Check(name, "failure", answer.error, remedy)


def zlib_order() -> Check:
    """Whether zlib still works once Paddle is loaded (see nlpctl/__init__.py)."""
    answer = ask_python(_ZLIB_CODE, {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""})
    if not answer.error:
        return Check("zlib beside paddle", "ok", "works")
    return Check("zlib beside paddle", "failure", answer.error, "in your own scripts, import nlpctl before paddle")
