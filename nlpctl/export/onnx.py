"""From Paddle's static graph to ONNX, by paddle2onnx in a process of its own: it can abort the process it runs in."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from nlpctl.errors import RunFailed, UserError
from nlpctl.export.to_graph import PARAMETERS, PROGRAM
from nlpctl.runtime.versions import installed_version

OPSET = 13
SHOWN = 5  # lines of what paddle2onnx said

# nlpctl comes first: see its __init__.
_CODE = """
import sys
import nlpctl
import paddle2onnx
program, parameters, file, opset = sys.argv[1:]
content = paddle2onnx.export(program, parameters, None, int(opset), False, False, True, True, True)
if not content:
    sys.exit("paddle2onnx made nothing of it")
with open(file, "wb") as stream:
    stream.write(content)
"""


def write_onnx_graph(prefix: Path, file: Path) -> None:
    """Convert PREFIX.pdmodel to `file`. UserError without paddle2onnx, RunFailed where it cannot convert the graph."""
    if installed_version("paddle2onnx") is None:
        hint = "pip install paddle2onnx, or leave out --format onnx"
        raise UserError("paddle2onnx is not installed", where="--format onnx", hint=hint)
    program, parameters = (str(prefix) + ending for ending in (PROGRAM, PARAMETERS))
    command = [sys.executable, "-c", _CODE, program, parameters, str(file), str(OPSET)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL)
    if done.returncode == 0 and file.is_file():
        return
    said = "\n".join([line for line in (done.stdout + done.stderr).splitlines() if line.strip()][-SHOWN:])
    raise RunFailed(
        f"paddle2onnx could not convert the graph ({_ended(done.returncode)}):\n{said}",
        where="--format onnx",
        hint="export it without: --format paddle",
    )


def _ended(code: int) -> str:
    return f"exit {code}" if code >= 0 else signal.Signals(-code).name
