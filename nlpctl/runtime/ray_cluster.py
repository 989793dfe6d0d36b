"""Workers on the nodes of a Ray cluster (extra `cluster`). Ray itself is imported when a cluster is asked for."""

from __future__ import annotations

import contextlib
import platform
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import nlpctl
from nlpctl.errors import NeedsRestart, RunFailed, UserError
from nlpctl.runtime.crew import NoRoom
from nlpctl.runtime.worker import ProcessEnded, outcome, raised_or_given

INSTALL = "pip install 'nlpctl[cluster]'"
OLDEST, NEWEST = (2, 40), (2, 99)  # releases of Ray; the extra in pyproject.toml asks for the same
_ADDRESS = re.compile(r"auto|(ray://)?[\w.\-\[\]:]+:\d+")
_ROOM_SECONDS = 20.0  # for a node to start a worker, which imports nlpctl; then another worker takes the job
_FLAG = "--cluster"


class RayCluster:
    """A connection to a cluster. `cores`, `cards`: what it has."""

    def __init__(self, ray: Any):
        self._ray = ray
        found = ray.cluster_resources()
        self.cores, self.cards = int(found.get("CPU", 0)), int(found.get("GPU", 0))

    def hire(self, opened: Callable[..., Any], *arguments: Any, cores: int, cards: int) -> RayHand:
        """A worker on any node with as much free; it calls `opened` as `Worker` does. NoRoom: there is none."""
        remote = self._ray.remote(num_cpus=cores, num_gpus=cards, max_restarts=0)(_Served)
        with _connected():
            return RayHand(self._ray, remote.remote(opened, arguments))


class RayHand:
    """An actor that answers requests: a `Hand` of runtime/crew.py."""

    def __init__(self, ray: Any, actor: Any):
        self._ray, self._actor = ray, actor
        try:
            with self._losses():
                begun, _ = ray.wait([version := actor.version.remote()], timeout=_ROOM_SECONDS)
                there = ray.get(version) if begun else None
        except ProcessEnded as error:  # its node is gone, which the cluster may not know yet; or nlpctl is not there
            raise NoRoom(problems=error.problems) from None
        if there is None:
            self.end(interrupt=True)
            raise NoRoom("no node has room for another worker", _FLAG, "ray status shows what the cluster has left")
        if there != nlpctl.__version__:
            self.end(interrupt=True)
            message = f"a node has nlpctl {there}, and this machine {nlpctl.__version__}"
            raise UserError(message, _FLAG, "install the same version on all nodes")

    def ask(self, job: Any) -> Any:
        with _connected(), self._losses():
            answer = self._ray.get(self._actor.answer.remote(job))
        return raised_or_given(answer, "a worker of the cluster")

    def end(self, interrupt: bool) -> None:
        with contextlib.suppress(Exception):  # it may have ended, with its node
            self._ray.kill(self._actor)

    @contextlib.contextmanager
    def _losses(self) -> Iterator[None]:
        """ProcessEnded for every error of Ray's own: the worker or its node is gone, or cannot be reached."""
        try:
            yield
        except self._ray.exceptions.RayError as error:
            reason = next((line for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
            hint = "look at the cluster: ray status, ray list nodes; nlpctl must be installed on every node"
            raise ProcessEnded(reason.strip(), "a worker of the cluster", hint) from None


@contextlib.contextmanager
def _connected() -> Iterator[None]:
    """RunFailed where Ray Client has lost its connection: no worker can be reached any more."""
    try:
        yield
    except ConnectionError as error:
        message = f"the connection with the cluster is lost: {error}"
        raise RunFailed(message, _FLAG, "see whether it is well, then continue with --resume") from None


class _Served:
    """Runs in a worker of Ray."""

    def __init__(self, opened: Callable[..., Any], arguments: tuple[Any, ...]):
        # An error is an answer, as in a process of this machine: Ray would wrap it, and lose what it says.
        self._opened = outcome(_told_of_node, opened, *arguments)

    def version(self) -> str:
        return nlpctl.__version__

    def answer(self, job: Any) -> Any:
        return outcome(_told_of_node, self._opened, job) if callable(self._opened) else self._opened


def _told_of_node(call: Callable[..., Any], *arguments: Any) -> Any:
    """The result of `call`; what has to be mended on this node names it."""
    try:
        return call(*arguments)
    except NeedsRestart as needed:
        told = ", ".join(f"{name}={value}" for name, value in needed.variables.items())
        hint = f"stop Ray on that node, and start it there with {told}"
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
        raise UserError("Ray is not installed", _FLAG, f"{INSTALL}, on every node") from None
    _refuse_release(ray.__version__)
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=False)
    except ImportError as error:
        raise UserError(f"Ray cannot use this address: {error}", _FLAG, "pip install 'ray[client]'") from None
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        hint = "start one: ray start --head, and on other machines ray start --address=HOST:6379"
        raise UserError(f"no Ray cluster can be used there: {reason}", _FLAG, hint) from None
    try:
        with contextlib.redirect_stdout(sys.stderr):  # Ray tells of lost nodes on standard output
            yield RayCluster(ray)
    finally:
        ray.shutdown()


def _refuse_release(version: str) -> None:
    found = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if not OLDEST <= found <= NEWEST:
        message = f"Ray {version} is installed; nlpctl knows {'.'.join(map(str, OLDEST))} and later of Ray 2"
        raise UserError(message, _FLAG, f"{INSTALL}, on every node")
