"""This node among the nodes of a run: from flags, or from the variables that a scheduler sets.

A flag wins over a variable. `--nnodes auto` takes everything from the scheduler; nothing is taken without --nnodes,
since a scheduler may also have started several independent commands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nlpctl.errors import UserError

AUTO = "auto"
DEFAULT_PORT = 29417
MOST_NODES = 10_000
_PORTS = (20_000, 30_000)  # of Slurm jobs, by their number, so that two jobs on a node do not meet

Environ = Mapping[str, str]


@dataclass(frozen=True)
class NodeRank:
    """This node: one of `nodes`, from 0, and the address of node 0, where all meet."""

    nodes: int
    rank: int
    host: str
    port: int

    @property
    def master(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Scheduler:
    """A scheduler by its variables. Each function returns "" for what the environment does not tell.

    `nodes`: how many; `rank`: which one this is; `master`: HOST or HOST:PORT of node 0; `tasks`: how many processes it
    has started on this node, of which only one may be nlpctl.
    """

    name: str
    marks: tuple[str, ...]  # variables of which it sets one
    nodes: Callable[[Environ], str]
    rank: Callable[[Environ], str]
    master: Callable[[Environ], str]
    tasks: Callable[[Environ], str]
    one_task: str  # how to ask it for one process per node


def place_of(nnodes: str | None, master: str | None, node_rank: int | None, environ: Environ) -> NodeRank | None:
    """The place that the flags and the environment give this node; None: it is alone. UserError: they do not say."""
    if nnodes is None:
        _refuse_alone(master, node_rank)
        return None
    found = scheduler(environ)
    nodes = _nodes(nnodes, found, environ)
    rank = _rank(node_rank, found, environ, nodes)
    if nodes == 1:
        return None
    if found is not None and int(found.tasks(environ) or 1) > 1:
        message = f"{found.name} has started {found.tasks(environ)} processes on this node, and nlpctl starts its own"
        raise UserError(message, "--nnodes", f"ask for one per node: {found.one_task}; --nproc or --devices for more")
    host, port = _master(master, found, environ)
    return NodeRank(nodes, rank, host, port)


def scheduler(environ: Environ) -> Scheduler | None:
    """The scheduler that started this process, or None."""
    return next((each for each in SCHEDULERS if any(map(environ.get, each.marks))), None)


def _refuse_alone(master: str | None, node_rank: int | None) -> None:
    for flag, value in (("--master", master), ("--node_rank", node_rank)):
        if value is not None:
            raise UserError("this is for several nodes", flag, "add --nnodes N, or leave it out")


def _nodes(nnodes: str, found: Scheduler | None, environ: Environ) -> int:
    if nnodes != AUTO:
        if not nnodes.isdecimal() or not 1 <= int(nnodes) <= MOST_NODES:
            raise UserError(f"{nnodes!r} is not a number of nodes", "--nnodes", f"write a number from 1, or {AUTO}")
        return int(nnodes)
    told = found.nodes(environ) if found is not None else ""
    if not told.isdecimal() or int(told) < 1:
        by = f"{found.name} does not say" if found is not None else "no scheduler says"
        known = ", ".join(each.name for each in SCHEDULERS)
        raise UserError(f"{by} how many nodes there are", "--nnodes", f"write the number; {AUTO} knows {known}")
    return int(told)


def _rank(given: int | None, found: Scheduler | None, environ: Environ, nodes: int) -> int:
    told = str(given) if given is not None else found.rank(environ) if found is not None else ""
    where = "--node_rank" if given is not None or found is None else found.name
    if not told and nodes == 1:
        return 0
    if not told:
        raise UserError("which node this is, is not known", where, "give --node_rank, from 0 on")
    if not told.isdecimal() or int(told) >= nodes:
        raise UserError(f"{told} is not one of {nodes} nodes", where, f"nodes count from 0 to {nodes - 1}")
    return int(told)


def _master(given: str | None, found: Scheduler | None, environ: Environ) -> tuple[str, int]:
    told = given if given is not None else found.master(environ) if found is not None else ""
    if not told:
        hint = "give --master HOST:PORT: the address of node 0, the same on every node"
        raise UserError("where the nodes are to meet is not known", "--master", hint)
    host, colon, port = told.rpartition(":")
    if not colon:
        host, port = told, str(DEFAULT_PORT)
    if not host or ":" in host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise UserError(f"{told!r} is not HOST:PORT", "--master", "write it as node01:29417 or 10.0.0.1:29417")
    try:
        host.encode("idna")  # as getaddrinfo does, whose UnicodeError is no OSError
    except UnicodeError:
        hint = "between its dots a name has 1 to 63 characters"
        raise UserError(f"{host!r} cannot be the name of a machine", "--master", hint) from None
    return host, int(port)


def node_names(text: str) -> list[str]:
    """The names in a node list of Slurm: "gpu[01-03,07],login1" is gpu01, gpu02, gpu03, gpu07, login1. UserError."""
    parts = re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", text)
    if not parts or ",".join(parts) != text:
        raise _unknown_list(text)
    return [name for part in parts for name in _expanded(part, text)]


def _expanded(part: str, whole: str) -> list[str]:
    """`part` with its first brackets replaced by each of their numbers, and so on."""
    found = re.search(r"\[([^\]]*)\]", part)
    if found is None:
        return [part]
    made: list[str] = []
    for item in found[1].split(","):
        first, dash, last = item.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise _unknown_list(whole)
        numbers = range(int(first), int(last or first) + 1)
        if not 0 < len(numbers) <= MOST_NODES:
            raise _unknown_list(whole)
        for number in numbers:  # 01-03 keeps its zeros
            name = part[: found.start()] + str(number).zfill(len(first)) + part[found.end() :]
            made += _expanded(name, whole)
    return made


def _unknown_list(text: str) -> UserError:
    return UserError(f"{text!r} is not a list of nodes", "SLURM_JOB_NODELIST", "give --master HOST:PORT")


def _first(*names: str) -> Callable[[Environ], str]:
    """The value of the first of the variables that is set."""
    return lambda environ: next((environ[name] for name in names if environ.get(name)), "")


def _slurm_master(environ: Environ) -> str:
    listed = _first("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")(environ)
    if not listed:
        return ""
    first, last = _PORTS
    job = environ.get("SLURM_JOB_ID", "0")
    port = first + int(job if job.isdecimal() else 0) % (last - first)
    return f"{node_names(listed)[0]}:{port}"


def _slurm_tasks(environ: Environ) -> str:
    """SLURM_TASKS_PER_NODE is "2(x3),1": two on each of three nodes."""
    told = _first("SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE")(environ)
    counts = [int(count) for count in re.findall(r"(\d+)(?:\(x\d+\))?(?:,|$)", told)]
    return str(max(counts)) if counts else ""


def _open_mpi_nodes(environ: Environ) -> str:
    """With one process per node, as `one_task` asks, there are as many nodes as processes."""
    return environ.get("OMPI_COMM_WORLD_SIZE", "")


def _paddle_rank(environ: Environ) -> str:
    """PADDLE_RANK, or PADDLE_TRAINER_ID of the older operator. Kubeflow's PaddleJob numbers its pods by name alone."""
    told = _first("PADDLE_RANK", "PADDLE_TRAINER_ID")(environ)
    pod = re.search(r"-worker-(\d+)$", environ.get("HOSTNAME", ""))
    return told or (pod[1] if pod else "")


def _paddle_master(environ: Environ) -> str:
    return environ.get("PADDLE_MASTER", "") or environ.get("PADDLE_TRAINER_ENDPOINTS", "").split(",")[0]


def _nothing(environ: Environ) -> str:
    return ""


# The first whose mark is set: a job of PaddleJob is one of Kubernetes, and mpirun runs under Slurm.
SCHEDULERS = (
    Scheduler(
        "PaddleJob",
        ("PADDLE_JOB_ID", "PADDLE_TRAINERS_NUM"),  # of Kubeflow's operator, and of the older one
        nodes=_first("PADDLE_NNODES", "PADDLE_TRAINERS_NUM"),
        rank=_paddle_rank,
        master=_paddle_master,
        tasks=_nothing,
        one_task="one container per pod",
    ),
    Scheduler(
        "Open MPI",
        ("OMPI_COMM_WORLD_SIZE",),
        nodes=_open_mpi_nodes,
        rank=_first("OMPI_COMM_WORLD_RANK"),
        master=_slurm_master,  # mpirun in a job of Slurm; it has no variable of its own for this
        tasks=_first("OMPI_COMM_WORLD_LOCAL_SIZE"),
        one_task="mpirun --map-by ppr:1:node",
    ),
    Scheduler(
        "Slurm",
        ("SLURM_JOB_ID",),
        nodes=_first("SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
        rank=_first("SLURM_NODEID"),
        master=_slurm_master,
        tasks=_slurm_tasks,
        one_task="srun --ntasks-per-node=1",
    ),
    Scheduler(
        "Kubernetes",
        ("JOB_COMPLETION_INDEX",),
        nodes=_nothing,  # an indexed job does not tell its pods how many there are
        rank=_first("JOB_COMPLETION_INDEX"),
        master=_nothing,
        tasks=_nothing,
        one_task="one container per pod",
    ),
)
