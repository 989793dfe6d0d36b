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
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TextIO

from nlpctl import console
from nlpctl.checksums import sha256_of
from nlpctl.config.schema import Recipe, RuntimeSection
from nlpctl.errors import EXIT_INTERRUPTED, EXIT_OK, RunFailed, UserError
from nlpctl.files import STAGING_PREFIX, staged_dir, staged_file, staging_prefix
from nlpctl.launch.launch import PORTS, port_lost, without_launchers
from nlpctl.launch.rank_monitor import SETTLE_SECONDS, SHOWN_LINES, TERM_SECONDS, Ended, Relay, tell_failure
from nlpctl.layout import CHECKPOINTS, EVENTS, LOGS, MODEL
from nlpctl.names import counted
from nlpctl.parent import python_until_parent_ends
from nlpctl.runtime.interrupt import STOP_SECONDS, sigterm_interrupts
from nlpctl.runtime.ranks import EXCHANGE, PORT_TAKEN, free_port, gloo_variables, rank_variables
from nlpctl.runtime.ray_cluster import ActorHandle, NodeActor, NodeRequirements, ResourceRequest, ray_cluster
from nlpctl.runtime.versions import engine_versions
from nlpctl.runtime.worker import WorkerLost, module_path

RECIPE_FILE, RUN_FOLDER = "{recipe}", "{folder}"  # in the arguments of a rank: its files, wherever they lie
_POLL_SECONDS, _SYNC_SECONDS = 0.2, 1.0
_CHUNK = 32 << 20  # bytes of a file per message
_LOST_SECONDS = 5.0  # in which Ray notices that a machine is gone whose processes the others miss already
_UNITS = (CHECKPOINTS, MODEL)  # folders that are whole or absent


# -- on the machines -------------------------------------------------------------------------------


@dataclass(frozen=True)
class MachineFacts:
    """What a machine tells of itself. `shared`: it sees the run directory; `sums`: of the files asked for, which may be
    missing there."""

    host: str
    address: str
    shared: bool
    versions: Mapping[str, str]
    sums: Mapping[str, str]


@dataclass(frozen=True)
class Polled:
    """What a rank has written since the last time, and its exit code: None while it runs."""

    log: bytes
    output: bytes
    code: int | None
    port_taken: bool


class RankKeeper(NodeActor):
    """Keeps one rank on its machine. Its methods raise nothing but what Ray itself raises."""

    def facts(self, mark: str, files: Sequence[str]) -> MachineFacts:
        """`mark`: a file in the run directory that was made just now; `files`: those to read."""
        from ray.util import get_node_ip_address

        sums = {name: sha256_of(Path(name)) if Path(name).is_file() else "absent" for name in files}
        versions = dict(engine_versions())
        return MachineFacts(platform.node(), get_node_ip_address(), os.path.exists(mark), versions, sums)

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
        """Start the rank: `python -m nlpctl ARGUMENTS` with `variables`."""
        places = {RECIPE_FILE: str(self._recipe), RUN_FOLDER: str(self._run)}
        words = [places.get(word, word) for word in arguments]
        (self._own / PORT_TAKEN).unlink(missing_ok=True)
        own = {EXCHANGE: str(self._own), "PYTHONPATH": module_path(), "PYTHONIOENCODING": "utf-8"}
        environment = {**without_launchers(os.environ), **gloo_variables(address), **variables, **own}
        self._log, self._output = self._own / "log", self._own / "output"
        self._read = {self._log: 0, self._output: 0}
        before = signal.pthread_sigmask(signal.SIG_SETMASK, ())  # threads of Ray block signals, which it would inherit
        try:
            with self._log.open("wb") as log, self._output.open("wb") as output:
                # A session of its own: it is ended with its data workers.
                self._process = subprocess.Popen(
                    python_until_parent_ends("-m", "nlpctl", *words),
                    env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=log, start_new_session=True,
                )  # fmt: skip
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def poll(self) -> Polled:
        code = self._process.poll()  # before the last lines are read
        return Polled(self._new(self._log), self._new(self._output), code, (self._own / PORT_TAKEN).exists())

    def _new(self, path: Path) -> bytes:
        with path.open("rb") as stream:
            stream.seek(self._read[path])
            block = stream.read(_CHUNK)
        self._read[path] += len(block)
        return block

    def send_signal(self, number: int) -> None:
        self._process.send_signal(number)

    def stop(self) -> None:
        """End the rank, if it runs, and its data workers."""
        if not hasattr(self, "_process"):
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(TERM_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        """Stop, and remove what is of no use any more."""
        self.stop()
        for folder in getattr(self, "_removed", ()):
            shutil.rmtree(folder, ignore_errors=True)

    def files(self) -> dict[str, tuple[int, int]]:
        """The size and time of every file of the run directory, without logs of processes and what is half written."""
        found = {}
        for path in self._run.rglob("*"):
            name = path.relative_to(self._run)
            if not any(part.startswith(STAGING_PREFIX) for part in name.parts):
                with contextlib.suppress(OSError):  # it has just been replaced
                    status = path.stat()
                    if path.is_file():
                        found[name.as_posix()] = status.st_size, status.st_mtime_ns
        return found

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
    ground = NodeRequirements(os.getcwd(), (), "cpu" if runtime.device == "cpu" else None)
    with ray_cluster(address) as cluster:
        with cluster.gang(runtime, machines, each, ground, RankKeeper) as (request, actors):
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
        sums = {name: sha256_of(Path(name)) for name in names}
        for rank, machine in enumerate(self._machines):
            where = f"machine {rank} ({machine.host})"
            for name, version in versions.items():
                if name in machine.versions and machine.versions[name] != version:
                    message = f"differs in its versions: {name} is {machine.versions[name]}, not {version}"
                    raise UserError(message, where, "install the same version everywhere")
            for name, digest in sums.items():
                if machine.sums[name] != digest:
                    kind = "is absent" if machine.sums[name] == "absent" else "is another file"
                    raise UserError(f"{name} {kind}", where, "the data are the same, under the same path, everywhere")
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
                (log_dir / f"rank-{rank}.log").touch()
        if not self._machines:
            self.compare({}, (), Path(tempfile.gettempdir()))
        seen = str(run.absolute()) if run is not None and self._shared else None
        if not self._opened:
            for actor in self._actors:
                actor.given(actor.begin("open", seen, self._token, recipe))
            self._opened = True
        home = _Home(self._actors[:: self._each], run) if run is not None and not self._shared else None
        for _ in range(PORTS):
            if home is not None:
                home.send()
            with sigterm_interrupts(), self._started(arguments):
                code = _Watch(self._actors, self._hosts(), log_dir, home, output or sys.stdout).until_end()
            if code is not None:
                return code
            console.note("the port of the processes was taken: all of them start again, with another port")
        raise port_lost(log_dir or Path())

    def _hosts(self) -> list[str]:
        """The host of every rank."""
        return [machine.host for machine in self._machines for _ in range(self._each)]

    @contextlib.contextmanager
    def _started(self, arguments: Sequence[str]) -> Iterator[None]:
        addresses = [machine.address for machine in self._machines for _ in range(self._each)]
        port = self._actors[0].given(self._actors[0].begin("port"))
        endpoints = [f"{address}:{port + 1 + rank}" for rank, address in enumerate(addresses)]
        device = {"FLAGS_selected_gpus": "0"}
        if self.device == "cpu":
            device = {"CUDA_VISIBLE_DEVICES": "", "PADDLE_DISTRI_BACKEND": "gloo"}
        try:
            for rank, actor in enumerate(self._actors):
                place = rank_variables(rank, endpoints, f"{addresses[0]}:{port}", rank % self._each, self._each)
                actor.given(actor.begin("start", arguments, {**place, **device}, addresses[rank]))
            yield
        finally:
            self._all("stop")

    def _all(self, method: str) -> None:
        """Call a method of all actors that are still there, side by side."""
        for actor, begun in [(actor, actor.begin(method)) for actor in self._actors]:
            with contextlib.suppress(RunFailed):
                actor.ended(begun, 2 * TERM_SECONDS)

    def end(self) -> None:
        """Ends all ranks, and removes what they left on their machines."""
        with contextlib.suppress(Exception):  # the connection with the cluster may be what has ended
            self._all("end")


class _Watch:
    """Waits for the ranks of one launch: relays rank 0, writes their logs, detects the first failure."""

    def __init__(
        self,
        actors: Sequence[ActorHandle],
        hosts: Sequence[str],
        log_dir: Path | None,
        home: _Home | None,
        output: TextIO,
    ):
        self._actors, self._hosts, self._log_dir, self._home = actors, hosts, log_dir, home
        self._ended: dict[int, Ended] = {}
        self._last: list[bytes] = [b""] * len(actors)
        self._stdout, self._stderr = Relay(output), Relay(sys.stderr)
        self._port_taken = False
        self._synced = time.monotonic()

    def until_end(self) -> int | None:
        """The exit code; None: the port was taken. RunFailed: a machine is lost."""
        try:
            while len(self._ended) < len(self._actors) and not self._failed():
                self._poll()
                time.sleep(_POLL_SECONDS)
            failed = self._failed()
            if failed:  # the others tell their errors, or Ray that their machine is gone
                self._until(SETTLE_SECONDS if any(each.code == 2 for each in failed) else _LOST_SECONDS)
        except KeyboardInterrupt:
            console.note("interrupted: all processes stop after a common step; Ctrl-C again to stop now")
            for actor in self._actors:
                actor.begin("send_signal", signal.SIGINT)
            self._until(STOP_SECONDS + TERM_SECONDS)
            self._sync()
            return EXIT_INTERRUPTED
        self._sync()
        if self._home is not None:
            self._home.fetch_events()
        if self._port_taken:
            return None
        failed = self._failed()
        if self._log_dir is None and (own := self._ended.get(0)) is not None and own.code is not None:
            return own.code
        return tell_failure(failed, len(self._actors), self._log_of) if failed else EXIT_OK

    def _failed(self) -> list[Ended]:
        return [each for each in self._ended.values() if each.code != 0]

    def _until(self, seconds: float) -> None:
        """Poll until all have ended, or `seconds` are over."""
        until = time.monotonic() + seconds
        while len(self._ended) < len(self._actors) and time.monotonic() < until:
            self._poll()
            time.sleep(_POLL_SECONDS)

    def _poll(self) -> None:
        """Take in what is new. RunFailed: a machine is lost."""
        asked = [(rank, actor.begin("poll")) for rank, actor in enumerate(self._actors) if rank not in self._ended]
        for rank, reference in asked:
            try:
                polled: Polled = self._actors[rank].given(reference)
            except WorkerLost as error:
                reason = error.problems[0].message.partition(". ")[0]
                hint = "see whether the machine and its network are well; "
                hint += "@[resume=true] goes on from the last checkpoint"
                raise RunFailed(f"machine {self._hosts[rank]} is lost: {reason}", "@[cluster]", hint) from None
            self._take_in(rank, polled)
        if self._home is not None and time.monotonic() > self._synced + _SYNC_SECONDS:
            self._sync()

    def _take_in(self, rank: int, polled: Polled) -> None:
        if polled.log:
            if self._log_dir is not None:
                with self._log(rank).open("ab") as stream:
                    stream.write(polled.log)
            self._last[rank] = (self._last[rank] + polled.log)[-65_536:]
        if rank == 0:
            self._stderr.write(polled.log)
            self._stdout.write(polled.output)
        self._port_taken |= polled.port_taken
        if polled.code is not None:
            code = polled.code if polled.code >= 0 else None
            # gloo aborts the others when one is killed, often before both are seen to have ended.
            when = time.time() + (_POLL_SECONDS if polled.code == -signal.SIGABRT else 0.0)
            self._ended[rank] = Ended(rank, code, when, f" on {self._hosts[rank]}")

    def _sync(self) -> None:
        if self._home is not None:
            self._home.fetch()
        self._synced = time.monotonic()

    def _log(self, rank: int) -> Path:
        return (self._log_dir or Path()) / f"rank-{rank}.log"

    def _log_of(self, rank: int) -> tuple[str, Sequence[str]]:
        where = "" if self._log_dir is None else str(self._log(rank))
        return where, self._last[rank].decode(errors="replace").splitlines()[-SHOWN_LINES:]


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
        found: dict[str, tuple[int, int]] = actor.given(actor.begin("files"))
        return found

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
