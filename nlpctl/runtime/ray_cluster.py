"""Workers on the nodes of a Ray cluster (extra `cluster`). Ray itself is imported when a cluster is asked for."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import os
import platform
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import nlpctl
from nlpctl import spelling
from nlpctl.config.schema import RuntimeSection
from nlpctl.errors import NeedsRestart, NlpctlError, RunFailed, UserError
from nlpctl.extras import install
from nlpctl.names import counted
from nlpctl.runtime.device import choose_device
from nlpctl.runtime.worker import (
    NoRoom,
    ProcessEnded,
    Worker,
    WorkerKilled,
    WorkerLost,
    converse,
    how_ended,
    outcome,
    value_of,
)

OLDEST, NEWEST = (2, 40), (2, 99)  # releases of Ray; the extra in pyproject.toml asks for the same
_ADDRESS = re.compile(r"auto|(ray://)?[\w.\-\[\]:]+:\d+")
_ROOM_SECONDS = 20.0  # for a node to start a worker, which imports nlpctl; then another worker takes the job
_REACH_SECONDS = 10.0
_GRACE = 5.0  # seconds more than a process has to end, for Ray
_CALLS = 4  # of a WorkerActor at a time: a conversation, signals, the end
_FLAG, _A_WORKER = "@[cluster]", "a worker of the cluster"


@dataclass(frozen=True)
class ResourceRequest:
    """What each worker on a cluster may use, and how many of them it has room for."""

    runtime: RuntimeSection
    cores: int
    cards: int
    room: int


@dataclass(frozen=True)
class NodeRequirements:
    """What a worker must find on its node: the folder in which paths begin, what else this command reads or writes,
    and the device; None: that is found out later. Its messages spell options as those of this process do.

    `needs_paddle`: as of `choose_device`.
    """

    folder: str
    paths: tuple[str, ...] = ()
    device: str | None = None
    messages: str = field(default_factory=spelling.current)
    needs_paddle: bool = True

    def enter(self) -> None:
        """Go to the folder. UserError that names this node if something is missing."""
        os.environ[spelling.VARIABLE] = self.messages
        try:
            os.chdir(self.folder)
            for path in self.paths:
                os.stat(path)
        except OSError as error:
            message = f"node {platform.node()} does not see it: {error.strerror}"
            hint = "model, data and output are on storage that every node has under the same path"
            raise UserError(message, error.filename or self.folder, hint) from None
        if self.device is not None:
            choose_device(self.device, (), needs_paddle=self.needs_paddle)


class UnfitNode(UserError):
    """No work can be given to a node before somebody mends it."""


class ClusterLost(RunFailed):
    """The connection with the cluster is lost: no worker can be reached any more."""


class RayCluster:
    """A connection to a cluster. `nodes`: the (cores, cards) of each."""

    def __init__(self, ray: Any):
        self._ray = ray
        found = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        self.nodes = [(int(each.get("CPU", 0)), int(each.get("GPU", 0))) for each in found]

    def request(self, runtime: RuntimeSection, workers: int | None) -> ResourceRequest:
        """A worker has a card, or `runtime.threads` cores, by default one, of one node. UserError: there is no room
        for `workers`."""
        request = self._possible(runtime)
        if (workers or 1) > request.room:
            each = "a card and a core" if request.cards else counted(request.cores, "cores")
            has = f"{counted(sum(cores for cores, _ in self.nodes), 'cores')} and "
            has += f"{counted(sum(cards for _, cards in self.nodes), 'cards')} on {counted(len(self.nodes), 'nodes')}"
            message = f"the cluster has {has}: room for {counted(request.room, 'workers')} with {each} of one node"
            raise UserError(message, "@[workers]", "ask for fewer, or for fewer @[runtime.threads] of each")
        return request

    def _possible(self, runtime: RuntimeSection) -> ResourceRequest:
        """As `request`, also where there is no room."""
        if runtime.device == "gpu" or (runtime.device == "auto" and any(cards for _, cards in self.nodes)):
            return ResourceRequest(dataclasses.replace(runtime, devices=()), 1, 1, sum(map(min, self.nodes)))
        threads = runtime.threads or 1
        own = dataclasses.replace(runtime, device="cpu", devices=(), threads=threads)
        return ResourceRequest(own, threads, 0, sum(cores // threads for cores, _ in self.nodes))

    def worker(
        self,
        request: ResourceRequest,
        requirements: NodeRequirements,
        opened: Callable[..., Any],
        *arguments: Any,
        grace: float,
        name: str = _A_WORKER,
    ) -> RayWorker:
        """As `Worker`, on any node with as much free as `request` says."""
        requirements = dataclasses.replace(requirements, device=request.runtime.device)
        create = functools.partial(self._actor, request, WorkerActor)
        return RayWorker(create, requirements, opened, *arguments, grace=grace, name=name)

    def _actor(self, request: ResourceRequest, kind: type, **options: Any) -> ActorHandle:
        wanted = {"num_cpus": request.cores, "num_gpus": request.cards, "max_restarts": 0, "max_concurrency": _CALLS}
        with _connected():
            return ActorHandle(self._ray, self._ray.remote(**wanted, **options)(kind).remote())

    @contextlib.contextmanager
    def placement_group(
        self, runtime: RuntimeSection, machines: int, each: int, requirements: NodeRequirements, kind: type[NodeActor]
    ) -> Iterator[tuple[ResourceRequest, list[ActorHandle]]]:
        """`each` actors of `kind` on each of `machines` nodes, those of a node one after the other; all or none.

        Each may use what the request says. UserError: the cluster is too small; NoRoom: it is busy; UnfitNode.
        """
        from ray.util import placement_group, remove_placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        request = self._possible(runtime)
        fitting = sum(cores >= request.cores * each and cards >= request.cards * each for cores, cards in self.nodes)
        if fitting < machines:
            needed = counted(each, "cards") if request.cards else counted(request.cores * each, "cores")
            message = f"the cluster has {counted(fitting, 'machines')} with {needed}, not {machines}"
            hint = "ask for fewer, or for fewer @[runtime.nproc] or @[runtime.threads] of each"
            raise UserError(message, "@[nnodes]", hint)
        bundle = {"CPU": float(request.cores * each), **({"GPU": float(request.cards * each)} if request.cards else {})}
        with _connected():
            group = placement_group([bundle] * machines, strategy="STRICT_SPREAD")
        actors: list[ActorHandle] = []
        try:
            with _connected():
                if not group.wait(_ROOM_SECONDS):
                    message = f"{counted(machines, 'machines')} with room are not free"
                    raise NoRoom(message, _FLAG, "ray status shows what the cluster has left")
            for rank in range(machines * each):
                where = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank // each)
                actors.append(self._actor(request, kind, scheduling_strategy=where))
            for actor in actors:  # all of them start at once
                actor.begin("meet", requirements)
            for actor in actors:
                actor.meet(requirements)
            yield request, actors
        finally:
            for actor in actors:
                actor.kill()
            with contextlib.suppress(Exception):  # the connection may be lost
                remove_placement_group(group)


class ActorHandle:
    """An actor of Ray, a `NodeActor`, which this process ends."""

    def __init__(self, ray: Any, actor: Any):
        self.ray, self._actor = ray, actor

    def meet(self, requirements: NodeRequirements) -> None:
        """Wait until it is there. NoRoom, UnfitNode."""
        try:
            with _connected(), self.losses():
                begun, _ = self.ray.wait([met := self._actor.meet.remote(requirements)], timeout=_ROOM_SECONDS)
                there = self.ray.get(met) if begun else None
        except ProcessEnded as error:  # its node is gone, which the cluster may not know yet; or nlpctl is not there
            raise NoRoom(problems=error.problems) from None
        if there is None:
            self.kill()
            raise NoRoom("no node has room for another worker", _FLAG, "ray status shows what the cluster has left")
        version, problem = there
        if version != nlpctl.__version__:
            self.kill()
            message = f"a node has nlpctl {version}, and this machine {nlpctl.__version__}"
            raise UnfitNode(message, _FLAG, "install the same version on all nodes")
        if problem is not None:
            self.kill()
            raise UnfitNode(problems=problem.problems)

    def begin(self, method: str, *arguments: Any) -> Any:
        """A reference to what the method will give."""
        with _connected():
            return getattr(self._actor, method).remote(*arguments)

    def given(self, reference: Any) -> Any:
        """What the method gave, once it is there. WorkerLost."""
        with _connected(), self.losses():
            return self.ray.get(reference)

    def ended(self, reference: Any, seconds: float | None) -> bool:
        """Whether the method ends within `seconds`."""
        with _connected(), self.losses():
            return bool(self.ray.wait([reference], timeout=seconds)[0])

    def kill(self) -> None:
        with contextlib.suppress(Exception):  # it may have ended, with its node
            self.ray.kill(self._actor)

    @contextlib.contextmanager
    def losses(self) -> Iterator[None]:
        """WorkerLost for every error of Ray's own: the worker or its node is gone, or cannot be reached.

        WorkerKilled if Ray ended the worker because its node was short of memory.
        """
        try:
            yield
        except self.ray.exceptions.RayError as error:
            reason = next((line for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
            hint = "look at the cluster: ray status, ray list nodes; nlpctl must be installed on every node"
            kind = WorkerKilled if isinstance(error, self.ray.exceptions.OutOfMemoryError) else WorkerLost
            raise kind(reason.strip(), _A_WORKER, hint) from None


class RayWorker:
    """A process that an actor keeps on its node: a `RemoteProcess` of runtime/worker.py."""

    def __init__(
        self,
        actor: Callable[[], ActorHandle],
        requirements: NodeRequirements,
        *opened: Any,
        grace: float,
        name: str = _A_WORKER,
    ):
        self.name = name
        self._create_actor, self._requirements, self._opened, self._grace = actor, requirements, opened, grace
        self._actor: ActorHandle | None = None

    def start(self) -> None:
        """NoRoom, UnfitNode; WorkerLost in the middle of it."""
        actor = self._create_actor()
        actor.meet(self._requirements)
        self._actor = actor
        actor.given(actor.begin("open", self._grace, *self._opened))

    @property
    def alive(self) -> bool:
        """As far as is known: `ask` tells when it is gone."""
        return self._actor is not None

    def send_signal(self, number: signal.Signals) -> None:
        if self._actor is not None:
            with contextlib.suppress(Exception):  # as of `end`
                self._actor.begin("send_signal", number)

    def ask(
        self,
        request: Any,
        where: str,
        hint: str = "",
        seconds: float | None = None,
        callback: Callable[[Any], Any] | None = None,
    ) -> Any:
        actor = self._actor
        if actor is None:
            raise ProcessEnded("it was ended", where, hint)
        answer = converse(_RayChannel(actor), request, seconds, callback)
        if isinstance(answer, _Ended):
            kind = WorkerKilled if answer.code == -signal.SIGKILL else ProcessEnded
            raise kind(f"its process on node {answer.node} ended ({how_ended(answer.code)})", where, hint)
        return value_of(answer, where)

    def end(self, interrupt: bool = False) -> None:
        actor, self._actor = self._actor, None
        if actor is None:
            return
        try:
            with contextlib.suppress(Exception):  # the node may be gone, or the connection
                actor.ended(actor.begin("end", interrupt), self._grace + _GRACE)
        finally:  # a second Ctrl-C
            actor.kill()


class _RayChannel:
    """A `Channel` to the process that an actor keeps: after each thing that is sent, one comes."""

    def __init__(self, actor: ActorHandle):
        self._actor = actor
        self._next: Any = None

    def send(self, content: Any) -> None:
        self._next = self._actor.begin("converse", content)

    def poll(self, seconds: float | None) -> bool:
        return self._actor.ended(self._next, seconds)

    def recv(self) -> Any:
        return self._actor.given(self._next)


@contextlib.contextmanager
def _connected() -> Iterator[None]:
    """ClusterLost where Ray Client has lost its connection."""
    try:
        yield
    except ConnectionError as error:
        message = f"the connection with the cluster is lost: {error}"
        hint = "see whether it is well, then call the same command again, with @[resume=true] where it has that"
        raise ClusterLost(message, _FLAG, hint) from None


class NodeActor:
    """What runs in a worker of Ray, on any node. Several of its methods run at a time."""

    def meet(self, requirements: NodeRequirements) -> tuple[str, Any]:
        """The version of nlpctl, and what is missing on this node; None: nothing."""
        missing = outcome(_naming_node, requirements.enter)
        return nlpctl.__version__, missing if isinstance(missing, NlpctlError) else None


@dataclass(frozen=True)
class _Ended:
    """In place of an answer: the process has ended."""

    code: int | None
    node: str


class WorkerActor(NodeActor):
    """Keeps a process on its node, which can be interrupted while it answers."""

    def open(self, grace: float, *opened: Any) -> None:
        self._worker = Worker(_open_there, *opened, grace=grace, daemon=False)
        self._worker.start()

    def converse(self, content: Any) -> Any:
        """Send something to the process; what it says next."""
        try:
            with contextlib.suppress(OSError):  # it has ended, and may have sent the reason
                self._worker.channel.send(content)
            return self._worker.channel.recv()
        except (EOFError, OSError):
            return _Ended(self._worker.code(), platform.node())

    def send_signal(self, number: signal.Signals) -> None:
        self._worker.send_signal(number)

    def end(self, interrupt: bool) -> None:
        self._worker.end(interrupt)


def _open_there(opened: Callable[..., Callable[[Any], Any]], *arguments: Any) -> Callable[[Any], Any]:
    """Runs in the process: what `opened` gives, whose errors name this node where that is what has to be mended."""
    answer = _naming_node(opened, *arguments)
    return lambda request: _naming_node(answer, request)


def _naming_node(call: Callable[..., Any], *arguments: Any) -> Any:
    """The result of `call`. On its own machine a command restarts itself for NeedsRestart; here somebody has to."""
    try:
        return call(*arguments)
    except NeedsRestart as needed:
        variables = ", ".join(f"{name}={value}" for name, value in needed.variables.items())
        hint = f"stop Ray on that node, and start it there with {variables}"
        raise UserError(needed.problems[0].message, f"node {platform.node()}", hint) from None


@contextlib.contextmanager
def ray_cluster(address: str) -> Iterator[RayCluster]:
    """Connect to the cluster at `address`: auto, HOST:PORT, or ray://HOST:PORT of Ray Client.

    UserError: Ray is missing or of another release, or no cluster answers there.
    """
    if _ADDRESS.fullmatch(address) is None:
        hint = "auto is the one that this machine belongs to; ray://HOST:10001 is one elsewhere"
        raise UserError(f"{address!r} is not the address of a Ray cluster", _FLAG, hint)
    try:
        import ray
    except ImportError:
        raise UserError("Ray is not installed", _FLAG, f"{install('ray')}, on every node") from None
    _refuse_release(ray.__version__)
    _refuse_unreachable(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False)
    except ImportError as error:
        raise UserError(f"Ray cannot use this address: {error}", _FLAG, "pip install 'ray[client]'") from None
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise _unusable(reason) from None
    try:
        with contextlib.redirect_stdout(sys.stderr):  # Ray tells of lost nodes on standard output
            yield RayCluster(ray)
    finally:
        ray.shutdown()


def _unusable(reason: str) -> UserError:
    hint = "start one: ray start --head, and on other machines ray start --address=HOST:6379"
    return UserError(f"no Ray cluster can be used there: {reason}", _FLAG, hint)


def _refuse_unreachable(address: str) -> None:
    """UserError if nothing listens there, for which Ray would wait for minutes."""
    if address == "auto":
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_SECONDS).close()
    except (OSError, OverflowError, UnicodeError) as error:
        raise _unusable(f"{address} cannot be reached ({error})") from None


def _refuse_release(version: str) -> None:
    found = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if not OLDEST <= found <= NEWEST:
        message = f"Ray {version} is installed; nlpctl knows {'.'.join(map(str, OLDEST))} and later of Ray 2"
        raise UserError(message, _FLAG, f"{install('ray')}, on every node")
