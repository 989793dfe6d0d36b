"""The folder that every case starts from, and the processes that run its command line."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command_lines import CommandLines, command_lines

HUGGINGFACE = Path(__file__).parent.parent / "models" / "huggingface" / "bert-classifier"
GOOD = """\
task: sequence_classification
model:
  from_scratch: {hidden_size: 16, num_hidden_layers: 1, intermediate_size: 32, min_frequency: 1}
data: {train: train.tsv, dev: dev.tsv, max_seq_length: 16}
training: {output_dir: outputs/new, num_train_epochs: 1, per_device_train_batch_size: 4}
runtime: {device: cpu}
"""
ROWS = "text\tlabel\nthe room was clean\tpos\na dirty place\tneg\nvery friendly people\tpos\nnoise all night\tneg\n"


@pytest.fixture(scope="session")
def without_paddle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLines]:
    """Command lines that must end before Paddle is imported."""
    modules = ("nlpctl.cli.app", "nlpctl.config.load", "nlpctl.cli.train", "nlpctl.cli.predict", "nlpctl.cli.data")
    modules += ("nlpctl.cli.export", "nlpctl.cli.compress", "nlpctl.training.train", "nlpctl.inference.open_model")
    modules += ("nlpctl.inference.predict", "nlpctl.datatools.inspect", "nlpctl.export.export")
    with command_lines(tmp_path_factory.mktemp("light"), *modules) as lines:
        yield lines


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory, with_paddle: CommandLines) -> Path:
    """good.yaml (right in every way), its data, a Hugging Face encoder, outputs/finished, a run of good.yaml, and
    exported, its export."""
    folder = tmp_path_factory.mktemp("start")
    (folder / "good.yaml").write_text(GOOD, encoding="utf-8")
    (folder / "recipe.yaml").write_text("extends: good.yaml\n", encoding="utf-8")
    for name in ("train.tsv", "dev.tsv"):
        (folder / name).write_text(ROWS, encoding="utf-8")
    shutil.copytree(HUGGINGFACE, folder / "huggingface")
    ended = with_paddle.run(["train", "good.yaml", "--output_dir", "outputs/finished"], folder)
    assert ended.code == 0, ended.err
    ended = with_paddle.run(["export", "outputs/finished", "-o", "exported"], folder)
    assert ended.code == 0, ended.err
    return folder


@pytest.fixture
def folder(start: Path, tmp_path: Path) -> Path:
    """A copy of `start`, for one case; its finished run knows that it lies here."""
    copy = Path(shutil.copytree(start, tmp_path / "work"))
    for name in ("recipe.yaml", "manifest.json"):
        file = copy / "outputs" / "finished" / name
        file.write_text(file.read_text(encoding="utf-8").replace(str(start), str(copy)), encoding="utf-8")
    return copy


@pytest.fixture
def lines(request: pytest.FixtureRequest) -> Callable[[bool], CommandLines]:
    """The processes of a case: with Paddle imported beforehand, or without."""
    return lambda heavy: request.getfixturevalue("with_paddle" if heavy else "without_paddle")
