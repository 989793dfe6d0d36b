"""A resumed run takes the newest checkpoint that is whole, and ends with the bits of one that was never stopped."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import nlpctl  # noqa: F401  before paddle

# isort: split
from paddlenlp.trainer.trainer import TRAINER_STATE_NAME

from nlpctl.errors import RunFailed, UserError
from nlpctl.layout import checkpoint_step, checkpoints_in
from nlpctl.runtime.event_log import EventLog
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.training import checkpoints
from nlpctl.training.checkpoints import STATE, SUMS, damage_of

SETTINGS = ("training.eval_steps=3", "training.save_steps=3")
BEST = ("training.load_best_model_at_end=true", "training.metric_for_best_model=loss")


@pytest.fixture(scope="module")
def whole(tiny) -> RunDirectory:
    """A run that was never stopped."""
    return tiny("whole", *SETTINGS)


@pytest.fixture
def killed(tiny, monkeypatch) -> Callable[..., RunDirectory]:
    """`killed("name")`: a run that has four checkpoints, 3 to 12, and no model yet."""

    def make(name: str, *settings: str) -> RunDirectory:
        with monkeypatch.context() as patched, pytest.raises(RunFailed, match="no space"):
            patched.setattr(checkpoints, "keep_best_model", lambda *_: (_ for _ in ()).throw(RunFailed("no space")))
            tiny(name, *SETTINGS, *settings)
        return RunDirectory(tiny.folder / name)

    return make


def cut(file: Path) -> None:
    with file.open("r+b") as stream:
        stream.truncate(file.stat().st_size // 2)


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def changed(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def steps(run: RunDirectory) -> list[int]:
    return [checkpoint_step(path) for path in checkpoints_in(run.checkpoints)]


@pytest.mark.parametrize(
    ("name", "damage", "told"),
    [
        ("model_state.pdparams", cut, "bytes"),
        ("model_state.pdparams", changed, "has changed since it was saved"),
        ("optimizer.pdopt", Path.unlink, "is missing"),
        ("scheduler.pdparams", changed, "has changed"),
        ("trainer_state.json", emptied, "has 0 of"),
        ("vocab.txt", Path.unlink, "is missing"),
        (SUMS, emptied, "is not valid JSON"),
        (SUMS, Path.unlink, "is missing"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_the_one_before_is_taken(tiny, whole, killed, capsys, difference, name, damage, told):
    run = killed(f"broken-{name}-{damage.__name__}")
    damage(run.checkpoints / "checkpoint-12" / name)
    capsys.readouterr()
    tiny(run.path.name, *SETTINGS, resume=True)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "damaged" in line]
    assert f"checkpoint-12 is damaged: {name} " in line and told in line and "continues from checkpoint-9" in line
    assert difference(run.model, whole.model) == 0.0
    assert steps(run) == [3, 6, 9, 12] and (run.checkpoints / "damaged-checkpoint-12").is_dir()
    assert all(damage_of(path) is None for path in checkpoints_in(run.checkpoints))
    assert not (run.model / SUMS).exists()
    found, expected = (
        [(event["event"], event["step"], event.get("loss")) for event in EventLog(each.events_file).read()]
        for each in (run, whole)
    )
    assert found == expected


def test_a_file_that_lies_elsewhere_is_no_damage(tiny, whole, killed, capsys, difference, tmp_path):
    """Moved to another disk and linked: with its checksum it is the same file; one without a checksum may be any."""
    run = killed("linked")
    newest = run.checkpoints / "checkpoint-12"
    for name in ("optimizer.pdopt", "vocab.txt"):
        (newest / name).rename(tmp_path / name)
        (newest / name).symlink_to(tmp_path / name)
    sums = (newest / SUMS).read_text()
    known = {name: sum for name, sum in json.loads(sums).items() if name != "vocab.txt"}
    (newest / SUMS).write_text(json.dumps(known))
    with pytest.raises(UserError, match=r"checkpoint-12/vocab.txt: is a link out of the run.*without a checksum"):
        tiny(run.path.name, *SETTINGS, resume=True)
    (newest / SUMS).write_text(sums)
    tiny(run.path.name, *SETTINGS, resume=True)
    assert "damaged" not in capsys.readouterr().err and (newest / "optimizer.pdopt").is_symlink()
    assert difference(run.model, whole.model) == 0.0


def test_none_is_whole(tiny, killed):
    """Nothing is begun anew without being asked for."""
    run = killed("none")
    for path in checkpoints_in(run.checkpoints):
        cut(path / "model_state.pdparams")
    for _ in range(2):
        with pytest.raises(UserError, match=r"(?s)checkpoint-12: is damaged: model_state.*no checkpoint.*--overwrite"):
            tiny(run.path.name, *SETTINGS, resume=True)
    assert steps(run) == [3, 6, 9, 12]


def test_a_best_checkpoint_that_is_damaged(tiny, killed, capsys, difference):
    """It would become the model: the run goes on from before it, and finds the best anew."""
    whole = tiny("best-whole", *SETTINGS, *BEST)
    run = killed("best", *BEST)
    newest = run.checkpoints / "checkpoint-12"
    best = Path(json.loads((newest / STATE).read_text())["best_model_checkpoint"])
    assert checkpoint_step(best) > 3
    changed(run.checkpoints / best.name / "model_state.pdparams")
    tiny(run.path.name, *SETTINGS, *BEST, resume=True)
    told = capsys.readouterr().err
    assert f"{best.name} is damaged: model_state.pdparams has changed" in told.replace("\n", " ")
    assert difference(run.model, whole.model) == 0.0


def test_damage_found_when_the_model_is_kept(tiny, monkeypatch):
    """The best checkpoint rots while the training goes on."""
    keep = checkpoints.keep_best_model

    def rotten(recipe, run, model, description, state):
        changed(run.checkpoints / Path(state.best_model_checkpoint).name / "model_state.pdparams")
        keep(recipe, run, model, description, state)

    monkeypatch.setattr(checkpoints, "keep_best_model", rotten)
    with pytest.raises(RunFailed, match="(?s)checkpoint-.*is damaged: model_state.pdparams has changed.*--resume"):
        tiny("rotten", *SETTINGS, *BEST)


def test_sums_tell_of_every_file(whole):
    newest = whole.checkpoints / "checkpoint-12"
    files = {path.name for path in newest.iterdir()}
    assert set(json.loads((newest / SUMS).read_text())) == files - {SUMS} and STATE == TRAINER_STATE_NAME


def test_an_earlier_copy_that_lies_aside_is_replaced(tiny, killed):
    run = killed("twice")
    shutil.copytree(run.checkpoints / "checkpoint-3", run.checkpoints / "damaged-checkpoint-12")
    cut(run.checkpoints / "checkpoint-12" / "optimizer.pdopt")
    tiny(run.path.name, *SETTINGS, resume=True)
    aside = json.loads((run.checkpoints / "damaged-checkpoint-12" / STATE).read_text())
    assert aside["global_step"] == 12
