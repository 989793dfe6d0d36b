"""The process between `launch` and its ranks: Paddle's launcher, which ends together with its parent."""

from __future__ import annotations

import os

from nlpctl.parent import die_with_parent


def main() -> None:
    die_with_parent(int(os.environ["NLPCTL_PARENT"]))
    os.environ["NLPCTL_PARENT"] = str(os.getpid())  # the ranks' parent
    from paddle.distributed.launch.main import launch

    launch()


if __name__ == "__main__":
    main()
