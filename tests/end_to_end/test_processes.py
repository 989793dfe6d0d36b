"""Two CPU processes train as one does, and fail, stop and resume as one."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from nlpctl.launch.launch import launch
from nlpctl.runtime.run_directory import RunDirectory

HELPERS = Path(__file__).resolve().parents[1] / "helpers"


@pytest.fixture(scope="session")
def one(work) -> Path:
    """Batches of 8 in one process."""
    return work.train("one", *work.plain)


def alike(work, weights, one: Path, other: Path) -> float:
    """The largest difference of a weight after 4 epochs; losses and scores are compared on the way."""
    # Key biases shift all attention scores of a query alike, and softmax does not see that: their gradient is
    # rounding noise, which Adam blows up to full steps.
    first, second = (weights(run / "checkpoints" / "checkpoint-32") for run in (one, other))
    assert first.keys() == second.keys()
    compared = [name for name in first if not name.endswith("self_attn.k_proj.bias")]
    assert len(compared) == len(first) - 1
    for kind, figure in (("log", "loss"), ("evaluate", "eval_loss"), ("evaluate", "eval_accuracy")):
        figures = [[event[figure] for event in work.events(run.name) if event["event"] == kind] for run in (one, other)]
        assert len(figures[0]) == (32 if kind == "log" else 4)
        np.testing.assert_allclose(figures[0], figures[1], atol=1e-5)
    assert figures[0][-1] > 0.7  # it has learnt
    assert json.loads((one / "metrics.json").read_text()) == json.loads((other / "metrics.json").read_text())
    return max(float(np.abs(first[name] - second[name]).max()) for name in compared)


def test_two_processes_train_as_one(work, weights, one, two):
    difference = alike(work, weights, one, two)
    print(f"largest difference of a weight: {difference:.2e}")
    assert difference < 1e-5
    assert (work.manifest("two")["processes"], work.manifest("two")["state"]) == (2, "finished")
    assert sorted(path.name for path in (two / "logs").glob("*.log")) == ["rank-0.log", "rank-1.log"]


def test_another_number_of_processes_goes_on(work, weights, two):
    """One process does the steps that were planned for two."""
    copy = unfinished(work, two, "two-by-one", keep=16)
    done = work.nlpctl("train", "recipe.yaml", *work.plain, *work.halves, "--output_dir", copy.name, "--resume")
    assert done.returncode == 0, done.stderr
    assert "planned for 2 processes: micro-batch 4, accumulation 2" in done.stderr
    assert alike(work, weights, two, copy) < 1e-5
    manifest = work.manifest(copy.name)
    assert (manifest["processes"], manifest["planned_processes"]) == (1, 2)


def unfinished(work, run: Path, name: str, keep: int) -> Path:
    """A copy of `run` as it was after step `keep`."""
    copy = work / name
    shutil.copytree(run, copy)
    shutil.rmtree(copy / "model")
    (copy / "manifest.json").write_text(json.dumps({**work.manifest(name), "state": "failed"}))
    for checkpoint in (copy / "checkpoints").iterdir():
        if int(checkpoint.name.removeprefix("checkpoint-")) > keep:
            shutil.rmtree(checkpoint)
    return copy


@pytest.fixture(scope="session")
def sharded(work) -> Path:
    """As `two`, each process with half of the optimizer's state."""
    return work.train("sharded", *work.plain, *work.halves, "--nproc", "2", "--sharding", "stage1")


@pytest.mark.slow
def test_a_sharded_optimizer_trains_as_a_whole_one(work, weights, two, sharded):
    """The checkpoint is whole: it holds the state of every parameter."""
    assert alike(work, weights, two, sharded) < 1e-5
    first, second = (state_of(run / "checkpoints" / "checkpoint-32") for run in (two, sharded))
    assert first.keys() == second.keys() and len(first) > 90
    assert max(float(np.abs(first[name] - second[name]).max()) for name in first) < 1e-5
    assert "INFO" not in (sharded / "logs" / "rank-1.log").read_text()


@pytest.mark.slow
def test_a_sharded_run_is_resumed(work, same_bits, sharded):
    copy = work / "sharded-again"
    shutil.copytree(sharded, copy)
    shutil.rmtree(copy / "model")
    (copy / "manifest.json").write_text(json.dumps({**work.manifest("sharded-again"), "state": "failed"}))
    for step in (24, 32):
        shutil.rmtree(copy / "checkpoints" / f"checkpoint-{step}")
    words = ("--set", "training.output_dir=sharded-again", "--resume")
    done = work.nlpctl("train", str(copy / "recipe.yaml"), *words)
    assert done.returncode == 0, done.stderr
    assert same_bits(copy, sharded)


def state_of(checkpoint: Path) -> dict[str, np.ndarray]:
    """The arrays of an optimizer's state."""
    import paddle

    state = paddle.load(str(checkpoint / "optimizer.pdopt"), return_numpy=True)
    return {name: value for name, value in state.items() if isinstance(value, np.ndarray)}


@pytest.mark.slow
def test_accumulated_parts_train_as_one(work, weights, one):
    parts = work.train("parts", *work.plain, *work.halves, "--gradient_accumulation_steps", "2")
    difference = alike(work, weights, one, parts)
    print(f"largest difference of a weight: {difference:.2e}")
    assert difference < 1e-5


# `nlpctl train` in which every rank leaves its final weights.
LEAVE_WEIGHTS = """
import os, sys
from pathlib import Path
from nlpctl.config.schema import RuntimeSection
from nlpctl.runtime.process import configure_paddle, prepare_process
configure_paddle(prepare_process(RuntimeSection(device="cpu", nproc=2, threads=1), 42), 42)
import numpy as np
from nlpctl.cli.app import main
from nlpctl.training.trainer import RecipeTrainer
train = RecipeTrainer.train
def leave_weights(self, *args, **kwargs):
    train(self, *args, **kwargs)
    arrays = {name: value.numpy() for name, value in self.loaded.network.state_dict().items()}
    np.savez(Path(sys.argv[0]).parent / f"weights-{os.environ['PADDLE_TRAINER_ID']}.npz", **arrays)
RecipeTrainer.train = leave_weights
sys.exit(main())
"""


@pytest.mark.slow
def test_all_ranks_end_with_the_same_weights(work, two, weights):
    """Bit by bit; and with those of the command line, so that they are a function of the recipe."""
    (work / "leave_weights.py").write_text(LEAVE_WEIGHTS)
    place = ("--set", f"training.output_dir={work / 'ranks'}")
    words = ["train", str(work / "recipe.yaml"), *work.plain, *work.halves, *place]
    begun = RunDirectory(work / "ranks")  # the parent's part
    begun.begin({"data": {}, "processes": 2, "skipped_rows": {}}, "", resume=False, overwrite=False)
    assert launch(words, 2, (), work / "ranks-logs", (str(work / "leave_weights.py"),)) == 0
    with np.load(work / "weights-0.npz") as first, np.load(work / "weights-1.npz") as second:
        assert set(first.files) == set(second.files) and len(first.files) > 10
        assert [name for name in first.files if first[name].tobytes() != second[name].tobytes()] == []
        saved = weights(two / "checkpoints" / "checkpoint-32")
        assert [name for name in saved if first[name].tobytes() != saved[name].tobytes()] == []


def test_a_rank_that_fails_is_shown(work):
    (work / "failing_reader.py").write_text(
        "import csv, os\n"
        "def read(path):\n"
        "    if os.environ.get('PADDLE_TRAINER_ID') == '1':\n"
        "        raise ValueError('the disk of the second machine, NCCL_DEBUG=' + os.environ['NCCL_DEBUG'])\n"
        "    with open(path) as stream:\n"
        "        yield from csv.DictReader(stream, delimiter='\\t')\n"
    )
    reader = ("--set", "data.reader=failing_reader:read", "--set", "training.output_dir=failing")
    done = work.nlpctl("train", "recipe.yaml", *reader, "--nproc", "2", "--set", "runtime.env.NCCL_DEBUG=WARN")
    assert done.returncode == 2, done.stderr  # a reader is the user's
    assert "the disk of the second machine, NCCL_DEBUG=WARN" in done.stderr and "process 1 of 2 failed" in done.stderr
    assert "rank-1.log" in done.stderr and "Traceback" not in done.stderr
    assert work.manifest("failing")["state"] == "failed"
    assert work.manifest("failing")["environment"]["NCCL_DEBUG"] == "WARN"


@pytest.mark.slow
def test_stopped_and_resumed(work, weights, two):
    place = ("--set", "training.output_dir=two-stopped")
    words = ("train", "recipe.yaml", *work.plain, *work.halves, "--nproc", "2", *place)
    checkpoint = work / "two-stopped" / "checkpoints" / "checkpoint-8"
    done = work.end(work.start(*words), checkpoint.exists, signal.SIGINT)
    assert done.returncode == 130 and "Traceback" not in done.stderr, done.stderr
    assert work.manifest("two-stopped")["state"] == "interrupted"
    assert not ranks_of(work / "two-stopped")

    done = work.nlpctl(*words[:-4], "--nproc", "3", "--resume", *place)
    assert done.returncode == 2 and "began with 2 processes, and 3 processes cannot divide" in done.stderr, done.stderr
    done = work.nlpctl(*words, "--resume")
    assert done.returncode == 0, done.stderr
    first, second = (weights(run / "model") for run in (two, work / "two-stopped"))
    assert [name for name in first if first[name].tobytes() != second[name].tobytes()] == []


@pytest.mark.slow
def test_a_rank_that_lacks_memory(work, weights, two):
    """Rank 1 in step 10: all go on from the checkpoint of step 8, with half the rows at a time."""
    shutil.copy(HELPERS / "no_memory.py", work.folder)
    run = work / "no-memory"
    settings = (*work.plain, *work.halves, "--nproc", "2", "--set", "data.reader=no_memory:read")
    done = work.nlpctl("train", "recipe.yaml", *settings, "--set", f"training.output_dir={run.name}")
    assert done.returncode == 0, done.stderr
    assert "process 1 of 2 failed" in done.stderr and "out of memory in step 10, with micro-batch 4" in done.stderr
    assert "restart with micro-batches of 2 rows" in done.stderr and "Traceback" not in done.stderr
    (event,) = [event for event in work.events(run.name) if event["event"] == "out_of_memory"]
    assert (event["step"], event["per_device_train_batch_size"], event["gradient_accumulation_steps"]) == (8, 2, 2)
    assert work.manifest(run.name)["state"] == "finished" and not ranks_of(run)
    difference = alike(work, weights, two, run)
    assert 0.0 < difference < 1e-5


@pytest.mark.slow
def test_a_loss_that_is_no_number(work):
    """Each process tells of its own rows, and the parent shows those of the first."""
    rates = ("--learning_rate", "1e30", "--warmup_ratio", "0")
    words = ("train", "recipe.yaml", *work.plain, *work.halves, "--nproc", "2", *rates)
    done = work.nlpctl(*words, "--set", "training.output_dir=not-a-number")
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert "the loss is nan in step 2; the weights were not changed by it" in done.stderr
    assert "the first such result is from operator" in done.stderr and "train.tsv:" in done.stderr
    rows = [event["rows"] for event in work.events("not-a-number") if event["event"] == "bad_step"]
    assert 1 <= len(rows) <= 2 and all(len(each) == 4 for each in rows)
    if len(rows) == 2:
        assert not set(rows[0]) & set(rows[1])
    assert not ranks_of(work / "not-a-number")


def ranks_of(run: Path) -> list[int]:
    """Living processes whose command line names the run."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if int(folder.name) != os.getpid() and str(run).encode() in command:
            found.append(int(folder.name))
    return found


@pytest.mark.slow
def test_a_damaged_checkpoint_is_passed_over_by_all(work, two, same_bits):
    """The parent decides once, so that no two processes go on from different steps."""
    copy = work / "two-damaged"
    shutil.copytree(two, copy)
    shutil.rmtree(copy / "model")
    manifest = work.manifest("two-damaged")
    (copy / "manifest.json").write_text(json.dumps({**manifest, "state": "failed"}))
    (copy / "checkpoints" / "checkpoint-32" / "optimizer.pdopt").write_bytes(b"")
    done = work.nlpctl("train", str(copy / "recipe.yaml"), "--set", "training.output_dir=two-damaged", "--resume")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("is damaged") == 1 and "optimizer.pdopt has 0 of" in " ".join(done.stderr.split())
    assert same_bits(copy, two)
