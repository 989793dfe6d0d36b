"""Sums of all processes of a run; as a program, a process that the doctor launches to check that all get the same."""

from __future__ import annotations

import signal
import statistics
import time

import nlpctl  # noqa: F401  (zlib before paddle)
from nlpctl import console
from nlpctl.config.schema import RuntimeSection
from nlpctl.errors import EXIT_OK
from nlpctl.runtime.process import configure_paddle, prepare_process
from nlpctl.runtime.ranks import meeting, note_exit, rank, world_size

SIZES = (1 << 10, 64 << 20)  # bytes: a loss, and the gradients of a small network
TIMES = 5
LIMIT_SECONDS = 180


def main() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # blocked by RankProcess, until it can be answered
    signal.alarm(LIMIT_SECONDS)  # where connections lead nowhere, libraries wait for a quarter of an hour
    configure_paddle(prepare_process(RuntimeSection(), 0), 0)
    import paddle

    with meeting():
        paddle.distributed.init_parallel_env()
    check_combination()
    console.result("done")
    note_exit(EXIT_OK)


def check_combination() -> None:
    """SystemExit unless all processes get the sum of their numbers."""
    import paddle

    total = paddle.to_tensor([float(rank() + 1)])
    paddle.distributed.all_reduce(total)
    expected = world_size() * (world_size() + 1) / 2
    if float(total) != expected:
        raise SystemExit(f"error: the sum is {float(total)}, not {expected}")


def seconds_of_sums() -> dict[int, float]:
    """The median time of sums of each of SIZES, by their bytes. SystemExit as of `check_combination`."""
    import paddle

    check_combination()
    medians = {}
    for size in SIZES:
        numbers, seconds = paddle.ones([size // 4], dtype="float32"), []
        for _ in range(TIMES + 1):
            paddle.distributed.barrier()
            begun = time.perf_counter()
            paddle.distributed.all_reduce(numbers)
            numbers[0].item()  # on a GPU, wait for it
            seconds.append(time.perf_counter() - begun)
        medians[size] = statistics.median(seconds[1:])  # the first makes the connections
    return medians


if __name__ == "__main__":
    main()
