"""The processes of one training that a scheduler, or a person in several shells, has started. Each is one rank.

    with Peers(place, wait) as peers:          # from here on this process is quiet, unless it is rank 0
        peers.take_card(devices, device)       # before Paddle is imported
        peers.agree(facts, equal)              # all are here and alike, and Paddle's variables are set
        with peers.following_rank_0(taken): ...   # rank 0 takes the run directory, then all of them train

They meet in a store of Paddle (TCPStore), which rank 0 opens at the address that all of them were given. Until they
compute together, an error of one ends all of them with its message. Later Paddle's processes wait for one that has
ended, some of them for ever: then the scheduler has to end all of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from nlpctl import console
from nlpctl.checksums import sha256_of
from nlpctl.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USER, NlpctlError, Problem, RunFailed, UserError
from nlpctl.launch.schedulers import ProcessRank
from nlpctl.names import counted, differing
from nlpctl.runtime.device import usable_gpu, visible_devices
from nlpctl.runtime.process import quiet_import
from nlpctl.runtime.ranks import RANK, WORLD_SIZE, device_variables, free_port, gloo_variables, rank_variables

VERSIONS, RECIPE_VALUES, DATA = "versions", "recipe", "data files"  # what has to be equal, in messages
WAIT_SECONDS = 600.0  # by default, for all processes to be there
FIREWALL = "see that firewalls and network policies let the machines reach each other at all ports"
_MOST_WAIT = 365 * 86_400.0
_NOTE_SECONDS = 15.0  # between two lines about who is waited for
_AGAIN_SECONDS = 0.2  # between two looks; one operation of a TCPStore takes 0.05 s
_ANSWER_SECONDS = 20.0  # for one operation
_LAST_SECONDS = 10.0  # that rank 0 keeps its store open after an error, so that the others read of it
_SHOWN = 5  # differing keys

_FAILURE, _WORLD, _VERDICT, _LEFT, _BEGUN = "failure", "world", "verdict", "left", "begun"


@dataclass(frozen=True)
class PeerInfo:
    """One process of the training, and what it has told of itself."""

    rank: int
    host: str
    address: str
    facts: Mapping[str, Any]

    def __str__(self) -> str:
        return f"process {self.rank} ({self.host})"

    def differences(self, other: PeerInfo, equal: Sequence[str]) -> list[Problem]:
        """A problem for each of the facts `equal`, which are mappings, in which `other` differs from this one."""
        return differences(self.facts, other.facts, equal, (str(self), str(other)))


class Peers:
    """This process and the others. Use it as a context: an error inside it ends all of them."""

    def __init__(self, place: ProcessRank, wait: float = WAIT_SECONDS):
        """`wait`: seconds in which all of them have to be there. UserError: it is no such number."""
        if not 0 <= wait <= _MOST_WAIT:
            raise UserError(f"{wait:g} is no number of seconds to wait", "@[wait]", f"give 0 to {_MOST_WAIT:,}, a year")
        self.place, self.wait = place, wait
        self.members: list[PeerInfo] = []  # all processes in their order, once they agree
        self._store: Any = None
        self._token = uuid.uuid4().hex  # tells this process from another one of its number
        self._theirs: NlpctlError | None = None  # the error of another process, which ended this one
        self._alone = False  # nobody reads in the store: they wait in Paddle for each other, or are not there

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which writes."""
        return self.place.rank == 0

    def __enter__(self) -> Peers:
        os.environ |= {RANK: str(self.place.rank), WORLD_SIZE: str(self.place.world)}
        os.environ["PADDLE_LOCAL_SIZE"] = str(self.place.local_size or 1)
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or error is self._theirs:
            self._leave()
            return
        code, problems = EXIT_FAILED, [Problem(f"{type(error).__name__}: {error}")]
        if isinstance(error, NlpctlError):
            code, problems = error.exit_code, list(error.problems)
        elif isinstance(error, KeyboardInterrupt):
            code, problems = EXIT_INTERRUPTED, [Problem("interrupted")]
        elif "/gloo/" in str(error):  # Paddle only says that another process has ended
            with contextlib.suppress(NlpctlError):
                self._raise_failure()
            hint = "see what the others say; @[resume=true] goes on from the last checkpoint"
            raise self._theirs or RunFailed(f"another process is lost: {_reason(error)}", hint=hint) from None
        with contextlib.suppress(NlpctlError):  # of this error the user hears here, and perhaps nowhere else
            if self._store is None and self._alone:
                return
            self._open(_LAST_SECONDS)
            said = [asdict(problem) for problem in problems]
            failure = {"rank": self.place.rank, "host": socket.gethostname(), "code": code, "problems": said}
            self._put(_FAILURE, failure)
        self._leave()

    def take_card(self, devices: Sequence[int], device: str) -> None:
        """Give this process its card of `devices`, those of this machine, or none. Before Paddle is imported.

        `device`: as runtime.device. UserError: it is not known which card is meant.
        """
        local = self.place.local_rank
        if len(devices) > 1 and local is None:
            hint = "name the one of this process: @[runtime.devices=0]"
            raise UserError("nobody says which of these cards is this process's", "runtime.devices", hint)
        if devices and local is not None and len(devices) > 1 and local >= len(devices):
            message = f"this is process {local} of its machine, and {counted(len(devices), 'cards')} are listed"
            raise UserError(message, "runtime.devices", "list a card for each, or start fewer processes")
        if devices:
            card = devices[local] if local is not None and len(devices) > 1 else devices[0]
            os.environ["CUDA_VISIBLE_DEVICES"] = visible_devices((card,), os.environ) or ""
        elif device == "cpu" or not usable_gpu().usable:
            os.environ |= device_variables(None)
            return
        elif usable_gpu().count > 1:
            hint = "list those of each machine: @[runtime.devices=0,1]; or train on CPU: @[runtime.device=cpu]"
            raise UserError("this machine has cards, and of several processes they are named", "runtime.devices", hint)
        os.environ |= device_variables(0)

    # -- meeting -------------------------------------------------------------------------------

    def agree(self, facts: Mapping[str, Any], equal: Sequence[str]) -> None:
        """Wait until all processes are here, and compare what they tell of themselves; then set Paddle's variables.

        UserError if one of `equal`, mappings in `facts`, differs, or if they cannot meet. Then `members` holds all of
        them; what they told of themselves stays with rank 0.
        """
        self._open(self.wait)
        own = {"facts": facts, "host": socket.gethostname(), "address": self._address(), "token": self._token}
        name = f"process {self.place.rank}"
        self._put(name, own)
        if self.first:
            members = self._gathered()
            verdict = self._compare(members, equal)
            self._put(_VERDICT, verdict)
        else:
            while not self._has(_VERDICT):
                self._raise_failure()
                self._refuse_twin(name)
                time.sleep(_AGAIN_SECONDS)
            self._refuse_twin(name)
            verdict = self._get(_VERDICT)
        if verdict["problems"]:
            self._raise_theirs(UserError(problems=[Problem(**each) for each in verdict["problems"]]))
        self.members = [PeerInfo(**each, facts=members[each["rank"]].facts if self.first else {})
                        for each in verdict["members"]]  # fmt: skip
        self._set_variables(verdict["port"])

    def _gathered(self) -> list[PeerInfo]:
        """What all processes have told, in their order. UserError for those who are missing after `wait` seconds."""
        begun = noted = time.monotonic()
        missing = list(range(1, self.place.world))
        while missing := [rank for rank in missing if not self._has(f"process {rank}")]:
            self._raise_failure()
            names = ", ".join(map(str, missing))
            if time.monotonic() - begun > self.wait:
                self._alone = len(missing) == self.place.world - 1
                message = f"{counted(len(missing), 'processes')} did not come within {self.wait:g} s: {names}"
                hint = f"start the same command there; else {FIREWALL}"
                raise UserError(message, f"@[master] {self.place.master}", hint)
            if time.monotonic() - noted > _NOTE_SECONDS:
                noted = time.monotonic()
                console.note(f"still waiting for processes {names}")
            time.sleep(_AGAIN_SECONDS)
        said = [self._get(f"process {rank}") for rank in range(self.place.world)]
        return [PeerInfo(rank, each["host"], each["address"], each["facts"]) for rank, each in enumerate(said)]

    def _compare(self, members: Sequence[PeerInfo], equal: Sequence[str]) -> dict[str, Any]:
        """What rank 0 sends to the others: the problems, all members, and the port for Paddle's own store."""
        problems = [problem for member in members[1:] for problem in members[0].differences(member, equal)]
        # Without the facts: of thousands of files, they would be megabytes for each.
        others = [{"rank": each.rank, "host": each.host, "address": each.address} for each in members]
        first = members[0].address
        if first.startswith("127.") and not all(each.address.startswith("127.") for each in members):
            # The name of this machine leads to itself; what leads to another process is the address that it sees.
            others[0]["address"] = first = _own_address(members[1].address, self.place.port)
        return {"problems": [asdict(problem) for problem in problems], "members": others, "port": free_port()}

    def _set_variables(self, port: int) -> None:
        """The variables of Paddle, with which init_parallel_env lets the processes meet."""
        own, first = self.members[self.place.rank], self.members[0]
        here = [each.rank for each in self.members if each.address == own.address]
        endpoints = [f"{each.address}:{port + 1 + each.rank}" for each in self.members]
        master = f"{first.address}:{port}"
        os.environ |= rank_variables(self.place.rank, endpoints, master, here.index(self.place.rank), len(here))
        os.environ |= gloo_variables(own.address)

    def _refuse_twin(self, name: str) -> None:
        """UserError if another process of this number has told of itself, too."""
        other = self._get(name)
        if other["token"] != self._token:
            message = f"two processes say that they are {name}: {socket.gethostname()} and {other['host']}"
            raise UserError(message, "@[node_rank]", "give every process a number of its own, from 0 on")

    # -- the run -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def following_rank_0(self, taken: AbstractContextManager[bool], identity: Callable[[], str]) -> Iterator[bool]:
        """Around the training: rank 0 enters `taken`, which takes the run directory, before the others go on.

        Gives what `taken` gives. `identity`: a text of the run directory that no other has. UserError if a process
        sees none or another one there: they need common storage.
        """
        if self.first:
            with taken as value:
                self.announce(_BEGUN, {"value": value, "identity": identity()})
                self._alone = True
                yield value
            return
        begun = self.wait_for(_BEGUN)
        until = time.monotonic() + _LAST_SECONDS  # network storage shows files of other machines after a while
        while (seen_here := identity()) != begun["identity"]:
            if time.monotonic() > until:
                seen = "another run directory" if seen_here else "no run directory"
                hint = "training.output_dir is on storage that every process has under the same path"
                raise UserError(f"process {self.place.rank} sees {seen} there", "training.output_dir", hint)
            time.sleep(_AGAIN_SECONDS)
        yield begun["value"]

    def announce(self, name: str, value: Mapping[str, Any]) -> None:
        """Tell the others; `wait_for` gets it."""
        self._put(name, value)

    def wait_for(self, name: str) -> dict[str, Any]:
        """What another process announces under `name`. Raises the error that ends one of them meanwhile."""
        while not self._has(name):
            self._raise_failure()
            time.sleep(_AGAIN_SECONDS)
        return self._get(name)

    # -- the store -----------------------------------------------------------------------------

    def _open(self, seconds: float) -> None:
        """Open the store, or connect with it within `seconds`. UserError."""
        if self._store is not None:
            return
        os.environ.setdefault("GLOG_minloglevel", "2")  # if Paddle is imported for an early error
        with quiet_import():
            from paddle.base import core
        place = self.place
        if self.first:
            console.note(f"process 0 of {place.world}: waiting for the others at {place.master}")
            self._alone = True  # until there is a store
            if _answers(place, 1.0) is None:
                hint = "is another process 0 running? give each process its own @[node_rank], or take another port"
                raise UserError("something answers there already", f"@[master] {place.master}", hint)
            try:
                self._store = core.TCPStore("127.0.0.1", place.port, True, 0)
            except Exception as error:
                raise UserError(_reason(error), f"@[master] {place.master}", "take another port") from None
            self._alone = False
            self._put(_WORLD, {"world": place.world})
            return
        begun = noted = time.monotonic()
        while (why := _answers(place, 5.0)) is not None:  # the store itself would wait for a quarter of an hour
            if time.monotonic() - begun > seconds:
                self._alone = True
                _unreachable(place, seconds, why)
            if time.monotonic() - noted > _NOTE_SECONDS:
                noted = time.monotonic()
                console.warn(f"process {place.rank} of {place.world}: process 0 is not at {place.master} yet ({why})")
            time.sleep(_AGAIN_SECONDS)
        address = socket.getaddrinfo(place.host, place.port, socket.AF_INET, socket.SOCK_STREAM)[0][4][0]
        self._store = self._asked(lambda: core.TCPStore(str(address), place.port, False, 0))
        world = self.wait_for(_WORLD)["world"]
        if world != place.world:
            message = f"process {place.rank} was told of {counted(place.world, 'processes')}, process 0 of {world}"
            raise UserError(message, "@[nnodes]", "give all of them the same number")

    def _asked(self, operation: Callable[[], Any]) -> Any:
        """What `operation` of the store returns. RunFailed if process 0, whose store it is, is gone.

        In a thread, so that Ctrl-C ends it, and that what is no store cannot hold it up for ever.
        """
        results: list[Any] = []

        def run() -> None:
            try:
                results.append(operation())
            except Exception as error:
                results.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(_ANSWER_SECONDS)
        result = results[0] if results else TimeoutError("no answer; perhaps it is not nlpctl")
        if isinstance(result, Exception):
            hint = "see what process 0 says, and whether its machine and network are well"
            raise RunFailed(f"process 0 is lost: {_reason(result)}", self.place.master, hint)
        return result

    def _put(self, name: str, value: Mapping[str, Any]) -> None:
        store, text = self._store, json.dumps(value)
        self._asked(lambda: (store.set(name, text), store.add(f"{name}?", 1)))

    def _has(self, name: str) -> bool:
        store = self._store
        return bool(self._asked(lambda: store.add(f"{name}?", 0)))  # to get what is not there would wait for it

    def _get(self, name: str) -> dict[str, Any]:
        store = self._store
        value: dict[str, Any] = json.loads(self._asked(lambda: store.get(name)))
        return value

    def _raise_failure(self) -> None:
        """Raise the error that another process has told of, if one has."""
        if not self._has(_FAILURE):
            return
        failure = self._get(_FAILURE)
        before = f"process {failure['rank']} ({failure['host']}): "
        problems = [
            Problem(f"{before}{each['where']}: {each['message']}" if each["where"] else f"{before}{each['message']}",
                    "", each["hint"])
            for each in failure["problems"]
        ]  # fmt: skip
        kind = UserError if failure["code"] == EXIT_USER else RunFailed
        self._raise_theirs(kind(problems=problems))

    def _raise_theirs(self, error: NlpctlError) -> NoReturn:
        self._theirs = error
        raise error

    def _leave(self) -> None:
        """Rank 0 keeps the store open until the others have read what is in it, or for a while."""
        if self._store is None or self._alone:  # those who wait in Paddle see at once that this one ends
            return
        with contextlib.suppress(NlpctlError):
            store = self._store
            self._asked(lambda: store.add(_LEFT, 1))
            until = time.monotonic() + _LAST_SECONDS
            while self.first and time.monotonic() < until:
                if self._asked(lambda: store.add(_LEFT, 0)) >= self.place.world:
                    break
                time.sleep(_AGAIN_SECONDS)

    def _address(self) -> str:
        """The address of this machine by which process 0 can be reached."""
        return _own_address(self.place.host, self.place.port)


def differences(
    first: Mapping[str, Any], other: Mapping[str, Any], equal: Sequence[str], names: tuple[str, str]
) -> list[Problem]:
    """A problem for each of the mappings `equal` in which the facts of `other` differ from those of `first`.

    It shows the first few keys. `names`: of the two processes or machines, in messages.
    """
    problems = []
    for name in equal:
        one, two = first[name], other[name]
        keys = differing(one, two)
        if not keys:
            continue
        values = [f"{key} is {two.get(key, 'absent')}, not {one.get(key, 'absent')}" for key in keys[:_SHOWN]]
        more = f", and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
        hint = f"make them equal everywhere; {names[0]} has the values named last"
        problems.append(Problem(f"differs in its {name}: {', '.join(values)}{more}", names[1], hint))
    return problems


def file_facts(paths: Iterable[Path]) -> dict[str, str]:
    """What has to be equal of files, by their paths; one that is not there has no entry."""
    return {str(path): sha256_of(path)[:16] for path in paths if path.is_file()}


def _own_address(host: str, port: int) -> str:
    """The address of this machine on the way to `host`. Nothing is sent. UserError: the name is not known here."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:  # IPv4: Paddle splits addresses at their colon
            way.connect((host, port))
            return str(way.getsockname()[0])
    except OSError as error:
        raise UserError(f"{host} cannot be reached: {error.strerror}", "@[master]", FIREWALL) from None


def _answers(place: ProcessRank, seconds: float) -> str | None:
    """None if something listens at the address of process 0, else why not."""
    try:
        address = socket.getaddrinfo(place.host, place.port, socket.AF_INET, socket.SOCK_STREAM)[0][4]
        socket.create_connection((str(address[0]), place.port), timeout=seconds).close()
    except socket.gaierror:
        return f"the name {place.host} is not known here"
    except ConnectionRefusedError:
        return "nothing listens there"
    except TimeoutError:
        return "no answer, as behind a firewall"
    except OSError as error:
        return error.strerror or str(error)
    return None


def _unreachable(place: ProcessRank, seconds: float, why: str) -> NoReturn:
    hint = f"start process 0 first, check the address, and {FIREWALL}"
    raise UserError(f"process 0 cannot be reached after {seconds:g} s: {why}", f"@[master] {place.master}", hint)


def _reason(error: BaseException) -> str:
    """The telling line of an error of Paddle, which has a traceback of C++ around it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if line.startswith("(")), lines[-1] if lines else type(error).__name__)
