"""A process that the doctor launches to check that all processes get the same sum.

With a file as argument, rank 0 writes there how long sums of each of SIZES take, as JSON {bytes: seconds}.
"""

from __future__ import annotations

import json
import signal
import statistics
import sys
import time
from pathlib import Path

import nlpctl  # noqa: F401  (zlib before paddle)
from nlpctl import console
from nlpctl.config.schema import RuntimeSection
from nlpctl.runtime.process import configure_paddle, prepare_process
from nlpctl.runtime.ranks import meeting

SIZES = (1 << 10, 64 << 20)  # bytes: a loss, and the gradients of a small network
TIMES = 5
LIMIT_SECONDS = 180


def main() -> None:
    signal.alarm(LIMIT_SECONDS)  # where connections lead nowhere, libraries wait for a quarter of an hour
    setup = prepare_process(RuntimeSection(), 0)
    configure_paddle(setup, 0)
    import paddle

    with meeting():
        paddle.distributed.init_parallel_env()
    total = paddle.to_tensor([float(setup.rank + 1)])
    paddle.distributed.all_reduce(total)
    expected = setup.world_size * (setup.world_size + 1) / 2
    if float(total) != expected:
        raise SystemExit(f"error: the sum is {float(total)}, not {expected}")
    if sys.argv[1:]:
        taken = {size: _seconds(size) for size in SIZES}
        if setup.rank == 0:
            Path(sys.argv[1]).write_text(json.dumps(taken), encoding="utf-8")
        return
    console.result("done")


def _seconds(size: int) -> float:
    """The median time of a sum of `size` bytes."""
    import paddle

    numbers, taken = paddle.ones([size // 4], dtype="float32"), []
    for _ in range(TIMES + 1):
        paddle.distributed.barrier()
        begun = time.perf_counter()
        paddle.distributed.all_reduce(numbers)
        numbers[0].item()  # on a GPU, wait for it
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken[1:])  # the first makes the connections


if __name__ == "__main__":
    main()
