"""Two machines train as one does with two processes, and fail, stop and resume as one.

The processes are started one by one, as a scheduler does, or by Ray. All of them are on this machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from ray_nodes import new_cluster

from nlpctl.runtime.ranks import free_port

Process = subprocess.Popen[str]
HELPERS = Path(__file__).resolve().parents[1] / "helpers"
NOISE = "self_attn.k_proj.bias"  # see test_processes.py


class TwoProcesses:
    """Starts the same command twice, as the two processes of a training."""

    def __init__(self, work):
        self.work = work

    def start(self, *words: str, other: tuple[str, ...] = ()) -> list[Process]:
        """`other`: what process 1 is told besides. New interpreters, since Paddle reads its variables at import."""
        meeting = ("--nnodes", "2", "--master", f"127.0.0.1:{free_port()}", "--wait", "60")
        first = self.work.start_fresh(*words, *meeting, "--node_rank", "0")
        return [first, self.work.start_fresh(*words, *other, *meeting, "--node_rank", "1")]

    def train(self, name: str, *words: str, **more) -> list[Process]:
        settings = (*self.work.plain, *self.work.halves, "--output_dir", name)
        return self.start("train", "recipe.yaml", *settings, *words, **more)


@pytest.fixture
def peers(work) -> TwoProcesses:
    return TwoProcesses(work)


def ends(started: list[Process], seconds: float = 120) -> list[tuple[int, str]]:
    """Exit code and standard error of each."""
    told = [each.communicate(timeout=seconds)[1] for each in started]
    return [(each.returncode, err) for each, err in zip(started, told, strict=True)]


def wait(process: Process, when: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not when():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(scope="session")
def whole(work) -> Path:
    """Two processes of one machine, and a checkpoint at every third step."""
    return work.train("nodes-whole", *work.plain, *work.halves, *work.stepwise, "--nproc", "2")


# -- processes that are started one by one ---------------------------------------------------------


def test_two_processes_train_as_those_that_nlpctl_starts(work, peers, same_bits, two):
    """Bit by bit; the first keeps the run and tells, the second is quiet."""
    (code, err), (other_code, other_err) = ends(peers.train("peers"))
    assert (code, other_code) == (0, 0), err + other_err
    assert same_bits(work / "peers", two)
    # Paddle 3 lists the flags that differ from its defaults in every process.
    said = [line for line in other_err.splitlines() if not line.startswith(("=====", "FLAGS("))]
    assert work.manifest("peers")["processes"] == 2 and "model:" in err and not said


def test_a_problem_of_one_process_is_one_message_in_both(work, peers):
    """Another recipe, or a file that is missing there."""
    for words, told in (
        (("--learning_rate", "1e-3"), "differs in its recipe: training.learning_rate is 0.001, not 0.01"),
        (("--set", "data.dev=gone.tsv"), "gone.tsv"),
    ):
        (code, err), (other_code, other_err) = ends(peers.train("peers-wrong", other=words))
        assert (code, other_code) == (2, 2), err + other_err
        assert err.count("error:") == other_err.count("error:") == 1
        assert "error: process 1 (" in err and told in err and told in other_err
    assert not (work / "peers-wrong").exists()


def test_the_doctor_between_processes(work, peers):
    started = peers.start("doctor", "--recipe", "recipe.yaml", "--json")
    told = [each.communicate(timeout=120) for each in started]
    assert [each.returncode for each in started] == [0, 0], told
    checks = {check["name"]: check for check in json.loads(told[0][0])["result"]["checks"]}
    assert list(checks) == ["name", "port", "versions", "recipe", "clocks", "all-reduce of 1 kB", "all-reduce of 64 MB"]
    assert {check["status"] for check in checks.values()} <= {"ok", "warning"}
    assert "Gbit/s" in checks["all-reduce of 64 MB"]["detail"] and told[1][0] == ""


@pytest.mark.slow
def test_the_doctor_of_unlike_processes(work, peers):
    (work / "unlike.yaml").write_text((work / "recipe.yaml").read_text().replace("1e-2", "1e-3"))
    started = peers.start("doctor", "--recipe", "recipe.yaml", other=("--recipe", "unlike.yaml"))
    out, err = started[0].communicate(timeout=120)
    started[1].communicate(timeout=60)
    assert started[0].returncode == 1 and "not tried, since the machines differ" in out, out + err


@pytest.mark.slow
def test_a_finished_run_goes_on(work, peers, two):
    last = max(int(path.name.split("-")[1]) for path in (two / "checkpoints").iterdir())
    words = ("train", "two", "--continue", "1", "--nproc", "1", "--output_dir", "peers-longer")
    (code, err), (other_code, other_err) = ends(peers.start(*words))
    assert (code, other_code) == (0, 0), err + other_err
    manifest = work.manifest("peers-longer")
    assert manifest["continues"]["step"] == last and manifest["processes"] == 2
    assert max(each.get("step", 0) for each in work.events("peers-longer")) == last + 8


@pytest.mark.slow
def test_either_process_killed_at_random_moments(work, peers, same_bits, whole):
    """The other one ends, no checkpoint is half, and the same command with --resume ends with the same weights."""
    name, chance, resume = "peers-killed", random.Random(1), ()
    events = work / name / "events.jsonl"
    for victim in (1, 0, 1):
        before = events.stat().st_size if events.exists() else 0
        started = peers.train(name, *work.stepwise, *resume)
        wait(started[0], lambda before=before: events.exists() and events.stat().st_size > before)
        time.sleep(chance.uniform(0, 1.5))
        started[victim].send_signal(signal.SIGKILL)
        codes = [code for code, _ in ends(started, 60)]
        if work.manifest(name)["state"] == "finished":  # the victim had nothing to do any more
            break
        assert codes[1 - victim] != 0
        for checkpoint in (work / name / "checkpoints").glob("checkpoint-*"):
            assert (checkpoint / "checksums.json").is_file()
        resume = ("--resume",)
    else:
        assert [code for code, _ in ends(peers.train(name, *work.stepwise, "--resume"))] == [0, 0]
    assert same_bits(work / name, whole)


@pytest.mark.slow
def test_a_sharded_optimizer(work, peers, same_bits, weights):
    """Each process has half of the optimizer's state: the weights of two such processes of one machine, bit by bit, and
    those of one process but for float noise; also after a kill."""
    import paddle

    words = (*work.stepwise, "--sharding", "stage1")
    two = work.train("nodes-two-sharded", *work.plain, *work.halves, *words, "--nproc", "2")
    one = work.train("nodes-one", *work.plain, *work.stepwise)
    started, sharded = peers.train("peers-sharded", *words), work / "peers-sharded"
    wait(started[0], (sharded / "checkpoints" / "checkpoint-6").exists)
    started[1].send_signal(signal.SIGKILL)
    (code, err), _ = ends(started)
    assert code != 0, err
    assert [code for code, _ in ends(peers.train("peers-sharded", *words, "--resume"))] == [0, 0]
    assert same_bits(sharded, two)
    first, second = (weights(run / "model") for run in (one, sharded))
    compared = [name for name in first if not name.endswith(NOISE)]
    assert max(float(np.abs(first[name] - second[name]).max()) for name in compared) < 1e-5
    last = sorted(path.name for path in (sharded / "checkpoints").iterdir())[-1]
    whole, made = (paddle.load(str(run / "checkpoints" / last / "optimizer.pdopt")) for run in (one, sharded))
    assert whole.keys() == made.keys() and len(whole) > 90  # of every parameter


@pytest.mark.slow
@pytest.mark.parametrize("victim, number", [(0, signal.SIGTERM), (1, signal.SIGINT)])
def test_a_signal_to_one_process_stops_both_after_a_common_step(work, peers, same_bits, whole, victim, number):
    name = f"peers-stopped-{victim}"
    started = peers.train(name, *work.stepwise)
    wait(started[0], (work / name / "checkpoints" / "checkpoint-6").exists)
    started[victim].send_signal(number)
    (code, err), (other_code, other_err) = ends(started)
    assert (code, other_code) == (130, 130) and "Traceback" not in err + other_err
    last = max(int(path.name.split("-")[1]) for path in (work / name / "checkpoints").iterdir())
    assert max(each["step"] for each in work.events(name)) == last
    assert [code for code, _ in ends(peers.train(name, *work.stepwise, "--resume"))] == [0, 0]
    assert same_bits(work / name, whole)


@pytest.mark.slow
def test_a_lack_of_memory_in_process_1(work, peers, weights, two):
    """It ends all; with --resume they go on from the checkpoint of step 8, with half the rows at a time."""
    shutil.copy(HELPERS / "no_memory.py", work.folder)
    words = ("--set", "data.reader=no_memory:read")
    (code, _), (other_code, other_err) = ends(peers.train("peers-memory", *words))
    assert code != 0 and other_code == 1 and "out of memory in step 10, with micro-batch 4" in other_err
    (code, err), (other_code, other_err) = ends(peers.train("peers-memory", *words, "--resume"))
    assert (code, other_code) == (0, 0), err + other_err
    first, second = (weights(run / "checkpoints" / "checkpoint-32") for run in (two, work / "peers-memory"))
    compared = [name for name in first if not name.endswith(NOISE)]
    assert max(float(np.abs(first[name] - second[name]).max()) for name in compared) < 1e-5


# -- on a Ray cluster --------------------------------------------------------------------------------


def on_ray(work, cluster, name: str, *words: str) -> Process:
    words = (*work.plain, *work.halves, "--output_dir", name, *words, "--cluster", cluster.address, "--nnodes", "2")
    return work.start_fresh("train", "recipe.yaml", *words)


def ended(started: Process, seconds: float = 200) -> tuple[int, str]:
    _, err = started.communicate(timeout=seconds)
    return started.returncode, err


def keepers(cluster) -> list[int]:
    """The actors of the cluster that keep a rank."""
    raylets = {node.all_processes["raylet"][0].process.pid for node in cluster.list_all_nodes()}
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if parent in raylets and b"ray::RankKeeper" in (path / "cmdline").read_bytes():
                found.append(int(path.name))
    return found


def ranks() -> list[int]:
    """The processes that train on machines of a cluster."""
    commands = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            commands[int(path.name)] = (path / "cmdline").read_bytes()
    return [pid for pid, command in commands.items() if b"of_the_user.yaml" in command]


def wait_none(found: Callable[[], list]) -> None:
    deadline = time.monotonic() + 60
    while found():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.slow
def test_a_machine_that_is_lost(work, cluster, same_bits, two):
    """The command ends and says so; with --resume it ends with the weights of two processes of one machine."""
    started = on_ray(work, cluster, "ray-lost")
    wait(started, (work / "ray-lost/checkpoints/checkpoint-8").exists)
    cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)
    try:
        code, err = ended(started)
    finally:
        cluster.add_node(num_cpus=1)
    assert code == 1 and "machine" in err and "is lost" in err and "Traceback" not in err, err
    assert work.manifest("ray-lost")["state"] == "failed"
    wait_none(ranks)
    code, err = ended(on_ray(work, cluster, "ray-lost", "--resume"))
    assert code == 0 and "2 machines with 2 processes" in err and "resuming from" in err, err
    assert same_bits(work / "ray-lost", two) and work.manifest("ray-lost")["processes"] == 2
    assert {"rank-0.log", "rank-1.log"} <= {path.name for path in (work / "ray-lost/logs").iterdir()}


def test_what_a_cluster_has_no_room_for(work, cluster):
    for more, told in (
        (("--nnodes", "3"), "the cluster has 2 machines with 1 core, not 3"),
        (("--nnodes", "2", "--nproc", "2"), "the cluster has 0 machines with 2 cores, not 2"),
    ):
        done = work.fresh("train", "recipe.yaml", "--cluster", cluster.address, *more)
        assert done.returncode == 2 and told in done.stderr, done.stderr


@pytest.mark.slow
def test_what_is_killed_on_a_cluster(work, cluster, same_bits, whole):
    """A rank, an actor, the command; and Ctrl-C, which ends with a checkpoint. Nothing goes on alone."""
    name, resume = "ray-killed", ()
    checkpoints = work / name / "checkpoints"
    for step, victims, number, expected in (
        (3, ranks, signal.SIGKILL, 1), (6, lambda: keepers(cluster), signal.SIGKILL, 1),
        (9, None, signal.SIGKILL, -9), (12, None, signal.SIGINT, 130),
    ):  # fmt: skip
        started = on_ray(work, cluster, name, *work.stepwise, *resume)
        wait(started, (checkpoints / f"checkpoint-{step}").exists)
        os.kill(started.pid if victims is None else victims()[-1], number)
        code, err = ended(started, 90)
        assert code == expected and "Traceback" not in err, err
        wait_none(ranks)
        resume = ("--resume",)
    assert "goes on from checkpoint-" in err
    code, err = ended(on_ray(work, cluster, name, *work.stepwise, "--resume"))
    assert code == 0, err
    assert same_bits(work / name, whole)


@pytest.mark.slow
def test_a_lack_of_memory_on_a_cluster(work, cluster, weights, two):
    """All go on from the checkpoint of step 8, with half the rows at a time."""
    shutil.copy(HELPERS / "no_memory.py", work.folder)
    code, err = ended(on_ray(work, cluster, "ray-memory", "--set", "data.reader=no_memory:read"))
    assert code == 0 and "restart with micro-batches of 2 rows" in err and "Traceback" not in err, err
    first, second = (weights(run / "checkpoints" / "checkpoint-32") for run in (two, work / "ray-memory"))
    compared = [name for name in first if not name.endswith(NOISE)]
    assert max(float(np.abs(first[name] - second[name]).max()) for name in compared) < 1e-5


@pytest.mark.slow
def test_the_doctor_of_a_cluster(work, cluster):
    done = work.fresh("doctor", "--cluster", cluster.address, "--nnodes", "2", "--recipe", "recipe.yaml", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    checks = {check["name"]: check for check in json.loads(done.stdout)["result"]["checks"]}
    assert {"port", "versions", "recipe", "all-reduce of 64 MB"} <= checks.keys()


@pytest.fixture
def apart(work, tmp_path) -> Iterator[object]:
    """A cluster whose machines do not see the folder "apart", in which each has an empty one of its own."""
    (work / "apart").mkdir(exist_ok=True)
    unshare = ["unshare", "-m", "sh", "-c"]
    if subprocess.run([*unshare, f"mount -t tmpfs none {tmp_path}"], capture_output=True).returncode:
        pytest.skip("mount namespaces are not allowed here")

    cluster = new_cluster()
    node = f"{sys.executable} -m ray.scripts.scripts start --address={cluster.address} --num-cpus=1 --block"
    command = f"mount -t tmpfs none {work / 'apart'} && exec {node}"
    nodes = []
    try:
        for _ in range(2):
            words = [*unshare, command]
            nodes.append(subprocess.Popen(words, start_new_session=True, stdout=subprocess.PIPE, text=True))
            assert any("Ray runtime started" in line for line in nodes[-1].stdout)
        yield cluster
    finally:
        for each in nodes:
            os.killpg(each.pid, signal.SIGTERM)
            each.wait()
        cluster.shutdown()


@pytest.mark.slow
def test_machines_without_common_storage(work, apart, same_bits, whole):
    """Checkpoints, events and the model come home while they train; a rank is killed, and the rest goes on there."""
    run = work / "apart/run"
    started = on_ray(work, apart, "apart/run", *work.stepwise)
    wait(started, (run / "checkpoints/checkpoint-6").exists)
    os.kill(ranks()[-1], signal.SIGKILL)
    code, err = ended(started)
    assert code == 1, err
    for checkpoint in (run / "checkpoints").glob("checkpoint-*"):
        assert (checkpoint / "checksums.json").is_file()
    code, err = ended(on_ray(work, apart, "apart/run", *work.stepwise, "--resume"))
    assert code == 0 and "resuming from" in err, err
    assert same_bits(run, whole)
    names = {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()}
    expected = {path.relative_to(whole).as_posix() for path in whole.rglob("*") if path.is_file()}
    assert {name for name in expected ^ names if "visualdl" not in name and "rank-" not in name} == set()
    assert not list(Path(os.environ.get("TMPDIR", "/tmp")).glob("nlpctl-run-*"))
