"""Training data that change while they are streamed end the run with one message; restored, it goes on bit by bit."""

from __future__ import annotations

import faulthandler
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import nlpctl  # noqa: F401  before paddle
from nlpctl.errors import RunFailed, UserError
from nlpctl.tasks.sequence_classification import SequenceClassification

STREAM = (
    "data.streaming=true", "data.labels=[neg,pos]", "data.shuffle_buffer=7", "training.max_steps=40",
    "training.evaluation_strategy=no",
)  # fmt: skip
CHANGED_IN = 14  # the step in which the file changes; an epoch has 45 rows, 5.6 batches
HEADER = "text\tlabel\n"


@pytest.fixture(autouse=True)
def not_for_ever() -> Iterator[None]:
    """What these tests guard against is a loop without end, partly in C++: nothing less ends it."""
    faulthandler.dump_traceback_later(120, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def train_file(tiny) -> Iterator[Path]:
    """The training rows; what a test does to them is undone."""
    file = tiny.folder / "train.tsv"
    content = file.read_bytes()
    yield file
    file.write_bytes(content)


@pytest.fixture
def in_the_run(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """`in_the_run(change)`: `change()` is called in the step CHANGED_IN."""
    loss = SequenceClassification.loss

    def install(change: Callable[[], None]) -> None:
        steps: list[int] = []

        def changing(self, network, outputs, batch):
            steps.extend([1] * network.training)
            if len(steps) == CHANGED_IN and network.training:
                change()
            return loss(self, network, outputs, batch)

        monkeypatch.setattr(SequenceClassification, "loss", changing)

    return install


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def saved(file: Path, text: str) -> None:
    """As an editor saves: a worker of the loader would see a file that is being written as an empty one."""
    aside = file.with_suffix(".new")
    aside.write_text(text, encoding="utf-8")
    aside.replace(file)


def cut(file: Path) -> None:
    saved(file, HEADER + "a clean room\tpos\n")


def extended(file: Path) -> None:
    saved(file, file.read_text(encoding="utf-8") + "a clean room\tpos\n")


def spoilt(file: Path) -> None:
    lines = file.read_text(encoding="utf-8").splitlines()
    lines[20] = "a room\tnobody knows"
    saved(file, "\n".join([*lines, ""]))


def all_spoilt(file: Path) -> None:
    saved(file, HEADER + "a room\tnobody knows\n" * 45)


CHANGES = [
    (emptied, r"train\.tsv: .*"),
    (Path.unlink, r"train\.tsv: cannot read the file"),
    (cut, r"train\.tsv: 1 rows, but 45 when the run began"),
    (extended, r"train\.tsv: 46 rows, but 45 when the run began"),
    (spoilt, r"train\.tsv:21: .*nobody knows"),
]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("change", "told"), CHANGES, ids=lambda value: getattr(value, "__name__", ""))
def test_the_run_ends(tiny, train_file, in_the_run, change, told, workers):
    name = f"{change.__name__}-{workers}"
    in_the_run(lambda: change(train_file))
    with pytest.raises(RunFailed, match=told) as caught:
        tiny(name, *STREAM, f"training.dataloader_num_workers={workers}")
    (problem,) = caught.value.problems
    assert f"`nlpctl train {tiny.folder / name} --resume` to continue from the last checkpoint" in problem.hint
    assert caught.value.exit_code == 1


@pytest.mark.parametrize("workers", [0, 2])
def test_restored_it_goes_on(tiny, train_file, in_the_run, monkeypatch, difference, workers):
    settings = (*STREAM, f"training.dataloader_num_workers={workers}")
    whole = tiny(f"whole-{workers}", *settings)
    content = train_file.read_bytes()
    name = f"restored-{workers}"
    in_the_run(lambda: emptied(train_file))
    with pytest.raises(RunFailed):
        tiny(name, *settings)
    monkeypatch.undo()
    with pytest.raises(UserError, match="holds no rows"):
        tiny(name, *settings, resume=True)
    train_file.write_bytes(content)
    run = tiny(name, *settings, resume=True)
    assert run.read_manifest().resumed and difference(run.model, whole.model) == 0.0


def test_bad_rows_are_skipped_where_that_is_wanted(tiny, train_file, in_the_run):
    in_the_run(lambda: spoilt(train_file))
    assert tiny("skipped", *STREAM, "data.on_bad_row=skip").is_finished


@pytest.mark.parametrize("workers", [0, 2])
def test_no_row_is_left_to_train_on(tiny, train_file, in_the_run, workers):
    in_the_run(lambda: all_spoilt(train_file))
    with pytest.raises(RunFailed, match=r"train\.tsv: no row is usable"):
        tiny(f"all-{workers}", *STREAM, "data.on_bad_row=skip", f"training.dataloader_num_workers={workers}")


def test_a_loss_that_is_no_number_is_told_without_the_rows(tiny, train_file, monkeypatch):
    """The rows of a bad step are read again, and may be gone."""
    loss = SequenceClassification.loss

    def spoiling(self, network, outputs, batch):
        train_file.unlink(missing_ok=True)
        return loss(self, network, outputs, batch) * float("nan")

    monkeypatch.setattr(SequenceClassification, "loss", spoiling)
    with pytest.raises(RunFailed, match=r"the loss is nan in step 1(?s:.*)cannot be listed: .*train\.tsv: cannot read"):
        tiny("nan", *STREAM)
