"""Two nodes train as one does with two processes, and fail, stop and resume as one. Both are on loopback."""

from __future__ import annotations

import json
import random
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from command_lines import Started

from nlpctl.launch.node_launch import free_port

HELPERS = Path(__file__).resolve().parents[1] / "helpers"
OTHER_LINES = "waiting for the others", "is not at 127.0.0.1"  # how the nodes meet


class TwoNodes:
    """Starts the same command on two nodes, of which the second works in a folder of its own."""

    def __init__(self, work, elsewhere: Path):
        self.work, self.elsewhere = work, elsewhere

    def start(self, *words: str, other: tuple[str, ...] = (), shared: bool = False) -> list[Started]:
        """`other`: what node 1 says besides. `shared`: node 1 sees the folder of node 0."""
        meeting = ("--nnodes", "2", "--master", f"127.0.0.1:{free_port()}", "--wait", "60")
        folder = self.work.folder if shared else self.elsewhere
        first = self.work.start(*words, *meeting, "--node_rank", "0")
        return [first, self.work.start(*words, *other, *meeting, "--node_rank", "1", folder=folder)]

    def train(self, name: str, *words: str, **more) -> list[Started]:
        recipe, batches = str(self.work / "recipe.yaml"), (*self.work.plain, *self.work.halves)
        return self.start("train", recipe, *batches, "--output_dir", name, *words, **more)


@pytest.fixture
def nodes(work, tmp_path) -> TwoNodes:
    return TwoNodes(work, tmp_path)


def ends(started: list[Started], seconds: float = 120) -> list[tuple[int, str]]:
    """Exit code and standard error of each."""
    told = [each.communicate(timeout=seconds)[1] for each in started]
    return [(each.returncode, err) for each, err in zip(started, told, strict=True)]


@pytest.fixture(scope="session")
def whole(work) -> Path:
    """One node with two processes, and a checkpoint at every third step."""
    return work.train("nodes-whole", *work.plain, *work.halves, *work.stepwise, "--nproc", "2")


def test_two_nodes_train_as_one_with_two_processes(work, nodes, same_bits, two):
    """Bit by bit, and node 1 neither has nor makes a run directory."""
    (code, err), (other_code, other_err) = ends(nodes.train("nodes"))
    assert (code, other_code) == (0, 0), err + other_err
    assert same_bits(work / "nodes", two)
    assert work.manifest("nodes")["processes"] == 2 and not list(nodes.elsewhere.iterdir())
    assert sorted(path.name for path in (work / "nodes" / "logs").glob("*.log")) == ["rank-0.log", "rank-1.log"]
    assert [line for line in other_err.splitlines() if not any(each in line for each in OTHER_LINES)] == [
        line for line in other_err.splitlines() if "done; the run is on node 0" in line
    ]


def test_a_problem_of_one_node_is_one_message_on_both(work, nodes):
    """Another recipe, or a file that is missing there."""
    for words, told in (
        (("--learning_rate", "1e-3"), "differs in its recipe: training.learning_rate is 0.001, not 0.01"),
        (("--set", "data.dev=gone.tsv"), "gone.tsv"),
    ):
        (code, err), (other_code, other_err) = ends(nodes.train("nodes-wrong", other=words))
        assert (code, other_code) == (2, 2), err + other_err
        assert err.count("error:") == other_err.count("error:") == 1
        assert "error: node 1 (" in err and told in err and told in other_err
    assert not (work / "nodes-wrong").exists()


@pytest.mark.slow
def test_a_finished_run_goes_on(work, nodes, two):
    """Node 0 has the run; node 1 has its recipe, or neither."""
    last = max(int(path.name.split("-")[1]) for path in (two / "checkpoints").iterdir())
    words = ("train", "two", "--continue", "1", "--nproc", "1", "--output_dir", "nodes-longer")
    (code, err), (other_code, other_err) = ends(nodes.start(*words))
    assert (code, other_code) == (2, 2) and "neither the finished run nor a recipe is on this node" in err + other_err
    assert not (work / "nodes-longer").exists()
    shutil.copy(two / "recipe.yaml", nodes.elsewhere / "two")
    (code, err), (other_code, other_err) = ends(nodes.start(*words))
    assert (code, other_code) == (0, 0), err + other_err
    manifest = work.manifest("nodes-longer")
    assert manifest["continues"]["step"] == last and manifest["processes"] == 2
    assert max(each.get("step", 0) for each in work.events("nodes-longer")) == last + 8


@pytest.mark.slow
def test_storage_that_all_nodes_see(work, nodes, same_bits, whole):
    assert [code for code, _ in ends(nodes.train("nodes-shared", *work.stepwise, shared=True))] == [0, 0]
    assert same_bits(work / "nodes-shared", whole)


@pytest.mark.slow
@pytest.mark.parametrize("shared", [False, True])
def test_either_node_killed_at_random_moments(work, nodes, same_bits, whole, shared):
    """Both nodes end soon, no checkpoint is half, and the same command with --resume ends with the same weights."""
    name, chance, resume = f"nodes-killed-{shared}", random.Random(int(shared)), ()
    events = work / name / "events.jsonl"
    for victim in (1, 0, 1):
        before = events.stat().st_size if events.exists() else 0
        started = nodes.train(name, *work.stepwise, *resume, shared=shared)
        deadline = time.monotonic() + 120
        while not (events.exists() and events.stat().st_size > before) and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 1.5))
        started[victim].send_signal(signal.SIGKILL)
        begun = time.monotonic()
        codes = [code for code, _ in ends(started)]
        if codes == [0, 0]:
            break
        assert codes[1 - victim] == 1 and time.monotonic() - begun < 30
        for checkpoint in (work / name / "checkpoints").glob("checkpoint-*"):
            assert (checkpoint / "checksums.json").is_file()
        resume = ("--resume",)
    if codes != [0, 0]:
        assert [code for code, _ in ends(nodes.train(name, *work.stepwise, "--resume", shared=shared))] == [0, 0]
    assert same_bits(work / name, whole)


@pytest.mark.slow
def test_a_sharded_optimizer_of_two_nodes(work, nodes, same_bits, weights):
    """One process on each, with half of the optimizer's state: the weights of one node with two such processes, bit by
    bit, and those of one process but for float noise; also after a kill."""
    import paddle

    words = (*work.stepwise, "--sharding", "stage1")
    two = work.train("nodes-two-sharded", *work.plain, *work.halves, *words, "--nproc", "2")
    one = work.train("nodes-one", *work.plain, *work.stepwise)
    started, sharded = nodes.train("nodes-sharded", *words), work / "nodes-sharded"
    while not (sharded / "checkpoints" / "checkpoint-6").exists() and started[0].poll() is None:
        time.sleep(0.01)
    started[1].send_signal(signal.SIGKILL)
    (code, err), _ = ends(started)
    assert code == 1, err
    assert [code for code, _ in ends(nodes.train("nodes-sharded", *words, "--resume"))] == [0, 0]
    assert same_bits(sharded, two)
    first, second = (weights(run / "model") for run in (one, sharded))
    compared = [name for name in first if not name.endswith("self_attn.k_proj.bias")]  # noise, see test_processes.py
    assert max(float(np.abs(first[name] - second[name]).max()) for name in compared) < 1e-5
    last = sorted(path.name for path in (sharded / "checkpoints").iterdir())[-1]
    whole, made = (paddle.load(str(run / "checkpoints" / last / "optimizer.pdopt")) for run in (one, sharded))
    assert whole.keys() == made.keys() and len(whole) > 90  # of every parameter


@pytest.mark.slow
@pytest.mark.parametrize("victim, number", [(0, signal.SIGTERM), (1, signal.SIGINT)])
def test_a_signal_on_one_node_stops_both_after_a_common_step(work, nodes, same_bits, whole, victim, number):
    name = f"nodes-stopped-{victim}"
    started = nodes.train(name, *work.stepwise)
    while not (work / name / "checkpoints" / "checkpoint-6").exists():
        time.sleep(0.01)
    started[victim].send_signal(number)
    (code, err), (other_code, other_err) = ends(started)
    assert (code, other_code) == (130, 130) and "Traceback" not in err + other_err
    last = max(int(path.name.split("-")[1]) for path in (work / name / "checkpoints").iterdir())
    steps = [json.loads(line)["step"] for line in (work / name / "events.jsonl").read_text().splitlines()]
    assert max(steps) == last
    shutil.rmtree(nodes.elsewhere)
    nodes.elsewhere.mkdir()
    assert [code for code, _ in ends(nodes.train(name, *work.stepwise, "--resume"))] == [0, 0]
    assert same_bits(work / name, whole)


@pytest.mark.slow
def test_a_lack_of_memory_on_node_1(work, nodes, weights, two):
    """All go on from the checkpoint of step 8, with half the rows at a time."""
    shutil.copy(HELPERS / "no_memory.py", work.folder)
    (code, err), (other_code, other_err) = ends(nodes.train("nodes-memory", "--set", "data.reader=no_memory:read"))
    assert (code, other_code) == (0, 0), err + other_err
    assert "restart with micro-batches of 2 rows" in err and "Traceback" not in err
    assert "out of memory in step 10, with micro-batch 4" in (work / "nodes-memory" / "logs" / "rank-1.log").read_text()
    first, second = (weights(run / "checkpoints" / "checkpoint-32") for run in (two, work / "nodes-memory"))
    compared = [name for name in first if not name.endswith("self_attn.k_proj.bias")]  # noise, see test_processes.py
    assert max(float(np.abs(first[name] - second[name]).max()) for name in compared) < 1e-5


@pytest.mark.slow
def test_the_doctor_between_nodes(work, nodes):
    recipe = ("--recipe", str(work / "recipe.yaml"), "--json")
    started = nodes.start("doctor", *recipe)
    told = [each.communicate(timeout=120)[0] for each in started]
    checks = {check["name"]: check for check in json.loads(told[0])["result"]["checks"]}
    assert list(checks) == ["name", "port", "versions", "recipe", "clocks", "all-reduce of 1 kB", "all-reduce of 64 MB"]
    assert {check["status"] for check in checks.values()} <= {"ok", "warning"}
    assert "Gbit/s" in checks["all-reduce of 64 MB"]["detail"]
    assert [each.returncode for each in started] == [0, 0]
