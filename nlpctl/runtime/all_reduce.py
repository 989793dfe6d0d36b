"""A process that the doctor launches to check that all processes get the same sum."""

from __future__ import annotations

import nlpctl  # noqa: F401  (zlib before paddle)
from nlpctl import console
from nlpctl.config.schema import RuntimeSection
from nlpctl.runtime.process import configure_paddle, prepare_process
from nlpctl.runtime.ranks import meeting


def main() -> None:
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
    console.result("done")


if __name__ == "__main__":
    main()
