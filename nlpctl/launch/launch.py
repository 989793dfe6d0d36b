"""Several processes for one command, through paddle.distributed.launch.

    nlpctl (this process)            relays rank 0, watches, ends everything
      launcher.py                    paddle.distributed.launch
        rank_main.py, once per rank  runs the same nlpctl command with its rank in the environment

Every rank writes LOG_DIR/rank-N.log. Rank 0's stdout arrives on our stdout, its stderr on our stderr. No process is
left running in any case.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from nlpctl import console, spelling
from nlpctl.config.schema import RuntimeSection
from nlpctl.errors import EXIT_FAILED, RunFailed, UserError
from nlpctl.launch.rank_monitor import RankMonitor
from nlpctl.parent import SAFE_PATH
from nlpctl.runtime.device import choose_device, visible_devices
from nlpctl.runtime.interrupt import sigterm_interrupts
from nlpctl.runtime.machine import physical_cores, refuse_processes
from nlpctl.runtime.ranks import EXCHANGE, is_child
from nlpctl.runtime.worker import module_path

PORTS = 3
# Paddle's launcher takes ports up to 64000, where the system takes those of outgoing connections, from 32768 on.
_PORT_RANGE = "20000:32000"

# Variables that an outer launcher or platform may have set, and those that paddle.distributed.launch reads as options.
# For the launcher, environment variables override its command line, so all of these are removed.
_LAUNCHER_VARIABLES = """
    PADDLE_MASTER PADDLE_DEVICES PADDLE_NNODES PADDLE_RUN_MODE PADDLE_LOG_LEVEL PADDLE_LOG_OVERWRITE PADDLE_SORT_IP
    PADDLE_NPROC_PER_NODE PADDLE_JOB_ID PADDLE_RANK PADDLE_LOG_DIR PADDLE_MAX_RESTART PADDLE_ELASTIC_LEVEL
    PADDLE_ELASTIC_TIMEOUT PADDLE_SERVER_NUM PADDLE_TRAINER_NUM PADDLE_SERVERS_ENDPOINTS PADDLE_TRAINERS_ENDPOINTS
    PADDLE_GLOO_PORT PADDLE_WITH_GLOO PADDLE_START_PORT PADDLE_IPS PADDLE_AUTO_PARALLEL_CONFIG PADDLE_TRAINER_ID
    PADDLE_TRAINERS_NUM PADDLE_TRAINER_ENDPOINTS PADDLE_CURRENT_ENDPOINT PADDLE_GLOBAL_SIZE PADDLE_LOCAL_SIZE
    PADDLE_GLOBAL_RANK PADDLE_LOCAL_RANK PADDLE_RANK_IN_NODE PADDLE_DISTRI_BACKEND PADDLE_XCCL_BACKEND POD_IP
    DISTRIBUTED_TRAINER_ENDPOINTS FLAGS_selected_gpus WITH_COVERAGE
""".split()


def without_launchers(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` without the variables of other launchers."""
    return {name: value for name, value in environ.items() if name not in _LAUNCHER_VARIABLES}


def forget_launchers() -> None:
    """Take the variables of other launchers out of this process."""
    for name in _LAUNCHER_VARIABLES:
        os.environ.pop(name, None)


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

    Returns 0 when all ranks ended well, 130 when interrupted, else the exit code (1 or 2) of the rank that failed
    first, after showing its last lines. Raises UserError for cards that do not exist; RunFailed if other programs take
    the port at which the ranks are to meet, PORTS times.
    """
    if devices:
        choose_device("gpu", devices)
    log_dir.mkdir(parents=True, exist_ok=True)
    for _ in range(PORTS):
        code = _launch_once(argv, nproc, devices, log_dir.absolute(), program)
        if code is not None:
            return code
        console.note("the port of the processes was taken: all of them start again, with another port")
    raise port_lost(log_dir)


def port_lost(log_dir: Path) -> RunFailed:
    """The error when other programs have taken the port of the ranks PORTS times."""
    hint = "start it again; PORT_RANGE=20000:30000 in the environment names the ports to take"
    return RunFailed(f"the processes could not meet: other programs took their port {PORTS} times", str(log_dir), hint)


def _launch_once(
    argv: Sequence[str], nproc: int, devices: tuple[int, ...], log_dir: Path, program: Sequence[str]
) -> int | None:
    """The exit code; None if the ranks could not meet, since their port was taken."""
    with tempfile.TemporaryDirectory(prefix="nlpctl-launch-") as folder:
        exchange = Path(folder)
        os.mkfifo(exchange / "stdout")
        with (exchange / "launcher.log").open("wb") as output:
            launcher = subprocess.Popen(
                _command(argv, nproc, exchange, program),
                env=_environment(nproc, devices, log_dir, exchange, os.environ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a new session: Ctrl-C reaches only this process, which passes it on
            )
        with sigterm_interrupts(), RankMonitor(launcher, nproc, exchange, log_dir) as monitor:
            code = monitor.until_end()
        return None if monitor.port_taken and code == EXIT_FAILED else code


def _command(argv: Sequence[str], nproc: int, exchange: Path, program: Sequence[str]) -> list[str]:
    """The launcher's command line. A "script" that does not end in .py is run as it is, so it can be Python itself."""
    options = {
        "--nproc_per_node": str(nproc),
        "--host": "127.0.0.1",  # otherwise the launcher resolves the host name
        "--log_dir": str(exchange),  # its log files list the whole environment, so keep them out of the run directory
        "--enable_gpu_log": "false",
        "--max_restart": "0",
    }
    flat = [word for option in options.items() for word in option]
    rank = [sys.executable, *SAFE_PATH, "-m", "nlpctl.launch.rank_main", *program, *argv]
    return [sys.executable, *SAFE_PATH, "-m", "nlpctl.launch.launcher", *flat, *rank]


def _environment(
    nproc: int, devices: tuple[int, ...], log_dir: Path, exchange: Path, environ: Mapping[str, str]
) -> dict[str, str]:
    """The launcher's environment, which the ranks inherit."""
    added = {
        # The ranks find the same modules as this process.
        "PYTHONPATH": module_path(),
        "PYTHONIOENCODING": "utf-8",
        "NLPCTL_PARENT": str(os.getpid()),
        spelling.VARIABLE: spelling.current(),
        EXCHANGE: str(exchange),
        "NLPCTL_LOG_DIR": str(log_dir),
        "NLPCTL_ON_CPU": "0" if devices else "1",
        "PORT_RANGE": environ.get("PORT_RANGE", _PORT_RANGE),
    }
    added |= {f"NLPCTL_{name}": environ[name] for name in ("http_proxy", "https_proxy") if name in environ}
    # The launcher imports Paddle, which would set it to 1, and the ranks would take that as the user's setting.
    added["OMP_NUM_THREADS"] = environ.get("OMP_NUM_THREADS", str(max(1, physical_cores() // nproc)))
    visible = visible_devices(devices, environ)
    if visible is not None:
        added["CUDA_VISIBLE_DEVICES"] = visible
    elif not devices:
        # If this variable is set, the launcher assigns one GPU of it per rank; otherwise it counts all GPUs, even those
        # it must not use. Placeholders work on CPU and GPU builds.
        added |= {"CUDA_VISIBLE_DEVICES": ",".join(["-1"] * nproc), "PADDLE_DISTRI_BACKEND": "gloo"}
    return {**without_launchers(environ), **added}
