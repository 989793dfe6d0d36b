"""Predictions, sweeps, folds and compressions on a Ray cluster: two nodes of this machine, which are lost."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from ray_nodes import new_cluster

SWEEP = """\
extends: recipe.yaml
search: {sampler: grid, pruner: none, space: {training.learning_rate: [0.01, 0.011, 0.012, 0.013]}}
training: {max_steps: 60, evaluation_strategy: steps, save_strategy: steps, eval_steps: 6, save_steps: 6}
runtime: {threads: 1}
"""
STRATEGY = "--strategy ptq,dynabert --width_mult_list 3/4 --num_train_epochs 9 --algo_list avg".split()
STRATEGY += "--batch_size_list 4 --batch_num_list 2 --batch_sizes 2 --threads 1".split()


@pytest.fixture(scope="module")
def recipe(work) -> str:
    (work / "ray.yaml").write_text(SWEEP)
    return "ray.yaml"


@pytest.fixture(scope="module")
def swept(work, recipe) -> dict:
    done = work.fresh("sweep", "ray.yaml", "-o", "ray-alone", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["result"]


def tried(found: dict) -> list:
    return [(each["trial"], each["state"], each["score"], each["values"]) for each in found["trials"]]


def wait(process: subprocess.Popen, when: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 180
    while not when():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def parent(pid: int) -> int:
    """0: it has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def raylet(node) -> int:
    return node.all_processes["raylet"][0].process.pid


def keepers(cluster) -> list[int]:
    """The actors on its nodes that keep a process."""
    raylets, found = [raylet(node) for node in cluster.list_all_nodes()], []
    for pid in (int(path.name) for path in Path("/proc").glob("[0-9]*")):
        if parent(pid) in raylets and b"ray::WorkerActor" in Path(f"/proc/{pid}/cmdline").read_bytes():
            found.append(pid)
    return found


def begun(folder: Path, count: int) -> bool:
    return len(list(folder.glob("*/checkpoints/checkpoint-*"))) >= count


def weights(folder: Path) -> dict[str, str]:
    files = sorted(folder.glob("*/model/model_state.pdparams"))
    return {path.parent.parent.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.slow
def test_a_sweep_whose_worker_and_node_are_lost(work, cluster, swept):
    """The trials of one process, and the models of those, bit by bit; what was lost goes on elsewhere."""
    trials = work / "ray-lost/trials"
    started = work.start_fresh("sweep", "ray.yaml", "-o", "ray-lost", "--cluster", cluster.address, "--json")
    wait(started, lambda: begun(trials, 2))
    os.kill(keepers(cluster)[0], signal.SIGKILL)
    wait(started, lambda: begun(trials, 6))
    cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)
    try:
        out, err = started.communicate(timeout=300)
    finally:
        cluster.add_node(num_cpus=1)
    assert started.returncode == 0 and "another process goes on" in err, err
    assert tried(json.loads(out)["result"]) == tried(swept)
    assert weights(trials) == weights(work / "ray-alone/trials")


@pytest.mark.slow
def test_a_killed_sweep_and_ctrl_c(work, cluster, swept):
    """Nothing goes on alone; each leaves a checkpoint, and what is resumed ends as if nothing had been."""
    words = ("sweep", "ray.yaml", "-o", "ray-killed", "--cluster", cluster.address, "--json")
    trials = work / "ray-killed/trials"
    for number, code in ((signal.SIGKILL, -9), (signal.SIGINT, 130)):
        resume = ("--resume",) if trials.exists() else ()
        started = work.start_fresh(*words, *resume)
        wait(started, partial(begun, trials, 2 + 2 * len(resume)))
        before = time.monotonic()
        started.send_signal(number)
        _, err = started.communicate(timeout=60)
        assert started.returncode == code and "Traceback" not in err, err
        assert time.monotonic() - before < 30
        wait_none(lambda: keepers(cluster))
    states = {json.loads(file.read_text())["state"] for file in trials.glob("*/manifest.json")}
    assert states <= {"interrupted", "finished"} and "--resume goes on" in err
    done = work.fresh(*words, "--resume")
    assert done.returncode == 0, done.stderr
    assert tried(json.loads(done.stdout)["result"]) == tried(swept)


@pytest.mark.slow
def test_folds_whose_command_is_killed(work, cluster):
    """Its workers end with it; what is resumed ends with the models and predictions of one process."""
    words = ("train", "recipe.yaml", "--folds", "3", "--threads", "1", *work.stepwise, "--output_dir")
    alone = work.fresh(*words, "ray-folds-alone")
    assert alone.returncode == 0, alone.stderr
    words = (*words, "ray-folds", "--cluster", cluster.address)
    started = work.start_fresh(*words)
    wait(started, lambda: begun(work / "ray-folds", 2))
    started.kill()
    started.communicate()
    wait_none(lambda: keepers(cluster))
    done = work.fresh(*words, "--resume")
    assert done.returncode == 0 and "2 workers, 3 runs" in done.stderr, done.stderr
    assert weights(work / "ray-folds") == weights(work / "ray-folds-alone") and len(weights(work / "ray-folds")) == 3
    one, two = (work / name / "predictions.jsonl" for name in ("ray-folds-alone", "ray-folds"))
    assert one.read_bytes() == two.read_bytes()


def wait_none(found: Callable[[], list]) -> None:
    deadline = time.monotonic() + 60
    while found():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def graphs(folder: Path) -> dict[str, str]:
    kinds = ("*/*/model.onnx", "*/*/*.pdiparams", "*/*/*.pdmodel", "networks/*/model/model_state.pdparams")
    files = sorted(path for kind in kinds for path in folder.glob(kind))
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def table(folder: Path) -> list[tuple]:
    """What does not depend on the speed of the machine."""
    rows = json.loads((folder / "report.json").read_text())["rows"]
    return sorted((row["name"], row["score"], row["difference"], row["agreement"]) for row in rows)


@pytest.mark.slow
def test_a_compression_whose_node_is_lost(work, cluster, base):
    """The weights and scores of one process, bit by bit; a training that was lost goes on."""
    shutil.copytree(base, work / "ray-base")
    alone = work.fresh("compress", "ray-base", *STRATEGY, "-o", "ray-small-1")
    assert alone.returncode == 0, alone.stderr
    words = ("compress", "ray-base", *STRATEGY, "-o", "ray-small-2", "--cluster", cluster.address)
    started = work.start_fresh(*words)
    networks = work / "ray-small-2/networks"
    wait(started, lambda: begun(networks, 1))
    trains = json.loads(next(networks.glob("*/manifest.json")).read_text())["pid"]
    (host,) = (node for node in cluster.list_all_nodes() if raylet(node) == parent(parent(trains)))
    cluster.remove_node(host, allow_graceful=False)
    try:
        _, err = started.communicate(timeout=300)
    finally:
        cluster.add_node(num_cpus=1)
    assert started.returncode == 0 and "another worker makes it" in err, err
    one, two = work / "ray-small-1", work / "ray-small-2"
    assert graphs(one) == graphs(two) and len(graphs(one)) >= 8 and table(one) == table(two)
    assert "one after the other, while no candidate was made" in (work / "ray-small-2/report.md").read_text()


@pytest.mark.slow
def test_a_node_that_does_not_see_the_folder(work, recipe, base, tmp_path):
    """Its file system hides the folder behind another one."""
    unshare = ["unshare", "-m", "sh", "-c"]
    if subprocess.run([*unshare, f"mount -t tmpfs none {tmp_path}"], capture_output=True).returncode:
        pytest.skip("mount namespaces are not allowed here")

    cluster = new_cluster()
    try:
        ray = f"{sys.executable} -m ray.scripts.scripts start --address={cluster.address} --num-cpus=1 --block"
        command = f"mount -t tmpfs none {work.folder} && exec {ray}"
        hidden = subprocess.Popen([*unshare, command], start_new_session=True, stdout=subprocess.PIPE, text=True)
        try:
            assert any("Ray runtime started" in line for line in hidden.stdout)
            for words in (("sweep", "ray.yaml", "-o", "ray-unseen"), ("compress", "base", "-o", "ray-unseen-2")):
                done = work.fresh(*words, "--cluster", cluster.address)
                assert done.returncode == 2 and done.stderr.count("error:") == 1, done.stderr
                assert "does not see it" in done.stderr and "Traceback" not in done.stderr
        finally:
            os.killpg(hidden.pid, signal.SIGTERM)
            hidden.wait()
    finally:
        cluster.shutdown()


@pytest.mark.parametrize("words", [("sweep", "ray.yaml"), ("compress", "base", "-o", "ray-few")])
def test_room(work, cluster, recipe, base, words):
    done = work.fresh(*words, "--cluster", cluster.address, "--workers", "3")
    assert done.returncode == 2 and "room for 2 workers" in done.stderr, done.stderr
