"""From Paddle's static graph to ONNX, by paddle2onnx in a process of its own: it can abort the process it runs in."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from nlpctl.errors import RunFailed, UserError
from nlpctl.graphs.onnx_process import CANNOT_WRITE
from nlpctl.runtime.versions import installed_version

OPSET = 13
SHOWN = 5  # lines of what paddle2onnx said
_MODULE = "nlpctl.graphs.onnx_process"
_NEEDED = ("paddle2onnx", "onnx")


def require_paddle2onnx() -> None:
    """UserError where ONNX graphs cannot be made."""
    missing = [package for package in _NEEDED if installed_version(package) is None]
    if missing:
        hint = f"pip install {' '.join(missing)}, or leave out --format onnx"
        raise UserError(f"{' and '.join(missing)} not installed", where="--format onnx", hint=hint)


def write_onnx_graph(prefix: Path, file: Path, pad_id: int) -> None:
    """Convert PREFIX.pdmodel to `file`. RunFailed where paddle2onnx cannot, OSError where `file` cannot be written."""
    command = [sys.executable, "-m", _MODULE, str(prefix), str(file), str(OPSET), str(pad_id)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)
    if done.returncode == 0:
        return
    if done.returncode == CANNOT_WRITE:
        raise OSError(done.stdout.strip())
    said = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()][-SHOWN:]
    raise RunFailed(
        f"paddle2onnx could not convert the graph ({_ended(done.returncode)}): " + "\n  ".join(said),
        where="--format onnx",
        hint="export it for Paddle alone: --format paddle",
    )


def _ended(code: int) -> str:
    return f"exit {code}" if code >= 0 else signal.Signals(-code).name
