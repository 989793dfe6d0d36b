"""A folder with small data and recipes, real command lines in it, and one trained run that the tests share.

What is made in that folder is made once per worker: fixtures here and in the modules have the scope "session".
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from command_lines import CommandLines, Started, needs_a_fresh_interpreter
from ray_nodes import new_cluster
from warm_python import read_at_import

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

ROOT = Path(__file__).resolve().parents[2]

# 61 rows and batches of 8: the last update of an epoch has 5 rows. Dropout is on unless a test turns it off.
RECIPE = """\
task: sequence_classification
model:
  from_scratch: {vocab_size: 200, min_frequency: 1, hidden_size: 32, num_hidden_layers: 1, intermediate_size: 64}
  config: {hidden_dropout_prob: 0.1}
data: {train: train.tsv, dev: dev.tsv, test: test.tsv, max_seq_length: 16}
training:
  output_dir: base
  learning_rate: 1e-2
  warmup_ratio: 0.1
  num_train_epochs: 6
  per_device_train_batch_size: 8
  evaluation_strategy: epoch
  save_strategy: epoch
  load_best_model_at_end: true
  metric_for_best_model: accuracy
  logging_steps: 4
runtime: {device: cpu}
"""

FOLDS = ("train", "recipe.yaml", "--folds", "2", "--set", "data.train=noisy.tsv", "--output_dir", "folds")


def sentences(count: int, seed: int) -> list[tuple[str, str]]:
    """Sentences of 2 to 9 words whose one telling word decides the label; a tenth are mislabelled."""
    chance, made = random.Random(seed), []
    for _ in range(count):
        label = chance.choice(("neg", "pos"))
        words = chance.choices("the room bed was staff view food very a and".split(), k=chance.randint(1, 8))
        telling = chance.choice({"neg": ("bad", "dirty"), "pos": ("good", "clean")}[label])
        words.insert(chance.randint(0, len(words)), telling)
        label = {"neg": "pos", "pos": "neg"}[label] if chance.random() < 0.1 else label
        made.append((" ".join(words), label))
    return made


class Workplace:
    """Data, recipes and runs in one folder; `nlpctl(...)` is a command line in it.

    It runs in a process forked from one with Paddle imported, and so does what `start` starts. `fresh` and
    `start_fresh` take a new interpreter, for what happens before or while Paddle is imported.
    """

    # A checkpoint at every third step and no evaluation: for runs that are interrupted.
    stepwise = "--evaluation_strategy no --save_strategy steps --save_steps 3 --no-load_best_model_at_end".split()

    # Without dropout, since every rank draws its own. 61 rows: the last update of an epoch has 5, cut into 3 and 2.
    plain = (
        "--set model.config.hidden_dropout_prob=0 --set model.config.attention_probs_dropout_prob=0 "
        "--num_train_epochs 4 --logging_steps 1 --threads 1"
    ).split()
    halves = ("--per_device_train_batch_size", "4")  # for each of two processes

    def __init__(self, folder: Path, lines: CommandLines):
        self.folder, self._lines = folder, lines
        self._environment = read_at_import(os.environ)

    def __truediv__(self, name: str) -> Path:
        return self.folder / name

    def nlpctl(self, *words: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
        words = tuple(map(str, words))
        if read_at_import(os.environ) == self._environment:
            ended = self._lines.run(words, self.folder, stdin, os.environ)
            if not needs_a_fresh_interpreter(ended):
                return subprocess.CompletedProcess(words, ended.code, ended.out, ended.err)
        return self.fresh(*words, stdin=stdin)

    def fresh(self, *words: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """The command line in a new interpreter."""
        process = self.start_fresh(*words)
        out, err = process.communicate(stdin, timeout=300)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def start(self, *words: str | Path, folder: Path | None = None) -> Started:
        """A command line that goes on while the test does; signals can be sent to it. `folder`: another one."""
        assert read_at_import(os.environ) == self._environment, "use start_fresh"
        return self._lines.start(tuple(map(str, words)), folder or self.folder, os.environ)

    def start_fresh(self, *words: str | Path) -> subprocess.Popen[str]:
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        return subprocess.Popen(
            [sys.executable, "-m", "nlpctl", *map(str, words)],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def train(self, name: str, *words: str, recipe: str = "recipe.yaml") -> Path:
        """Train into the run directory `name`; fails the test unless that ends well."""
        done = self.nlpctl("train", recipe, "--set", f"training.output_dir={name}", *words)
        assert done.returncode == 0, done.stderr
        return self.folder / name

    def manifest(self, name: str) -> dict[str, Any]:
        return json.loads((self.folder / name / "manifest.json").read_text())

    def events(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / name / "events.jsonl").read_text().splitlines()]

    def end(self, process: Started, when: Callable[[], bool], number: int) -> subprocess.CompletedProcess:
        """Send signal `number` once `when` holds, and wait for the end."""
        deadline = time.monotonic() + 120
        while not when():
            assert process.poll() is None, f"ended before the signal: {process.communicate()[1]}"
            assert time.monotonic() < deadline, "the moment for the signal never came"
            time.sleep(0.002)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory, with_paddle: CommandLines) -> Workplace:
    folder = tmp_path_factory.mktemp("end_to_end")
    for name, count, seed in (("train", 61, 1), ("dev", 40, 2), ("test", 30, 3)):
        rows = "".join(f"{text}\t{label}\n" for text, label in sentences(count, seed))
        (folder / f"{name}.tsv").write_text("text\tlabel\n" + rows)
    (folder / "recipe.yaml").write_text(RECIPE)
    return Workplace(folder, with_paddle)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A Ray cluster on this machine: two nodes with a core each, beside a head that computes nothing. A test that
    takes a node away puts another one in its place."""
    os.environ.setdefault("RAY_memory_monitor_refresh_ms", "0")  # others may have taken this machine's memory
    cluster = new_cluster()
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    yield cluster
    cluster.shutdown()


@pytest.fixture(scope="session")
def base(work: Workplace) -> Path:
    """The run of recipe.yaml. Read only."""
    return work.train("base")


@pytest.fixture(scope="session")
def exported(work: Workplace, base: Path) -> Path:
    """The export of `base`. Read only."""
    done = work.nlpctl("export", "base", "-o", "timed-export")
    assert done.returncode == 0, done.stderr
    return work / "timed-export"


@pytest.fixture(scope="session")
def two(work: Workplace) -> Path:
    """Batches of 4 in each of two processes. Read only."""
    return work.train("two", *work.plain, *work.halves, "--nproc", "2")


@pytest.fixture(scope="session")
def stepwise(work: Workplace) -> Path:
    """The run of recipe.yaml with `work.stepwise`, never interrupted. Read only."""
    return work.train("stepwise", *work.stepwise)


@pytest.fixture(scope="session")
def weights() -> Callable[[Path], dict[str, np.ndarray]]:
    """The weights of a model folder or checkpoint."""
    import paddle

    return lambda folder: paddle.load(str(folder / "model_state.pdparams"), return_numpy=True)


@pytest.fixture(scope="session")
def same_bits(weights: Callable[[Path], dict[str, np.ndarray]]) -> Callable[[Path, Path], bool]:
    """Whether two runs ended with the same model, bit by bit."""

    def same(one: Path, other: Path) -> bool:
        first, second = weights(one / "model"), weights(other / "model")
        assert first.keys() == second.keys() and len(first) > 10
        return all(first[name].tobytes() == second[name].tobytes() for name in first)

    return same


@pytest.fixture(scope="session")
def folds(work: Workplace) -> dict[str, Any]:
    """What --json tells of two folds of recipe.yaml, with more rows: train.tsv, test.tsv, and two that contradict each
    other. Read only."""
    rows = (work / "train.tsv").read_text() + (work / "test.tsv").read_text().partition("\n")[2]
    twins = "clean very clean very clean room a\tneg\nclean very clean very clean room a!\tpos\n"
    (work / "noisy.tsv").write_text(rows + twins)
    done = work.nlpctl(*FOLDS, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["result"]
