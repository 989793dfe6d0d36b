"""A loss that is no number, or explodes, ends the run before the weights change, and is told with its cause."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Callable

import numpy as np
import pytest

import nlpctl  # noqa: F401  before paddle

# isort: split
import paddle

from nlpctl.config.schema import GuardsSection
from nlpctl.errors import RunFailed
from nlpctl.runs.runs import open_run
from nlpctl.runtime.event_log import EventLog
from nlpctl.tasks.sequence_classification import SequenceClassification
from nlpctl.training import checkpoints, diagnosis
from nlpctl.training.guards import FIRST, RECENT, BadStep, RunningMedian, StepGuard
from nlpctl.training.plateau import Fall, take_back

TOXIC_LINES = {9, 22, 35}  # of train.tsv: conftest.TOXIC_ROWS, after the header


def messages(caught: pytest.ExceptionInfo[RunFailed]) -> list[str]:
    return [str(problem) for problem in caught.value.problems]


def lines_named(told: list[str]) -> list[int]:
    return [int(found[1]) for each in told if (found := re.match(r"\S+train\.tsv:(\d+): ", each))]


@pytest.fixture
def changed_loss(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable], None]:
    """`changed_loss(k, change)`: from the k-th training batch on the loss is change(loss, logits)."""
    loss = SequenceClassification.loss

    def install(first: int, change: Callable) -> None:
        calls: list[int] = []

        def changed(self, network, outputs, batch):
            value = loss(self, network, outputs, batch)
            calls.extend([1] * network.training)
            return change(value, outputs[0]) if network.training and len(calls) >= first else value

        monkeypatch.setattr(SequenceClassification, "loss", changed)

    return install


@pytest.fixture
def weights_at_the_end(monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """The weights in memory when a bad step is explained."""
    kept: dict[str, np.ndarray] = {}
    explain = diagnosis.diagnosed

    def spy(bad, trainer):
        failure = explain(bad, trainer)
        kept.update({name: value.numpy() for name, value in trainer.loaded.network.state_dict().items()})
        return failure

    monkeypatch.setattr(diagnosis, "diagnosed", spy)
    return kept


@pytest.fixture(scope="module")
def toxic(tiny):
    """A model folder in which the vector of one word is so large that sums over it overflow."""
    model = tiny("healthy").model
    words = (model / "vocab.txt").read_text(encoding="utf-8").splitlines()
    file = str(model / "model_state.pdparams")
    state = paddle.load(file)
    (name,) = [name for name in state if "word_embeddings" in name]
    state[name][words.index("毒")] = 3e38
    paddle.save(state, file)
    (model / "manifest.json").unlink()  # the edit is meant
    return model


@pytest.mark.parametrize(
    "division", [(), ("training.per_device_train_batch_size=4", "training.gradient_accumulation_steps=2")]
)
def test_rows_that_give_no_number_are_named(tiny, toxic, capfd, division):
    name = f"toxic-{len(division)}"
    with pytest.raises(RunFailed) as caught:
        tiny(name, "model.from_scratch=null", f"model.name_or_path={toxic}", *division)
    head, operator, gradients, verdict, *rows = messages(caught)
    assert 1 <= len(rows) < 3 and all("the loss of this row alone is nan" in row for row in rows)
    step = int(re.match(r"the loss is nan in step (\d+);", head)[1])
    assert set(lines_named(rows)) < TOXIC_LINES and len(lines_named(rows)) == len(rows)
    assert "gradients that are not finite" in gradients
    assert re.search(r"operator layer_norm\w*, in ernie\.embeddings\.layer_norm \([\d,]+ nan and \d+ inf\)", operator)
    assert "[PRECISION]" not in capfd.readouterr().out
    (event,) = [event for event in EventLog(tiny.folder / name / "events.jsonl").read() if event["event"] == "bad_step"]
    assert event["step"] == step and event["value"] == "nan" and event["origin"] == [operator, gradients]
    assert [f"{where}: the loss of this row alone is nan" for where in event["rows"]] == rows


def test_weights_that_overflow_are_not_blamed_on_rows(tiny, weights_at_the_end, difference):
    with pytest.raises(RunFailed) as caught:
        tiny("overflow", "training.learning_rate=1e30", "training.save_steps=1", "training.evaluation_strategy=no")
    told = messages(caught)
    assert "in step 2" in told[0] and "training.learning_rate" in told[0]
    assert len(lines_named(told)) == 8 and "every row of the step gives that value on its own" in told[-9]
    assert "FLAGS_check_nan_inf: the first such result is from operator" in told[1]
    saved = paddle.load(str(tiny.folder / "overflow/checkpoints/checkpoint-1/model_state.pdparams"), return_numpy=True)
    assert all(saved[name].tobytes() == weights_at_the_end[name].tobytes() for name in saved) and len(saved) > 10


def test_a_gradient_that_is_no_number(tiny, changed_loss):
    changed_loss(4, lambda loss, logits: loss + paddle.sqrt(logits[0, 0] - logits[0, 0]))
    with pytest.raises(RunFailed) as caught:
        tiny("gradient")
    told = messages(caught)
    assert "the gradient norm is nan in step 4" in told[0]
    assert "from operator sqrt_grad, in the backward pass" in told[1]
    assert "gradients that are not finite: ernie." in told[2]
    assert len(lines_named(told)) == 8 and "no row of the step gives that value on its own" in told[3]


def test_off_when_asked_and_weights_that_are_no_numbers(tiny, changed_loss, monkeypatch):
    changed_loss(4, lambda loss, logits: loss * math.nan)
    settings = ("training.evaluation_strategy=no", "training.save_steps=1", "training.max_steps=6")
    with pytest.raises(RunFailed, match="no space"), monkeypatch.context() as patched:
        patched.setattr(checkpoints, "keep_best_model", lambda *_: (_ for _ in ()).throw(RunFailed("no space")))
        tiny("off", *settings, "guards.finite=false")
    shutil.rmtree(tiny.folder / "off/checkpoints/checkpoint-6")
    with pytest.raises(RunFailed, match="(?s)in step 6.*weights are not finite before the step: .* and .* more"):
        tiny("off", *settings, "guards.finite=true", resume=True)


STREAM = ("data.streaming=true", "data.labels=[neg,pos]", "data.shuffle_buffer=7", "training.max_steps=30")


@pytest.mark.parametrize("settings", [("training.num_train_epochs=6",), STREAM])
def test_an_exploding_loss(tiny, changed_loss, settings, weights_at_the_end):
    name = f"explodes-{len(settings)}"
    every = ("training.save_steps=1", "training.save_total_limit=1", "training.evaluation_strategy=no")
    changed_loss(25, lambda loss, logits: loss * 1e5)
    with pytest.raises(RunFailed) as caught:
        tiny(name, *settings, *every)
    head, verdict, *rows = messages(caught)
    assert re.match(r"the loss exploded in step 25: [\d.e+]+, [\d,]+ times the usual [\d.]+; the weights", head)
    assert f"`nlpctl train {tiny.folder / name} --resume --set guards.loss_factor=null`" in head
    losses = [float(re.search(r"the loss of this row alone is ([\d.e-]+)", row)[1]) for row in rows]
    lines = lines_named(rows)
    assert len(rows) == len(set(lines)) == 8 and losses == sorted(losses, reverse=True)
    saved = paddle.load(str(tiny.folder / name / "checkpoints/checkpoint-24/model_state.pdparams"), return_numpy=True)
    assert all(saved[key].tobytes() == weights_at_the_end[key].tobytes() for key in saved) and len(saved) > 10


def test_a_loss_near_nothing_has_room():
    """A student of fitted layers begins so; then comes a row that it cannot learn."""
    guard, usual = object.__new__(StepGuard), RunningMedian()
    guard.section, guard.parts = GuardsSection(), []
    for step in range(FIRST):
        guard._judge(step, "loss", 1e-4, usual, 100.0)
    guard._judge(FIRST, "loss", 8.5, usual, 100.0)
    with pytest.raises(BadStep):
        guard._judge(FIRST + 1, "loss", 11.0, usual, 100.0)


def test_an_exploding_gradient_and_going_on_regardless(tiny, changed_loss):
    """As large as the factor allows, it passes; and the recipe of the resumed run may differ in its guards."""
    changed_loss(23, lambda loss, logits: loss + 50000.0 * (logits[0, 0] - logits[0, 0].detach()))
    settings = ("training.num_train_epochs=4",)
    with pytest.raises(RunFailed, match=r"the gradient norm exploded in step 23: .*"):
        tiny("steep", *settings)
    run = tiny("steep", *settings, "guards.gradient_factor=null", resume=True)
    assert run.read_manifest().state == "finished"


def test_what_is_usual():
    usual = RunningMedian()
    for value in [*range(1, FIRST)]:
        usual.add(float(value))
    assert usual.size() is None
    usual.add(1000.0)
    assert usual.size() == 10.5  # an outlier does not move it
    for _ in range(RECENT):
        usual.add(0.001)
    assert usual.size() == 10.5  # a loss that has fallen to nothing leaves it where it began
    for _ in range(RECENT):
        usual.add(30.0)
    assert usual.size() == 30.0


# -- a loss that does not fall ---------------------------------------------------------------------

LONG = ("training.num_train_epochs=20", "training.evaluation_strategy=no", "training.save_strategy=no")  # 120 steps


def told_not_learning(run) -> list[dict]:
    return [event for event in EventLog(run.events_file).read() if event["event"] == "not_learning"]


def test_a_loss_that_stays_is_told_once_and_the_run_goes_on(tiny, capfd):
    run = tiny("stuck", *LONG, "training.learning_rate=1e-12")
    (event,) = told_not_learning(run)
    assert event["step"] >= 100 and event["guess"] == pytest.approx(math.log(2), abs=1e-3) and run.is_finished
    err = capfd.readouterr().err
    assert err.count("the loss does not fall") == 1 and "ten times more may do" in err
    assert f"nlpctl train {run.path} --overfit-batch" in err
    assert "not learning at step" in run.report_file.read_text()
    events = EventLog(run.events_file)
    assert [each["event"] for each in open_run(run.path).incidents()][0] == "not_learning"
    take_back(events, Fall(120, 0.5, 0.693))
    assert "not_learning" not in [each["event"] for each in open_run(run.path).incidents()]
    take_back(events, Fall(130, 0.4, 0.693))  # as a resumed run: it was taken back already
    assert capfd.readouterr().err.count("the loss falls now") == 1
    assert [each["step"] for each in events.read() if each["event"] == "learning"] == [120]


def test_a_model_of_no_use_is_told_at_the_end(tiny, capfd):
    run = tiny("useless", "training.learning_rate=1e-12")
    err = " ".join(capfd.readouterr().err.split())
    assert "this model is of no use on dev: all 10 rows get the label" in err and "and 5 have another one" in err
    assert f"nlpctl train {run.path} --overfit-batch" in err
    assert "1e-12 at its highest" in err and "batch, 8 rows" in err
    assert [event["step"] for event in EventLog(run.events_file).read() if event["event"] == "useless"] == [12]
    assert "useless at step 12" in run.report_file.read_text()
    tiny("ignored-too", "training.learning_rate=1e-12", "guards.not_learning=ignore")
    assert "of no use" not in capfd.readouterr().err
    (run.path.parent / "some-folds").mkdir()
    (run.path.parent / "some-folds/series.json").write_text("{}")
    tiny("some-folds/fold-1", "training.learning_rate=1e-12")
    err = capfd.readouterr().err
    assert err.count("of no use") == 1 and "check, in this order" not in err  # once for each of many would be long


def test_it_may_stop_the_run(tiny):
    with pytest.raises(RunFailed) as caught:
        tiny("stopped", *LONG, "training.learning_rate=1e-12", "guards.not_learning=stop")
    assert "does not fall" in messages(caught)[0] and "guards.not_learning=ignore" in messages(caught)[0]
    assert "data inspect" in messages(caught)[1] and len(messages(caught)) == 6


def test_a_loss_that_falls_is_not_told(tiny, capfd):
    run = tiny("falls", *LONG)
    assert not told_not_learning(run)
    assert not [event for event in EventLog(run.events_file).read() if event["event"] == "learning"]
    assert not told_not_learning(tiny("ignored", *LONG, "training.learning_rate=1e-12", "guards.not_learning=ignore"))
    assert "does not fall" not in capfd.readouterr().err
