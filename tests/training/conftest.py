"""Tiny runs in this process, for what a command line cannot be made to do."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.config.load import Override, load_recipe
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.training.train import train

# 45 rows in batches of 8: an epoch has 6 updates, the last of 5 rows.
RECIPE = """\
task: sequence_classification
model:
  from_scratch: {vocab_size: 100, min_frequency: 1, hidden_size: 16, num_hidden_layers: 1, intermediate_size: 32}
data: {train: train.tsv, dev: dev.tsv, max_seq_length: 16}
training:
  output_dir: unset
  learning_rate: 3e-3
  num_train_epochs: 2
  per_device_train_batch_size: 8
  evaluation_strategy: steps
  eval_steps: 6
  save_strategy: steps
  save_steps: 6
  logging_steps: 1
  report_to: none
runtime: {device: cpu}
"""


TOXIC_ROWS = (7, 20, 33)  # of train.tsv, from 0: they hold a word that is nowhere else


class TinyRuns:
    """`tiny("name", "key=value", ...)` trains into the run directory `name`."""

    def __init__(self, folder: Path):
        self.folder = folder

    def __call__(self, name: str, *settings: str, resume: bool = False) -> RunDirectory:
        run = RunDirectory(self.folder / name)
        overrides = [Override(*setting.split("=", 1), "--set") for setting in settings]
        overrides.append(Override("training.output_dir", str(run.path), "--set"))
        train(load_recipe(self.folder / "recipe.yaml", overrides), resume=resume)
        return run


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyRuns:
    folder, chance = tmp_path_factory.mktemp("tiny"), random.Random(4)
    (folder / "recipe.yaml").write_text(RECIPE)
    for name, count in (("train", 45), ("dev", 10)):
        rows = []
        for i in range(count):
            label = ("neg", "pos")[i % 2]
            words = [*chance.choices("the room bed was staff view".split(), k=chance.randint(2, 6)), f"row{i}"]
            words.insert(1, {"neg": "dirty", "pos": "clean"}[label])
            words += ["毒"] * (name == "train" and i in TOXIC_ROWS)
            rows.append(f"{' '.join(words)}\t{label}\n")
        (folder / f"{name}.tsv").write_text("text\tlabel\n" + "".join(rows))
    return TinyRuns(folder)


def weights(folder: Path) -> dict[str, np.ndarray]:
    """The weights of a model folder or checkpoint."""
    import paddle

    return paddle.load(str(folder / "model_state.pdparams"), return_numpy=True)


@pytest.fixture(scope="session")
def difference() -> Callable[[Path, Path], float]:
    """The largest difference of a weight of two model folders; 0.0 only where every bit is the same.

    Key biases shift all attention scores of a query alike, which softmax does not see: their gradient is noise of
    rounding, which Adam blows up. They count for equality of bits only.
    """

    def largest(one: Path, other: Path) -> float:
        first, second = weights(one), weights(other)
        assert first.keys() == second.keys() and len(first) > 10
        if all(first[name].tobytes() == second[name].tobytes() for name in first):
            return 0.0
        compared = [name for name in first if not name.endswith("k_proj.bias")]
        found = max(float(np.abs(first[name] - second[name]).max()) for name in compared)
        return max(found, 1e-45)

    return largest


@pytest.fixture
def calls(monkeypatch):
    """What oneDNN was called to compute."""
    from nlpctl.training import onednn

    made, run = [], onednn._Primitive.run
    monkeypatch.setattr(onednn._Primitive, "run", lambda self, of: made.append(self) or run(self, of))
    return made
