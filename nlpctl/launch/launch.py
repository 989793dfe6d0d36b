"""Several processes for one command on this machine: `nlpctl train --nproc N`, `--devices 0,1`.

    nlpctl (this process)            relays rank 0, watches, ends everything (rank_monitor.py)
      python -m nlpctl, once per rank    the same command, with its rank in Paddle's variables

Every rank writes LOG_DIR/rank-N.log. Rank 0's stdout arrives on our stdout, its stderr on our stderr. No process is
left running in any case. The variables are those that paddle.distributed.launch sets (docs/upstream.md).
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from nlpctl import spelling
from nlpctl.config.schema import RuntimeSection
from nlpctl.errors import UserError
from nlpctl.launch.rank_monitor import SETTLE_SECONDS, RankProcess, RankStatus, end_processes, log_name, run_ranks
from nlpctl.runtime.device import choose_device, visible_devices
from nlpctl.runtime.machine import refuse_processes
from nlpctl.runtime.ranks import device_variables, free_port, is_child, rank_variables, without_launchers

_ADDRESS = "127.0.0.1"

def processes_wanted(runtime: RuntimeSection) -> int:
    """The number of processes to launch for this recipe; 1: run in this process (always 1 in a launched process).

    Raises UserError if device, devices and nproc contradict each other, or memory cannot hold as many processes.
    """
    if is_child():
        return 1
    if runtime.devices and runtime.nproc not in (1, len(runtime.devices)):
        raise UserError(
            f"nproc is {runtime.nproc}, but {len(runtime.devices)} cards are listed, and each card gets one process",
            "runtime.nproc",
            "leave out @[runtime.nproc]",
        )
    if runtime.nproc > 1 and not runtime.devices and runtime.device == "gpu":
        hint = "list the cards: @[runtime.devices=0,1]"
        raise UserError("nproc starts processes on CPU, but the device is gpu", "runtime.nproc", hint)
    refuse_processes(runtime.nproc, "runtime.nproc")
    return max(len(runtime.devices), runtime.nproc)


def launch(
    argv: Sequence[str],
    nproc: int,
    devices: tuple[int, ...],
    log_dir: Path,
    program: Sequence[str] = ("-m", "nlpctl"),
) -> int:
    """Run `python PROGRAM ARGV` in `nproc` processes, one per card of `devices`, or on CPU without any.

    Returns the exit code, and raises RunFailed, as `run_ranks`. UserError for cards that do not exist.
    """
    if devices:
        choose_device("gpu", devices)
    log_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="nlpctl-launch-") as folder:
        ranks = _LocalRanks([*program, *argv], nproc, devices, log_dir, Path(folder))
        return run_ranks(ranks, nproc, log_dir)


class _LocalRanks:
    """The ranks of one launch, as processes of this machine: `Ranks` of rank_monitor.py."""

    poll_seconds = 0.05
    settle_seconds = SETTLE_SECONDS

    def __init__(self, arguments: Sequence[str], nproc: int, devices: tuple[int, ...], log_dir: Path, folder: Path):
        self._arguments, self._nproc, self._devices = arguments, nproc, devices
        self._log_dir, self._folder = log_dir, folder
        self._processes: list[RankProcess] = []

    def start(self) -> None:
        port = free_port()
        self._processes = []
        for rank in range(self._nproc):
            folder = self._folder / str(rank)
            folder.mkdir(exist_ok=True)
            environment = rank_environment(rank, self._nproc, self._devices, port, os.environ)
            log = self._log_dir.absolute() / log_name(rank)
            self._processes.append(RankProcess(self._arguments, environment, folder, log))
        for process in self._processes:
            process.start()

    def poll(self, ranks: Sequence[int]) -> Iterator[tuple[int, RankStatus]]:
        for rank in ranks:
            yield rank, self._processes[rank].poll()

    def interrupt(self) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGINT)

    def stop(self) -> None:
        end_processes(self._processes)

    def place(self, rank: int) -> str:
        return ""


def rank_environment(
    rank: int, nproc: int, devices: tuple[int, ...], port: int, environ: Mapping[str, str]
) -> dict[str, str]:
    """The environment of process `rank` of `nproc` on this machine, which meet at `port`; `environ`: of this process.

    A rank on cards sees all of `devices`, as under paddle.distributed.launch.
    """
    endpoints = [f"{_ADDRESS}:{port + 1 + each}" for each in range(nproc)]
    variables = rank_variables(rank, endpoints, f"{_ADDRESS}:{port}", rank, nproc)
    variables |= device_variables(rank if devices else None)
    if (visible := visible_devices(devices, environ)) is not None:
        variables["CUDA_VISIBLE_DEVICES"] = visible
    variables[spelling.VARIABLE] = spelling.current()  # whoever reads our messages reads theirs
    return {**without_launchers(environ), **variables}
