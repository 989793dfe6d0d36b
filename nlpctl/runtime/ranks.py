"""Rank and world size, in the environment variables of Paddle, and how the ranks meet.

nlpctl sets these variables as paddle.distributed.launch does (launch/), or by what a scheduler has set. A rank that
nlpctl started has a folder for notes to the process that watches it (launch/rank_monitor.py).
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import random
import re
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from nlpctl.errors import RunFailed, UserError
from nlpctl.names import whole_number

RANK, WORLD_SIZE, LOCAL_SIZE = "PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM", "PADDLE_LOCAL_SIZE"
CARD_OF_RANK = "FLAGS_selected_gpus"
EXCHANGE = "NLPCTL_EXCHANGE"  # a rank's folder for notes, if nlpctl started it
PORT_TAKEN = "port-taken"  # a note: this rank could not meet the others
GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"
_GET_ADDRESS = 0x8915  # SIOCGIFADDR
_FIRST_PORT, _LAST_PORT = 20_000, 32_000  # below those that the system gives to outgoing connections


# Variables that an outer launcher or a platform may have set, and that Paddle reads in a rank, or its launcher does.
_LAUNCHER_VARIABLES = """
    PADDLE_MASTER PADDLE_DEVICES PADDLE_NNODES PADDLE_RUN_MODE PADDLE_LOG_LEVEL PADDLE_LOG_OVERWRITE PADDLE_SORT_IP
    PADDLE_NPROC_PER_NODE PADDLE_JOB_ID PADDLE_RANK PADDLE_LOG_DIR PADDLE_MAX_RESTART PADDLE_ELASTIC_LEVEL
    PADDLE_ELASTIC_TIMEOUT PADDLE_SERVER_NUM PADDLE_TRAINER_NUM PADDLE_SERVERS_ENDPOINTS PADDLE_TRAINERS_ENDPOINTS
    PADDLE_GLOO_PORT PADDLE_WITH_GLOO PADDLE_START_PORT PADDLE_IPS PADDLE_AUTO_PARALLEL_CONFIG PADDLE_TRAINER_ID
    PADDLE_TRAINERS_NUM PADDLE_TRAINER_ENDPOINTS PADDLE_CURRENT_ENDPOINT PADDLE_GLOBAL_SIZE PADDLE_LOCAL_SIZE
    PADDLE_GLOBAL_RANK PADDLE_LOCAL_RANK PADDLE_RANK_IN_NODE PADDLE_DISTRI_BACKEND PADDLE_XCCL_BACKEND POD_IP
    DISTRIBUTED_TRAINER_ENDPOINTS FLAGS_selected_gpus WITH_COVERAGE
    PADDLE_BACKUP_ENV_PATH PADDLE_AUTO_CLUSTER
""".split()


def without_launchers(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` without the variables of other launchers."""
    return {name: value for name, value in environ.items() if name not in _LAUNCHER_VARIABLES}


def forget_launchers() -> None:
    """Take the variables of other launchers out of this process."""
    for name in _LAUNCHER_VARIABLES:
        os.environ.pop(name, None)


def not_started_here(hint: str) -> UserError:
    """For a process that a launcher counts among several; or the variable is a leftover."""
    message = f"{WORLD_SIZE} says that this is one of several processes, but nlpctl has not started them"
    return UserError(message, WORLD_SIZE, hint)


def is_of_launcher() -> bool:
    """Whether another launcher than nlpctl numbered this process, or Kubeflow's operator did."""
    return EXCHANGE not in os.environ and any(name in os.environ for name in (RANK, WORLD_SIZE, LOCAL_SIZE))


def rank() -> int:
    """Number of this process among all of the run, 0 in a single-process run."""
    return _number(RANK, 0)


def world_size() -> int:
    """Number of processes of the run."""
    return _number(WORLD_SIZE, 1)


def local_size() -> int:
    """Number of processes of the run on this machine."""
    return _number(LOCAL_SIZE, 1)


def _number(variable: str, default: int) -> int:
    """The number in an environment variable; `default` if it is unset or empty. UserError if it is no number."""
    text = os.environ.get(variable, "") or str(default)
    if (number := whole_number(text, 10**9)) is None:
        raise UserError(f"{text[:40]!r} is not the number of a process", where=variable, hint=f"unset {variable}")
    return number


def is_child() -> bool:
    """True in a process that was started as one of several; it must not start others."""
    return world_size() > 1


def rank_variables(
    rank: int, endpoints: Sequence[str], master: str, local_rank: int, local_size: int
) -> dict[str, str]:
    """The variables that Paddle's launcher sets for process `rank` of several, without those of its device.

    `endpoints`: HOST:PORT of every process; nothing listens there, but Paddle downloads once per host. `master`: where
    process 0 opens the store in which they meet. `local_rank`, `local_size`: among those of the same machine.
    """
    world = str(len(endpoints))
    return {
        RANK: str(rank),
        WORLD_SIZE: world,
        "PADDLE_GLOBAL_RANK": str(rank),
        "PADDLE_GLOBAL_SIZE": world,
        "PADDLE_LOCAL_RANK": str(local_rank),
        "PADDLE_RANK_IN_NODE": str(local_rank),
        LOCAL_SIZE: str(local_size),
        "PADDLE_NNODES": str(len({endpoint.rpartition(":")[0] for endpoint in endpoints})),
        "PADDLE_MASTER": master,
        "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
        "PADDLE_CURRENT_ENDPOINT": endpoints[rank],
    }


def device_variables(card: int | None) -> dict[str, str]:
    """The variables of a rank's device. `card`: its number among those that the rank sees; None: it is on CPU."""
    if card is None:
        return {"CUDA_VISIBLE_DEVICES": "", "PADDLE_DISTRI_BACKEND": "gloo"}
    return {CARD_OF_RANK: str(card)}


def exit_note(process: int) -> str:
    """The name of the note in which a rank leaves its exit code. `process`: its id, since programs that it starts
    inherit its environment."""
    return f"exit-code-{process}"


def note_exit(code: int) -> int:
    """In a rank that nlpctl started, note its exit code; returns `code`.

    Otherwise the others would wait for one whose process does not end: a thread of NCCL may wait for them in turn.
    """
    if EXCHANGE in os.environ:
        path = Path(os.environ[EXCHANGE], exit_note(os.getpid()))
        with contextlib.suppress(OSError):  # a full disk; the exit code itself is still seen
            staged = path.with_suffix(".new")
            staged.write_text(str(code), encoding="ascii")
            staged.rename(path)
    return code


def free_port() -> int:
    """A port of this machine that is free now; PORT_RANGE=FIRST:LAST names others, as for paddle.distributed.launch."""
    first, last = port_range()
    drawn = random.SystemRandom()  # by the seed of a recipe, all runs would draw the same
    for _ in range(100):
        port = drawn.randint(first, last)
        with contextlib.suppress(OSError), socket.create_server(("", port)):
            return port
    raise RunFailed("no port is free", "PORT_RANGE", "name other ports: PORT_RANGE=20000:30000")


def port_range() -> tuple[int, int]:
    """The first and the last port that processes may meet at. UserError for a PORT_RANGE that is none."""
    given = os.environ.get("PORT_RANGE", f"{_FIRST_PORT}:{_LAST_PORT}")
    ports = re.fullmatch(r"([0-9]{1,5}):([0-9]{1,5})", given)
    first, last = map(int, ports.groups()) if ports else (0, 0)
    if not 0 < first <= last < 1 << 16:
        raise UserError(f"{given[:40]!r} is no range of ports", "PORT_RANGE", "name one: PORT_RANGE=20000:30000")
    return first, last


def interface_of(address: str) -> str | None:
    """The network interface that has `address`, such as eth0; None if none has."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # one without an address
                answer = fcntl.ioctl(asking.fileno(), _GET_ADDRESS, struct.pack("256s", name.encode()[:15]))
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    return None


def gloo_variables(address: str) -> dict[str, str]:
    """The interface by which gloo reaches other machines, where this one has `address`; {} if the user has set it.

    By itself gloo takes the address of the host's name, which is often 127.0.1.1 and leads nowhere else.
    """
    interface = interface_of(address)
    return {} if interface is None or GLOO_INTERFACE in os.environ else {GLOO_INTERFACE: interface}


@contextlib.contextmanager
def meeting() -> Iterator[None]:
    """Around what lets the processes of a run meet at the port that was chosen for them.

    RunFailed if another program has taken it since; where nlpctl started them, it then starts all of them again.
    """
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # Paddle 3 lists the flags that are set; --json is for results
            yield
    except Exception as error:
        if not is_child() or "Bind network" not in str(error):
            raise
        message = "another program has taken the port at which the processes were to meet"
        if EXCHANGE not in os.environ:
            hint = "start all of them again, with @[resume=true]"
            raise RunFailed(message, os.environ["PADDLE_MASTER"], hint) from None
        (Path(os.environ[EXCHANGE]) / PORT_TAKEN).touch()
        raise RunFailed(message, hint="they start again, with another port") from None
