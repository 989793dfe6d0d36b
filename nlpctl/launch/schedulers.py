"""This process among those of a training that a scheduler, or a person in several shells, has started.

Flags win over the variables of a scheduler. `--nnodes auto` takes everything from it; nothing is taken without
--nnodes, since a scheduler may also have started several independent commands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nlpctl.errors import UserError
from nlpctl.names import whole_number

AUTO = "auto"
DEFAULT_PORT = 29417
MOST_PROCESSES = 10_000
_LARGEST_NODE = 10**18  # number in the name of a machine, such as a date and a count
_MOST_BRACKETS = 8  # in the name of a machine
_PORTS = (20_000, 30_000)  # of Slurm jobs, by their number, so that two jobs on a machine do not meet

Environ = Mapping[str, str]


@dataclass(frozen=True)
class ProcessRank:
    """This process: `rank` of `world`, and the address of process 0, where all meet.

    `local_rank` of `local_size`: among those on the same machine; None where nobody says.
    """

    world: int
    rank: int
    host: str
    port: int
    local_rank: int | None = None
    local_size: int | None = None

    @property
    def master(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Scheduler:
    """A scheduler by its variables. Each function returns "" for what the environment does not tell.

    `world`: how many processes; `rank`: which one this is; `master`: HOST or HOST:PORT of process 0; `local_rank`,
    `local_size`: as of `ProcessRank`.
    """

    name: str
    marks: tuple[str, ...]  # variables of which it sets one
    world: Callable[[Environ], str]
    rank: Callable[[Environ], str]
    master: Callable[[Environ], str]
    local_rank: Callable[[Environ], str]
    local_size: Callable[[Environ], str]


def rank_of(nnodes: str | None, master: str | None, node_rank: int | None, environ: Environ) -> ProcessRank | None:
    """This process by the flags and the environment; None: it is alone. UserError: they do not say."""
    if nnodes is None:
        for flag, value in (("@[master]", master), ("@[node_rank]", node_rank)):
            if value is not None:
                raise UserError("this is for several processes", flag, "add @[nnodes=N], or leave it out")
        return None
    scheduler = scheduler_of(environ)
    world = _world(nnodes, scheduler, environ)
    rank = _rank(node_rank, scheduler, environ, world)
    if world == 1:
        return None
    host, port = _master(master, scheduler, environ)
    local_rank, local_size = (None, None) if scheduler is None or node_rank is not None else (
        *(whole_number(read(environ), MOST_PROCESSES) for read in (scheduler.local_rank, scheduler.local_size)),
    )  # fmt: skip
    return ProcessRank(world, rank, host, port, local_rank, local_size)


def scheduler_of(environ: Environ) -> Scheduler | None:
    """The scheduler that started this process, or None."""
    return next((each for each in SCHEDULERS if any(map(environ.get, each.marks))), None)


def _world(nnodes: str, scheduler: Scheduler | None, environ: Environ) -> int:
    if nnodes != AUTO:
        if not (world := whole_number(nnodes, MOST_PROCESSES)):
            hint = f"write a number from 1 to {MOST_PROCESSES:,}, or {AUTO}"
            raise UserError(f"{nnodes[:40]!r} is not a number of processes", "@[nnodes]", hint)
        return world
    told = scheduler.world(environ) if scheduler is not None else ""
    world = whole_number(told, MOST_PROCESSES)
    if scheduler is not None and world is None and told.strip().isdecimal():
        message = f"{scheduler.name} says {told.strip()[:40]} processes; the most are {MOST_PROCESSES:,}"
        raise UserError(message, "@[nnodes]", "start fewer, or write the number that there are")
    if not world:
        by = f"{scheduler.name} does not say" if scheduler is not None else "no scheduler says"
        known = ", ".join(each.name for each in SCHEDULERS)
        hint = f"write the number; {AUTO} knows {known}"
        raise UserError(f"{by} how many processes there are", "@[nnodes]", hint)
    return world


def _rank(given: int | None, scheduler: Scheduler | None, environ: Environ, world: int) -> int:
    text = str(given) if given is not None else scheduler.rank(environ) if scheduler is not None else ""
    where = "@[node_rank]" if given is not None or scheduler is None else scheduler.name
    if not text and world == 1:
        return 0
    if not text:
        raise UserError("which process this is, is not known", where, "give @[node_rank], from 0 on")
    if (rank := whole_number(text, world - 1)) is None:
        raise UserError(f"{text[:40]} is not one of {world} processes", where, f"they count from 0 to {world - 1}")
    return rank


def _master(given: str | None, scheduler: Scheduler | None, environ: Environ) -> tuple[str, int]:
    text = given if given is not None else scheduler.master(environ) if scheduler is not None else ""
    if not text:
        hint = "give @[master=HOST:PORT]: the address of process 0, the same in all of them"
        raise UserError("where the processes are to meet is not known", "@[master]", hint)
    host, colon, port = text.rpartition(":")
    if not colon:
        host, port = text, str(DEFAULT_PORT)
    if not host or ":" in host or not (number := whole_number(port, 65_535)):
        raise UserError(f"{text[:80]!r} is not HOST:PORT", "@[master]", "write it as node01:29417 or 10.0.0.1:29417")
    try:
        host.encode("idna")  # as getaddrinfo does, whose UnicodeError is no OSError
    except UnicodeError:
        hint = "between its dots a name has 1 to 63 characters"
        raise UserError(f"{host!r} cannot be the name of a machine", "@[master]", hint) from None
    return host, number


def node_names(text: str) -> list[str]:
    """The names in a node list of Slurm: "gpu[01-03,07],login1" is gpu01, gpu02, gpu03, gpu07, login1. UserError."""
    parts = re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", text)
    if not parts or ",".join(parts) != text or any(part.count("[") > _MOST_BRACKETS for part in parts):
        raise _unknown_list(text)
    return [name for part in parts for name in _expanded(part, text)]


def _expanded(part: str, whole: str) -> list[str]:
    """`part` with its first brackets replaced by each of their numbers, and so on."""
    brackets = re.search(r"\[([^\]]*)\]", part)
    if brackets is None:
        return [part]
    made: list[str] = []
    for item in brackets[1].split(","):
        first, dash, last = item.partition("-")
        ends = [whole_number(each, _LARGEST_NODE) for each in (first, last if dash else first)]
        if ends[0] is None or ends[1] is None or not 0 <= ends[1] - ends[0] < MOST_PROCESSES:
            raise _unknown_list(whole)
        numbers = range(ends[0], ends[1] + 1)
        for number in numbers:  # 01-03 keeps its zeros
            name = part[: brackets.start()] + str(number).zfill(len(first)) + part[brackets.end() :]
            made += _expanded(name, whole)
        if len(made) > MOST_PROCESSES:  # brackets beside brackets multiply
            raise _unknown_list(whole)
    return made


def _unknown_list(text: str) -> UserError:
    return UserError(f"{text[:80]!r} is not a list of nodes", "SLURM_JOB_NODELIST", "give @[master=HOST:PORT]")


def _first(*names: str) -> Callable[[Environ], str]:
    """The value of the first of the variables that is set."""
    return lambda environ: next((environ[name] for name in names if environ.get(name)), "")


def _slurm_master(environ: Environ) -> str:
    listed = _first("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")(environ)
    if not listed:
        return ""
    first, last = _PORTS
    job = environ.get("SLURM_JOB_ID", "0")
    port = first + (whole_number(job, 1 << 62) or 0) % (last - first)
    return f"{node_names(listed)[0]}:{port}"


def _slurm_local_size(environ: Environ) -> str:
    """Of "2(x3),1", two on each of three nodes and one on a fourth, the number on this node."""
    text = _first("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")(environ)
    node = whole_number(environ.get("SLURM_NODEID", ""), _LARGEST_NODE)
    before = 0
    for count, times in re.findall(r"(\d+)(?:\(x(\d{1,9})\))?", text):
        before += int(times or 1)
        if node is not None and node < before:
            return count
    return ""


def _paddle_rank(environ: Environ) -> str:
    """PADDLE_TRAINER_ID, or the number of the pod: Kubeflow's PaddleJob numbers its pods by name alone."""
    pod = re.search(r"-worker-(\d+)$", environ.get("HOSTNAME", ""))
    return _first("PADDLE_TRAINER_ID", "PADDLE_RANK")(environ) or (pod[1] if pod else "")


def _paddle_master(environ: Environ) -> str:
    return environ.get("PADDLE_MASTER", "") or environ.get("PADDLE_TRAINER_ENDPOINTS", "").split(",")[0]


def _nothing(environ: Environ) -> str:
    return ""


# The first whose mark is set: a job of PaddleJob is one of Kubernetes, and mpirun runs under Slurm.
SCHEDULERS = (
    Scheduler(
        "PaddleJob",
        ("PADDLE_JOB_ID", "PADDLE_TRAINERS_NUM"),  # of Kubeflow's operator; of the older one and of Paddle's launcher
        world=_first("PADDLE_TRAINERS_NUM", "PADDLE_NNODES"),
        rank=_paddle_rank,
        master=_paddle_master,
        local_rank=_first("PADDLE_LOCAL_RANK"),
        local_size=_first("PADDLE_LOCAL_SIZE"),
    ),
    Scheduler(
        "Open MPI",
        ("OMPI_COMM_WORLD_SIZE",),
        world=_first("OMPI_COMM_WORLD_SIZE"),
        rank=_first("OMPI_COMM_WORLD_RANK"),
        master=_slurm_master,  # mpirun in a job of Slurm; it has no variable of its own for this
        local_rank=_first("OMPI_COMM_WORLD_LOCAL_RANK"),
        local_size=_first("OMPI_COMM_WORLD_LOCAL_SIZE"),
    ),
    Scheduler(
        "Slurm",
        ("SLURM_JOB_ID",),
        world=_first("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
        rank=_first("SLURM_PROCID"),
        master=_slurm_master,
        local_rank=_first("SLURM_LOCALID"),
        local_size=_slurm_local_size,
    ),
    Scheduler(
        "Kubernetes",
        ("JOB_COMPLETION_INDEX",),
        world=_nothing,  # an indexed job does not tell its pods how many there are
        rank=_first("JOB_COMPLETION_INDEX"),
        master=_nothing,
        local_rank=_nothing,
        local_size=_nothing,
    ),
)
