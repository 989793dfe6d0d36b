"""The processes of one command on the machines of a Ray cluster, in place of launch.py's on this one.

    nlpctl (this process)                  chooses ports, relays rank 0, ends everything
      RankKeeper, once per rank            an actor of Ray, which keeps a process on its machine
        nlpctl with Paddle's variables     one rank; it does not know who started it

Ray says when a machine is lost. Where the machines see the run directory, rank 0 writes into it. Else the ranks of a
machine share a folder there, which begins with the last checkpoint, and what rank 0 writes comes home while it trains,
through Ray's object store: checkpoints whole, other files as often as they change.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TextIO

from nlpctl import console
from nlpctl.config.schema import Recipe, RuntimeSection
from nlpctl.errors import RunFailed, UserError
from nlpctl.files import STAGING_PREFIX, staged_dir, staged_file, staging_prefix
from nlpctl.launch.peers import DATA, VERSIONS, differences, file_facts
from nlpctl.launch.rank_monitor import TERM_SECONDS, RankProcess, RankStatus, end_processes, log_name, run_ranks
from nlpctl.layout import CHECKPOINTS, EVENTS, LOGS, MODEL
from nlpctl.names import counted
from nlpctl.runtime.interrupt import sigterm_interrupts
from nlpctl.runtime.ranks import device_variables, free_port, gloo_variables, rank_variables, without_launchers
from nlpctl.runtime.ray_cluster import ActorHandle, NodeActor, NodeRequirements, ResourceRequest, ray_cluster
from nlpctl.runtime.versions import engine_versions
from nlpctl.runtime.worker import WorkerLost

RECIPE_FILE, RUN_FOLDER = "{recipe}", "{folder}"  # in the arguments of a rank: its files, wherever they lie
_SYNC_SECONDS = 1.0
_CHUNK = 32 << 20  # bytes of a file per message


# -- on the machines -------------------------------------------------------------------------------


@dataclass(frozen=True)
class MachineFacts:
    """What a machine tells of itself. `shared`: it sees the run directory; `equal`: what has to be equal everywhere."""

    host: str
    address: str
    shared: bool
    equal: Mapping[str, Mapping[str, str]]


class RankKeeper(NodeActor):
    """Keeps one rank on its machine. Its methods raise nothing but what Ray itself raises."""

    _process: RankProcess | None = None

    def facts(self, mark: str, files: Sequence[str]) -> MachineFacts:
        """`mark`: a file in the run directory that was made just now; `files`: those to read."""
        from ray.util import get_node_ip_address

        equal = {VERSIONS: dict(engine_versions()), DATA: file_facts(map(Path, files))}
        return MachineFacts(platform.node(), get_node_ip_address(), os.path.exists(mark), equal)

    def port(self) -> int:
        """A free port of this machine."""
        return free_port()

    def open(self, run: str | None, token: str, recipe: str) -> None:
        """Prepare the folders. `run`: the run directory, if this machine sees it; `token`: names what is in its
        place."""
        self._own = Path(tempfile.mkdtemp(prefix="nlpctl-rank-"))
        self._run = Path(tempfile.gettempdir(), f"nlpctl-run-{token}") if run is None else Path(run)
        self._removed = [self._own, *([self._run] if run is None else [])]
        self._run.mkdir(parents=True, exist_ok=True)
        # Not recipe.yaml: that of a run may name no code and no files. This one was checked, and is the user's.
        self._recipe = self._own / "of_the_user.yaml"
        self._recipe.write_text(recipe, encoding="utf-8")

    def keep(self, name: str, content: bytes, first: bool) -> None:
        """Write or go on writing a file of the run directory."""
        path = self._run / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb" if first else "ab") as stream:
            stream.write(content)

    def start(self, arguments: Sequence[str], variables: Mapping[str, str], address: str) -> None:
        """Start the rank: `python -m nlpctl ARGUMENTS` with `variables`. `address`: of this machine."""
        places = {RECIPE_FILE: str(self._recipe), RUN_FOLDER: str(self._run)}
        words = [places.get(word, word) for word in arguments]
        environment = {**without_launchers(os.environ), **gloo_variables(address), **variables}
        self._process = RankProcess(["-m", "nlpctl", *words], environment, self._own, self._own / "log")
        self._process.start()

    def poll(self) -> RankStatus:
        assert self._process is not None
        return self._process.poll()

    def send_signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self) -> None:
        """End the rank, if it runs, and its data workers."""
        if self._process is not None:
            end_processes([self._process])

    def end(self) -> None:
        """Stop, and remove what is of no use any more."""
        self.stop()
        for folder in getattr(self, "_removed", ()):
            shutil.rmtree(folder, ignore_errors=True)

    def files(self) -> dict[str, tuple[int, int]]:
        """The size and time of every file of the run directory, without logs of processes and what is half written."""
        files = {}
        for path in self._run.rglob("*"):
            name = path.relative_to(self._run)
            if not any(part.startswith(STAGING_PREFIX) for part in name.parts):
                with contextlib.suppress(OSError):  # it has just been replaced
                    status = path.stat()
                    if path.is_file():
                        files[name.as_posix()] = status.st_size, status.st_mtime_ns
        return files

    def read(self, name: str, start: int) -> bytes | None:
        """Up to _CHUNK bytes of a file from `start` on; None: it is not there any more."""
        try:
            with (self._run / name).open("rb") as stream:
                stream.seek(start)
                return stream.read(_CHUNK)
        except OSError:
            return None


# -- on the machine of the command -----------------------------------------------------------------


@contextlib.contextmanager
def ray_ranks(address: str, machines: int, each: int, runtime: RuntimeSection) -> Iterator[RayRanks]:
    """`each` processes on each of `machines` of the cluster at `address`: an actor for each of them, all or none.

    UserError, NoRoom, UnfitNode: as of ray_cluster.py.
    """
    requirements = NodeRequirements(os.getcwd(), (), "cpu" if runtime.device == "cpu" else None)
    with ray_cluster(address) as cluster:
        with cluster.placement_group(runtime, machines, each, requirements, RankKeeper) as (request, actors):
            ranks = RayRanks(request, actors, each)
            try:
                yield ranks
            finally:
                ranks.end()


class RayRanks:
    """The actors of one command, in the order of their ranks; `each` of them per machine."""

    def __init__(self, request: ResourceRequest, actors: Sequence[ActorHandle], each: int):
        self.runtime = request.runtime  # of every rank
        self.device = "gpu" if request.cards else "cpu"
        self._actors, self._each = actors, each
        self._token = uuid.uuid4().hex
        self._machines: list[MachineFacts] = []
        self._shared = True  # all machines see the run directory
        self._opened = False

    @property
    def world(self) -> int:
        """The number of processes."""
        return len(self._actors)

    def recipe_of_rank(self, recipe: Recipe) -> Recipe:
        """`recipe` for a rank: what it may use is what Ray gives it."""
        return dataclasses.replace(recipe, runtime=dataclasses.replace(self.runtime, nproc=1))

    def compare(self, versions: Mapping[str, str], files: Sequence[Path], above: Path) -> None:
        """UserError for a machine with other versions or other `files` than this one.

        `above`: a folder above the run directory, which tells whether the machines see it.
        """
        names = [str(path.absolute()) for path in files]
        with tempfile.NamedTemporaryFile(prefix=staging_prefix("seen"), dir=above) as mark:
            asked = [actor.begin("facts", mark.name, names) for actor in self._actors[:: self._each]]
            self._machines = [actor.given(one) for actor, one in zip(self._actors[:: self._each], asked, strict=True)]
        self._shared = all(machine.shared for machine in self._machines)
        own, here = file_facts(map(Path, names)), f"this machine ({platform.node()})"
        problems = []
        for rank, machine in enumerate(self._machines):
            # Of what computes here and there: on a machine without cards another wheel of Paddle is installed.
            theirs = {name: version for name, version in machine.equal[VERSIONS].items() if name in versions}
            ours = {name: version for name, version in versions.items() if name in theirs}
            first, other = {VERSIONS: ours, DATA: own}, {VERSIONS: theirs, DATA: machine.equal[DATA]}
            problems += differences(first, other, (VERSIONS, DATA), (here, f"machine {rank} ({machine.host})"))
        if problems:
            raise UserError(problems=problems)
        hosts = ", ".join(machine.host for machine in self._machines)
        console.note(f"{counted(len(self._machines), 'machines')} with {self.world} processes: {hosts}")

    def launch(
        self,
        arguments: Sequence[str],
        log_dir: Path | None,
        recipe: str = "",
        run: Path | None = None,
        output: TextIO | None = None,
    ) -> int:
        """Run `nlpctl ARGUMENTS` in every actor, with Paddle's variables. Returns and raises as `launch` of launch.py.

        `log_dir`: gets a log of every rank; None: nobody needs them, and rank 0 says itself what fails. `recipe`: the
        content of RECIPE_FILE. `run`: the run directory; where the machines do not see it, its files go there first,
        and come home. `output`: gets what rank 0 writes to standard output, in place of this process's own. RunFailed
        also when a machine is lost.
        """
        if log_dir is not None:
            log_dir.mkdir(parents=True, exist_ok=True)
            for rank in range(self.world):
                (log_dir / log_name(rank)).touch()
        if not self._machines:
            self.compare({}, (), Path(tempfile.gettempdir()))
        seen = str(run.absolute()) if run is not None and self._shared else None
        if not self._opened:
            for actor in self._actors:
                actor.given(actor.begin("open", seen, self._token, recipe))
            self._opened = True
        home = _Home(self._actors[:: self._each], run) if run is not None and not self._shared else None
        ranks = _ActorRanks(self._actors, self._machines, self.device, arguments, log_dir, home)
        with sigterm_interrupts():
            code = run_ranks(ranks, self.world, log_dir, output)
            if home is not None:
                home.fetch()
                home.fetch_events()
        return code

    def end(self) -> None:
        """Ends all ranks, and removes what they left on their machines."""
        with contextlib.suppress(Exception):  # the connection with the cluster may be what has ended
            _call_all(self._actors, "end")


def _call_all(actors: Sequence[ActorHandle], method: str) -> None:
    """Call a method of all actors that are still there, side by side."""
    for actor, begun in [(actor, actor.begin(method)) for actor in actors]:
        with contextlib.suppress(RunFailed):
            actor.ended(begun, 2 * TERM_SECONDS)


class _ActorRanks:
    """The ranks of one launch, as processes that actors keep: `Ranks` of rank_monitor.py."""

    poll_seconds = 0.2
    settle_seconds = 5.0  # Ray may notice that a machine is gone after the others have missed its processes

    def __init__(
        self,
        actors: Sequence[ActorHandle],
        machines: Sequence[MachineFacts],
        device: str,
        arguments: Sequence[str],
        log_dir: Path | None,
        home: _Home | None,
    ):
        self._actors, self._device, self._arguments = actors, device, arguments
        self._each = len(actors) // len(machines)
        self._machines = [machine for machine in machines for _ in range(self._each)]  # of every rank
        self._log_dir, self._home = log_dir, home
        self._synced = 0.0

    def start(self) -> None:
        if self._home is not None:
            self._home.send()
            self._synced = time.monotonic()
        port = self._actors[0].given(self._actors[0].begin("port"))
        endpoints = [f"{machine.address}:{port + 1 + rank}" for rank, machine in enumerate(self._machines)]
        master = f"{self._machines[0].address}:{port}"
        device = device_variables(None if self._device == "cpu" else 0)  # Ray shows each actor its own cards alone
        for rank, actor in enumerate(self._actors):
            variables = rank_variables(rank, endpoints, master, rank % self._each, self._each)
            address = self._machines[rank].address
            actor.given(actor.begin("start", self._arguments, {**variables, **device}, address))

    def poll(self, ranks: Sequence[int]) -> Iterator[tuple[int, RankStatus]]:
        asked = [(rank, self._actors[rank].begin("poll")) for rank in ranks]  # side by side
        for rank, reference in asked:
            try:
                status: RankStatus = self._actors[rank].given(reference)
            except WorkerLost as error:
                reason = error.problems[0].message.partition(". ")[0]
                hint = "see whether the machine and its network are well; "
                hint += "@[resume=true] goes on from the last checkpoint"
                message = f"machine {self._machines[rank].host} is lost: {reason}"
                raise RunFailed(message, "@[cluster]", hint) from None
            if status.log and self._log_dir is not None:
                with (self._log_dir / log_name(rank)).open("ab") as stream:
                    stream.write(status.log)
            yield rank, status
        if self._home is not None and time.monotonic() > self._synced + _SYNC_SECONDS:
            self._home.fetch()
            self._synced = time.monotonic()

    def interrupt(self) -> None:
        for actor in self._actors:
            actor.begin("send_signal", signal.SIGINT)

    def stop(self) -> None:
        _call_all(self._actors, "stop")

    def place(self, rank: int) -> str:
        return f" on {self._machines[rank].host}"


class _Home:
    """The run directory, which the machines do not see, and the folders that stand for it there."""

    def __init__(self, actors: Sequence[ActorHandle], run: Path):
        """`actors`: one of each machine; the first is rank 0's."""
        self._actors, self._run = actors, run
        self._known: dict[str, tuple[int, int]] = {}  # the files that are at home as they are at rank 0
        self._events = 0  # bytes of the events that all machines were sent

    def send(self) -> None:
        """Send what a resumed training reads: all but the results of an earlier one, and logs of processes."""
        for path in sorted(self._run.rglob("*")):
            name = path.relative_to(self._run)
            if path.is_file() and name.parts[0] not in (LOGS, MODEL) and not name.name.startswith((".", "rank-")):
                self._send_file(name.as_posix(), path)
        self._known = self._files()
        self._events = (self._run / EVENTS).stat().st_size if (self._run / EVENTS).exists() else 0

    def _send_file(self, name: str, path: Path) -> None:
        with path.open("rb") as stream:
            first = True
            while (block := stream.read(_CHUNK)) or first:
                for actor in self._actors:
                    actor.given(actor.begin("keep", name, block, first))
                first = False

    def _files(self) -> dict[str, tuple[int, int]]:
        actor = self._actors[0]
        files: dict[str, tuple[int, int]] = actor.given(actor.begin("files"))
        return files

    def fetch(self) -> None:
        """Bring home what rank 0 has changed since the last time, and remove what it has removed."""
        files = self._files()
        changed = [name for name, status in files.items() if self._known.get(name) != status]
        for unit in sorted({unit for name in changed if (unit := _unit(name))}):
            self._fetch_folder(unit, [name for name in files if _unit(name) == unit])
        for name in changed:
            if not _unit(name):
                with contextlib.suppress(FileNotFoundError):
                    self._fetch_file(name, self._run / name)
        for unit in {_unit(name) for name in self._known.keys() - files.keys()} - {_unit(name) for name in files}:
            if unit:
                shutil.rmtree(self._run / unit, ignore_errors=True)
        self._known = files

    def fetch_events(self) -> None:
        """Once all have ended: bring home the events of the other machines, which are few, as of a lack of memory."""
        for actor in self._actors[1:]:
            block = actor.given(actor.begin("read", EVENTS, self._events))
            if block:
                with (self._run / EVENTS).open("ab") as stream:
                    stream.write(block)

    def _fetch_folder(self, unit: str, names: Sequence[str]) -> None:
        """A checkpoint or the model: whole, or not at all if it is replaced meanwhile."""
        (self._run / unit).parent.mkdir(exist_ok=True)
        with contextlib.suppress(FileNotFoundError), staged_dir(self._run / unit) as folder:
            for name in names:
                self._fetch_file(name, folder / PurePosixPath(name).relative_to(unit))

    def _fetch_file(self, name: str, path: Path) -> None:
        """FileNotFoundError if rank 0 has removed it."""
        actor, start = self._actors[0], 0
        with staged_file(path) as stream:
            while True:
                block: bytes | None = actor.given(actor.begin("read", name, start))
                if block is None:
                    raise FileNotFoundError(name)
                stream.write(block)
                start += len(block)
                if len(block) < _CHUNK:
                    return


def _unit(name: str) -> str:
    """The folder to which a file belongs that comes home whole; "" for a file of its own."""
    parts = PurePosixPath(name).parts
    depth = {CHECKPOINTS: 2, MODEL: 1}.get(parts[0], len(parts))
    return "/".join(parts[:depth]) if len(parts) > depth else ""
