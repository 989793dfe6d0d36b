"""From Paddle's static graph to ONNX, by paddle2onnx in a separate process, because it may abort its process."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

from nlpctl.errors import RunFailed, UserError
from nlpctl.graphs.onnx_process import CANNOT_WRITE
from nlpctl.runtime.versions import installed_version
from nlpctl.runtime.worker import how_ended, run_python

OPSET = 13
SHOWN = 5  # lines of paddle2onnx's output in a message
_MODULE = "nlpctl.graphs.onnx_process"
_NEEDED = ("paddle2onnx", "onnx")


def require_paddle2onnx(where: str = "", otherwise: str = "") -> None:
    """UserError if packages for ONNX graphs are missing.

    `where`: the key or flag that asks for these graphs, if one does. `otherwise`: the alternative to installing them.
    """
    missing = [package for package in _NEEDED if installed_version(package) is None]
    if missing:
        hint = f"pip install {' '.join(missing)}" + (f", or {otherwise}" if otherwise else "")
        raise UserError(f"{' and '.join(missing)} not installed", where=where, hint=hint)


def write_onnx_graph(prefix: Path, file: Path, pad_id: int, where: str = "", otherwise: str = "") -> None:
    """Convert PREFIX.pdmodel to `file`. RunFailed if paddle2onnx fails, OSError if `file` cannot be written, or memory
    is exhausted.

    `where` and `otherwise` as for `require_paddle2onnx`.
    """
    done = run_python("-m", _MODULE, str(prefix), str(file), str(OPSET), str(pad_id))
    if done.code == 0:
        return
    if done.code == CANNOT_WRITE:
        number = int(done.output.split()[-1])
        raise OSError(number, os.strerror(number), str(file))
    if done.code == -signal.SIGKILL:  # the system does so where memory lacks; of the network it says nothing
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM), str(file))
    said = [line.strip() for line in f"{done.output}\n{done.errors}".splitlines() if line.strip()][-SHOWN:]
    raise RunFailed(
        f"paddle2onnx could not convert the graph ({how_ended(done.code)}): " + "\n  ".join(said),
        where=where,
        hint=otherwise,
    )
