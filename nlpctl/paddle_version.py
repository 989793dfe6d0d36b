"""Which Paddle is installed, and what differs between the releases that nlpctl knows. Imports no Paddle.

nlpctl is written for the program format of Paddle 2.6, which 3.1 still writes and runs when FLAGS_enable_pir_api is 0
before Paddle is imported. docs/upstream.md tells what holds on which release.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from typing import Any

WHEELS = ("paddlepaddle", "paddlepaddle-gpu")
KNOWN = ((2, 6), (3, 1))  # releases, the first the one that nlpctl is written for; each has its extra in pyproject.toml
OLD_FORMAT = "FLAGS_enable_pir_api"


@functools.cache
def installed_paddle() -> str | None:
    """The version of the installed Paddle, such as "2.6.2" or "3.1.1.post126"; None if there is none."""
    import importlib.metadata  # late: it takes as long as the rest of `nlpctl --help`

    for wheel in WHEELS:
        try:
            return importlib.metadata.version(wheel)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def release_of(version: str) -> tuple[int, int] | None:
    """(2, 6) of "2.6.2"; None if it is no version number."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else None


def release() -> tuple[int, int]:
    """Major and minor number of the installed Paddle; the first known one if none is installed."""
    return release_of(installed_paddle() or "") or KNOWN[0]


def keep_old_format() -> None:
    """Have Paddle 3 write and run programs of the old format; called before the first `import paddle`.

    paddlepaddle 3.0 and later, base/framework.py: by default programs are of the new format (PIR). int8 graphs, names
    of outputs, and operators called by name need the old one. 2.6 knows the flag too, and it is off there. What the
    user exported stays; runtime/process.py refuses the new format.
    Test: tests/test_paddle_version.py.
    """
    if "paddle" not in sys.modules:
        os.environ.setdefault(OLD_FORMAT, "0")


def described_tensor(variable_type: Any) -> Any:
    """The description of a tensor in a VarType message: its field `lod_tensor`, since Paddle 3 `dense_tensor`.

    Only the names in framework.proto changed, so each release reads the files of the other.
    Test: tests/test_paddle_version.py.
    """
    return getattr(variable_type, _tensor_field(variable_type))


def describes_tensor(variable_type: Any) -> bool:
    """Whether a VarType message describes a tensor."""
    return bool(variable_type.HasField(_tensor_field(variable_type)))


def _tensor_field(variable_type: Any) -> str:
    return "dense_tensor" if "dense_tensor" in variable_type.DESCRIPTOR.fields_by_name else "lod_tensor"
