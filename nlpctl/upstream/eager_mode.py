"""Eager mode that outlives the thread that switched it on."""

from __future__ import annotations

import atexit
import threading
from typing import Any

_entered: list[Any] = []
atexit.register(_entered.clear)  # while what a context needs to be left is still there


def keep_eager_mode() -> None:
    """Keep the process in eager mode when this thread ends, which has imported Paddle or called paddle.disable_static.

    paddlepaddle, base/dygraph/base.py:226, base/framework.py:137: the eager mode of the process is a context that lies
    in a variable of the thread that entered it. When that thread ends, the context is collected and left: all threads
    are in static mode, in which a network crashes the process. So it is kept here.
    Test: tests/upstream/test_eager_mode.py.
    """
    if threading.current_thread() is threading.main_thread():
        return
    from paddle.base.framework import global_var

    context = global_var._functional_dygraph_context_manager
    still = [each for each in _entered if each.gen.gi_frame is not None]  # the others were left by enable_static
    _entered[:] = still if context is None or context in still else [*still, context]
