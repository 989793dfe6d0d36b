"""Kill parts of a Ray cluster while `predict --cluster` runs there, and check that no row is lost, doubled or moved.

    python scripts/check_ray.py                         # ten kills of each kind; about a quarter of an hour on 2 cores
    python scripts/check_ray.py --kills 3 --only raylet --seed 7
    python scripts/check_ray.py --client --json         # the command reaches the cluster by ray://

The cluster is two nodes of this machine with one core each, beside a head that computes nothing. At a random moment
one process gets SIGKILL: an actor that answers shards, the raylet of a node, or the command itself, which is then
called again with --resume. The raylet of the head is a kind of its own, `head`: the command stands on it. One kill in
five comes before the first shard is finished, the others when a random number of them are. Each output is compared
with that of one process, byte by byte, and nothing may be left behind. The model is a bag of embeddings, which costs
nothing; one line in 1,000 is bad. An output that differs is kept in --folder, with its lines that differ.

Needs Ray (the extra `cluster`). Exit 1 if an output differs or a command fails.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import filecmp
import gzip
import itertools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench_common import NLPCTL, Table, conditions, environment, tell

KINDS = ("worker", "raylet", "driver", "head")
USUAL = KINDS[:3]
BAD_EVERY, BATCH = 1000, 8
EARLY, LATE = 0.2, 0.3  # the share of kills before the first shard; seconds by which the others are put off at most
LONGEST = 600.0  # seconds that a command may take
OUTPUT = "answers.jsonl"

RECIPE = """\
task: sequence_classification
model: {from_scratch: {architecture: bag_of_embeddings, min_frequency: 1}}
data: {train: train.tsv, max_seq_length: 32}
training: {output_dir: model, max_steps: 5, evaluation_strategy: "no", save_strategy: "no"}
runtime: {device: cpu}
"""


@dataclass
class Kill:
    """One run. `after`: seconds from its start to the kill; `shards`: those finished by then, of `of`; `calls`: of the
    command.

    `lost`, `doubled`, `moved`: rows, by their numbers; `told`: what else is wrong.
    """

    kind: str
    seed: str
    after: float = 0.0
    shards: int = 0
    of: int = 0
    calls: int = 1
    seconds: float = 0.0
    same: bool = False
    lost: int = 0
    doubled: int = 0
    moved: int = 0
    told: list[str] = field(default_factory=list)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10, help="of each kind")
    parser.add_argument("--only", default=",".join(USUAL), help=f"kinds, joined by commas: {', '.join(KINDS)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--client", action="store_true", help="reach the cluster by ray://")
    parser.add_argument("--folder", type=Path, help="working folder; default: a temporary folder")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    kinds = arguments.only.split(",")
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        parser.error(f"no kind {', '.join(unknown)}; there are {', '.join(KINDS)}")
    facts = conditions()
    folder = (arguments.folder or Path(tempfile.mkdtemp(prefix="check-ray-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    files = prepare(folder, arguments.rows, arguments.seed)
    with Nodes(arguments.client) as nodes:
        check = Check(folder, files, nodes)
        found = list(check.kills(kinds, arguments.kills, arguments.seed))
    failed = [each for each in found if each.told or not each.same]
    columns = ("killed", "kills", "seconds after the start", "shards done", "called again", "identical", "lost",
               "doubled", "moved")  # fmt: skip
    rows = [row_of(kind, [each for each in found if each.kind == kind]) for kind in kinds]
    way = "by ray://" if arguments.client else "by the address of the head"
    notes = [f"{check.usual:.1f} s without a kill, {way}", *(json.dumps(asdict(each)) for each in failed)]
    title = f"predict --cluster on two nodes, {arguments.rows:,} lines, one in {BAD_EVERY:,} bad"
    tell(facts, [Table(title, columns, rows, notes)], arguments.json, kills=[asdict(each) for each in found])
    if arguments.folder is None and not failed:
        shutil.rmtree(folder)
    return int(bool(failed))


def row_of(kind: str, own: Sequence[Kill]) -> list[Any]:
    moments, done = [each.after for each in own], [each.shards for each in own]
    again = sum(each.calls - 1 for each in own)
    of = max(each.of for each in own)
    shown = [kind, len(own), f"{min(moments):.1f} to {max(moments):.1f}", f"{min(done)} to {max(done)} of {of}", again]
    same = sum(each.same for each in own)
    return [*shown, same, *(sum(getattr(each, name) for each in own) for name in ("lost", "doubled", "moved"))]


def prepare(folder: Path, rows: int, seed: int) -> list[str]:
    """The model, the input, and answers of one process: whole.jsonl. The names of the input files."""
    draw, words = random.Random(seed), "the room bed was staff view food very a and good bad clean dirty".split()

    def text() -> str:
        return " ".join(draw.choices(words, k=draw.randint(1, 14)))

    (folder / "train.tsv").write_text("text\tlabel\n" + "".join(f"{text()}\t{i % 2}\n" for i in range(64)))
    (folder / "recipe.yaml").write_text(RECIPE)
    with (folder / "a.jsonl").open("w") as first, gzip.open(folder / "b.jsonl.gz", "wt", compresslevel=1) as second:
        for i in range(rows):
            line = "{broken" if i % BAD_EVERY == 7 else json.dumps({"id": i, "text": text()})
            (first if i < rows * 2 // 3 else second).write(f"{line}\n")
    files = ["a.jsonl", "b.jsonl.gz"]
    nlpctl(folder, "train", "recipe.yaml", "--overwrite")
    nlpctl(folder, "export", "model", "-o", "export", "--format", "onnx", "--precision", "fp32", "--overwrite")
    nlpctl(folder, *words_of(files), "-o", "whole.jsonl", "--overwrite", "--threads", "1")
    return files


def words_of(files: Sequence[str]) -> list[str]:
    return ["predict", "export", *files, "--batch-size", str(BATCH), "--set", "data.on_bad_row=skip"]


def nlpctl(folder: Path, *words: str) -> None:
    done = subprocess.run((*NLPCTL, *words), cwd=folder, env=environment(), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"nlpctl {' '.join(words)} failed:\n{done.stderr[-3000:]}")


class Nodes:
    """The cluster, two nodes with room for a worker each, and what can be killed in it. Use it as a context."""

    def __init__(self, client: bool):
        """`client`: it is reached by ray://."""
        os.environ.setdefault("RAY_memory_monitor_refresh_ms", "0")  # others may have taken this machine's memory
        os.environ["PYTHONPATH"] = environment()["PYTHONPATH"]  # the nodes find this nlpctl, too
        self._client = client
        self._begin()

    def _begin(self) -> None:
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "include_dashboard": False}
        if self._client:
            head["ray_client_server_port"] = free_port()
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self.address = f"ray://127.0.0.1:{head['ray_client_server_port']}" if self._client else self._cluster.address
        self.complete()

    def __enter__(self) -> Nodes:
        return self

    def __exit__(self, *error: Any) -> None:
        self._cluster.shutdown()

    def complete(self) -> None:
        """Put nodes in the places of those that are gone; without its head it is another cluster."""
        if not alive(self.head()):
            self._cluster.shutdown()
            self._begin()
        for node in list(self._cluster.worker_nodes):
            if not alive(raylet(node)):
                self._cluster.remove_node(node, allow_graceful=False)
        while len(self._cluster.worker_nodes) < 2:
            self._cluster.add_node(num_cpus=1)

    def raylets(self) -> list[int]:
        return [raylet(node) for node in self._cluster.worker_nodes]

    def head(self) -> int:
        return raylet(self._cluster.head_node)

    def workers(self) -> list[int]:
        """The actors that answer shards."""
        own = self.raylets()
        return [pid for pid, parent in processes() if parent in own and b"ray::WorkerActor" in command_of(pid)]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def raylet(node: Any) -> int:
    return int(node.all_processes["raylet"][0].process.pid)


def processes() -> Iterator[tuple[int, int]]:
    """Every process with its parent."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            yield int(path.parent.name), int(path.read_text().rpartition(")")[2].split()[1])


def command_of(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


class Check:
    """The runs in one folder. Left alone, one takes `usual` seconds, `first` of them to its first shard of `count`."""

    def __init__(self, folder: Path, files: Sequence[str], nodes: Nodes):
        self.folder, self.nodes = folder, nodes
        self.words = [*words_of(files), "-o", OUTPUT]
        self.output, self.shards = folder / OUTPUT, folder / f"{OUTPUT}.shards"
        self.usual, self.first, self.count = 0.0, 0.0, 0
        self._clear()
        began = time.monotonic()
        started = self._start()
        while started.poll() is None:
            self.count = max(self.count, self._finished())
            self.first = self.first if self.count else time.monotonic() - began
            time.sleep(0.01)
        self.usual = time.monotonic() - began
        code, err = self._end(started)
        if code != 0 or not filecmp.cmp(self.output, folder / "whole.jsonl", shallow=False):
            sys.exit(f"without a kill, the command ended with {code}, and another output:\n{err[-3000:]}")

    def kills(self, kinds: Sequence[str], count: int, seed: int) -> Iterator[Kill]:
        for kind in kinds:
            tries = (self._killed(kind, f"{seed}/{kind}/{number}") for number in itertools.count())
            for found in itertools.islice((each for each in tries if each is not None), count):
                print(json.dumps(asdict(found)), file=sys.stderr, flush=True)
                yield found

    def _killed(self, kind: str, seed: str) -> Kill | None:
        """None: the command ended before its kill."""
        self._clear()
        draw, kill = random.Random(seed), Kill(kind, seed, of=self.count)
        early, share, delay = draw.random() < EARLY, draw.random(), draw.random() * LATE
        began, reached = time.monotonic(), None
        started = self._start()
        victims: dict[str, Callable[[], list[int]]] = {
            "worker": self.nodes.workers,
            "raylet": self.nodes.raylets,
            "driver": lambda: [started.pid],
            "head": lambda: [self.nodes.head()],
        }
        while started.poll() is None:
            now = time.monotonic() - began
            if reached is None and (now >= share * self.first if early else self._finished() >= share * self.count):
                reached = now
            if reached is not None and now >= reached + (0 if early else delay) and (there := victims[kind]()):
                kill.shards, kill.after = self._finished(), round(now, 2)
                os.kill(draw.choice(there), signal.SIGKILL)
                break
            time.sleep(0.005)
        else:
            if started.returncode == 0:
                return None
        code, err = self._end(started)
        while code != 0 and kill.calls < 3 and not self.output.exists():  # else it was killed while it tidied up
            if code != -signal.SIGKILL and kind != "head":
                kill.told.append(f"exit {code}: {err[-800:]}")
            kill.calls += 1
            self.nodes.complete()
            code, err = self._end(self._start(*(["--resume"] if self.shards.exists() else [])))
        kill.seconds = round(time.monotonic() - began, 1)
        self._compare(kill, tidy=code == 0)
        self.nodes.complete()
        return kill

    def _compare(self, kill: Kill, tidy: bool) -> None:
        whole = self.folder / "whole.jsonl"
        kill.same = self.output.exists() and filecmp.cmp(self.output, whole, shallow=False)
        left = [path.name for path in self.folder.iterdir() if path.name.startswith((self.shards.name, ".staging-"))]
        kill.told += [f"{name} is left behind" for name in left if tidy]
        if kill.same and not kill.told:
            return
        kept = self.folder / "failed" / kill.seed.replace("/", "-")
        kept.mkdir(parents=True, exist_ok=True)
        for path in self.folder.glob(f"{OUTPUT}*"):
            (shutil.copytree if path.is_dir() else shutil.copy)(path, kept / path.name)
        if not kill.same and self.output.exists():
            ours, theirs = (path.read_text().splitlines() for path in (self.output, whole))
            pairs = enumerate(zip(ours, theirs, strict=False), start=1)
            lines = [f"{number}\t{one}\t{two}\n" for number, (one, two) in pairs if one != two]
            (kept / "differing.tsv").write_text("".join(lines))
            count_rows(kill, ours, theirs)

    def _finished(self) -> int:
        return len(list(self.shards.glob("part-*.json")))

    def _clear(self) -> None:
        self.output.unlink(missing_ok=True)
        for folder in (self.shards, *self.folder.glob(".staging-deleted-*")):
            shutil.rmtree(folder, ignore_errors=True)

    def _start(self, *more: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            (*NLPCTL, *self.words, "--cluster", self.nodes.address, *more), cwd=self.folder, env=environment(),
            start_new_session=True, stdout=subprocess.DEVNULL, stderr=(self.folder / "stderr.txt").open("wb"),
        )  # fmt: skip

    def _end(self, started: subprocess.Popen[bytes]) -> tuple[int, str]:
        """How a command ended, and what it said; one that hangs is killed, and that is told."""
        try:
            code = started.wait(LONGEST)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()
            code = -signal.SIGALRM
        return code, (self.folder / "stderr.txt").read_text(errors="replace")


def count_rows(kill: Kill, ours: Sequence[str], theirs: Sequence[str]) -> None:
    """Rows that are missing, there twice, and elsewhere; a bad row has no number, and is told by its line."""
    mine, wanted = collections.Counter(map(key_of, ours)), collections.Counter(map(key_of, theirs))
    kill.lost = sum((wanted - mine).values())
    kill.doubled = sum((mine - wanted).values())
    kill.moved = sum(key_of(one) != key_of(two) for one, two in zip(ours, theirs, strict=False))


def key_of(line: str) -> str:
    try:
        answer = json.loads(line)
        return str(answer.get("id", answer.get("error")))
    except ValueError:
        return line


if __name__ == "__main__":
    sys.exit(main())
