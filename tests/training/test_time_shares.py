"""Where the time goes: phases within phases, waits, sums over processes and resumed parts, and what is advised."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace

import pytest

import nlpctl  # noqa: F401  before paddle

# isort: split
from paddlenlp.trainer import IntervalStrategy

from nlpctl import console
from nlpctl.api import overrides_of
from nlpctl.config.load import load_recipe, recipe_of_values
from nlpctl.runs.time_shares import (
    COMPUTE,
    DATA,
    EVALUATE,
    LOG,
    SAVE,
    TimeShares,
    advice,
    is_sound,
    rows_of,
    summary,
)
from nlpctl.runtime.event_log import EventLog
from nlpctl.tasks.sequence_classification import SequenceClassification
from nlpctl.training.progress import TimeLeft, TrainingProgress, planned


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_every_second_counts_once(clock):
    times = TimeShares(clock)

    def batches():
        for _ in range(3):
            clock.now += 2  # reading
            yield object()

    with times.spent(SAVE):
        clock.now += 50  # outside the loop: not counted
    with times.measured():
        for _ in times.waiting(batches()):
            clock.now += 10  # computing
            with times.spent(EVALUATE):
                clock.now += 3
                with times.spent(LOG):
                    clock.now += 1
        clock.now += 5
    clock.now += 1000
    assert times.seconds == {DATA: 6, COMPUTE: 35, EVALUATE: 9, LOG: 3, SAVE: 0}


def test_an_error_ends_its_phases(clock):
    times = TimeShares(clock)
    with pytest.raises(ZeroDivisionError), times.measured(), times.spent(SAVE):
        clock.now += 4
        raise ZeroDivisionError
    with times.measured():  # again, as after out-of-memory
        clock.now += 1
    assert times.seconds[SAVE] == 4 and times.seconds[COMPUTE] == 1


def shares(**seconds):
    return {DATA: 0.0, COMPUTE: 0.0, LOG: 0.0, EVALUATE: 0.0, SAVE: 0.0} | seconds


def test_processes_and_resumed_parts_add_up():
    first = summary([shares(compute=10, data=2), shares(compute=6, data=6)], 100, None)
    assert first["seconds"]["compute"] == 8 and first["longest_wait"] == 6 and first["steps"] == 100
    both = summary([shares(compute=2)], 20, first)
    assert both["seconds"]["compute"] == 10 and both["steps"] == 120 and is_sound(both)
    assert dict((title, share) for title, _, share in rows_of(both))["computing"] == pytest.approx(10 / 14)
    for damaged in (None, 3, {}, {"seconds": {}}, {**both, "steps": "x"}, {**both, "seconds": {"data": 1}}):
        assert not is_sound(damaged)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (shares(compute=60, data=1), None),
        (shares(compute=10, data=9), None),  # too short to say
        (shares(compute=60, data=20), "waited for data 25% of the time: set training.dataloader_num_workers: 2"),
        (shares(compute=60, evaluate=40), "Evaluating took 40%"),
        (shares(compute=60, save=20), "Saving took 25%"),
        (shares(compute=60, log=10), "raise training.logging_steps (now 500)"),
    ],
)
def test_what_is_advised(seconds, said):
    recipe = recipe_of_values({"task": "sequence_classification"})
    told = advice(summary([seconds], 10, None), recipe, "cpu")
    assert (not told) if said is None else (len(told) == 1 and said in told[0])


@pytest.mark.parametrize("strategy", ["epoch", "steps"])
@pytest.mark.parametrize("best", [True, False])
@pytest.mark.parametrize("phase", [SAVE, EVALUATE])
def test_what_is_advised_can_be_done(tmp_path, strategy, best, phase):
    """The keys that the advice names are set as it says, and no check refuses that."""
    now = {"load_best_model_at_end": best, "evaluation_strategy": strategy, "save_strategy": strategy}
    now |= {"metric_for_best_model": "accuracy"} | ({"eval_steps": 50, "save_steps": 50} if strategy == "steps" else {})
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv").write_text("text\tlabel\na\tx\nb\ty\n")
    recipe = {"task": "sequence_classification", "model": {"from_scratch": {"architecture": "ernie"}},
              "data": {"train": "train.tsv", "dev": "dev.tsv"}, "training": now}  # fmt: skip
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    before = load_recipe(tmp_path / "recipe.yaml")
    (told,) = advice(summary([shares(compute=60, **{phase: 60})], 10, None), before, "cpu")
    values = {"evaluation_strategy": "steps", "save_strategy": "steps", "eval_steps": 100, "save_steps": 100}
    done = {f"training.{name}": value for name, value in values.items() if f"training.{name}" in told}
    after = load_recipe(tmp_path / "recipe.yaml", overrides_of(done, {})).training
    assert done and (after.save_steps if phase == SAVE else after.eval_steps) == 100
    assert (after.save_strategy if phase == SAVE else after.evaluation_strategy) == "steps"


def test_one_process_that_waits_holds_up_the_others():
    recipe = recipe_of_values({"task": "sequence_classification", "training": {"dataloader_num_workers": 3}})
    told = advice(summary([shares(compute=60), shares(compute=40, data=20)], 10, None), recipe, "gpu:0")
    assert "33%" in told[0] and "dataloader_num_workers to 6 (now 3)" in told[0] and "nvidia-smi" in told[1]


def arguments(**changed):
    given = {
        "dataset_world_size": 1,
        "max_evaluate_steps": -1,
        "eval_batch_size": 8,
        "device": "cpu",
        "evaluation_strategy": IntervalStrategy.EPOCH,
        "eval_steps": 0,
        "save_strategy": IntervalStrategy.EPOCH,
        "save_steps": 0,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 1,
    }
    return SimpleNamespace(**given | changed)


def test_the_time_left_has_evaluations_saves_and_the_final_scores(clock):
    times = TimeShares(clock)
    left = TimeLeft(times, dev=30, test=60, clock=clock)
    steps = {"evaluation_strategy": IntervalStrategy.STEPS, "eval_steps": 5}
    args = arguments(dataset_world_size=2, gradient_accumulation_steps=3, **steps)
    with times.measured():
        left.begin(args, 2, 20, 6)
        assert left.left(2) is None
        clock.now += 50  # the first step, which is no measure
        left.after_step(3)
        assert left.left(3) is None
        clock.now += 24  # 2 steps of 12 s, which is 1 s a row of this process
        left.after_step(5)
        # 15 steps; 4 evaluations of 15 rows and the final scores of 90, each row as a third of one in training
        assert left.left(5) == pytest.approx(15 * 12 + 4 * 15 / 3 + 90 / 3)
        with times.spent(LOG):
            clock.now += 5
        left.sampled(0.5, 5.0)
        assert left.left(5) == pytest.approx(15 * 12 + 4 * 15 * 0.5 + 90 * 0.5)
        with times.spent(EVALUATE):
            scored = console.Progress("dev", 15, "rows", console.ProgressSink(), clock=clock)
            clock.now += 10
            scored.advance(5)  # 2 s a row: of this evaluation 20 s are to come
            assert left.left(5, scored) == pytest.approx(15 * 12 + 20 + 3 * 30 + 90 * 2)
            clock.now += 20
            left.evaluated()
        clock.now += 12
        left.after_step(6)
        with times.spent(SAVE):
            clock.now += 7
        # 3 evaluations, saves after steps 12, 18 and the last, which cuts the epoch off, and 2 s a row
        assert left.left(6) == pytest.approx(14 * 12 + 3 * 30 + 3 * 7 + 90 * 2)
        with times.spent(EVALUATE):
            clock.now += 10
            left.evaluated()
        assert left.left(6) == pytest.approx(14 * 12 + 2 * 20 + 3 * 7 + 90 * 20 / 15)


def test_final_scores_take_longer_than_those_by_the_faster_functions(clock):
    times = TimeShares(clock)
    left = TimeLeft(times, dev=30, test=60, fast_cpu=True, clock=clock)
    with times.measured():
        left.begin(arguments(evaluation_strategy=IntervalStrategy.NO, save_strategy=IntervalStrategy.NO), 0, 10, 5)
        for step in range(1, 11):
            clock.now += 4
            left.after_step(step)
        assert left.evaluations == 0 and left.left(10) == pytest.approx(90 * 1.7 / 3)


@pytest.mark.parametrize("forward", [0.2, 1 / 3, 0.5])  # a step, of which scoring as many rows is this share
@pytest.mark.parametrize("sampled", [True, False])
def test_told_and_true(clock, forward, sampled):
    """A training at constant speed: within a fifth of the truth from the first tenth on, and exact once all was timed.

    600 steps of 4 rows and 1 s, the first of 3 s; dev and test of 80 rows each, the longest first, saves of 2 s.
    """
    times, told = TimeShares(clock), []
    left = TimeLeft(times, dev=80, test=80, clock=clock)
    per_row = forward / 4
    worth = [8 * (10 - i) / 5.5 for i in range(10)]  # of batches of 8 rows, in rows of the mean length
    with times.measured():
        left.begin(arguments(), 0, 600, 200)
        for step in range(1, 601):
            clock.now += 3.0 if step == 1 else 1.0
            left.after_step(step)
            if sampled and step == 3:
                with times.spent(LOG):
                    clock.now += 16 * per_row
                left.sampled(per_row, 16 * per_row)
            if step > 1:
                told.append((clock.now, left.left(step)))
            if step % 200 == 0:
                with times.spent(EVALUATE):
                    scored = console.Progress("dev", 80, "rows", console.ProgressSink(), clock=clock)
                    for each in worth:
                        clock.now += each * per_row
                        scored.advance(8, worth=each)
                        told.append((clock.now, left.left(step, scored)))
                    left.evaluated()
                with times.spent(SAVE):
                    clock.now += 2.0
                told.append((clock.now, left.left(step)))
    left.trained()
    scored = console.Progress("score", 160, "rows", console.ProgressSink(), clock=clock)
    for each in worth * 2:
        told.append((clock.now, left.left(600, scored)))
        clock.now += each * per_row
        scored.advance(8, worth=each)
    begun, end = told[0][0], clock.now
    for now, seconds in told:
        if now - begun >= (end - begun) / 10:
            assert seconds == pytest.approx(end - now, rel=0.2, abs=1e-6), now
        if now > 350:  # after the first epoch
            assert seconds == pytest.approx(end - now, abs=2.0 + 1e-6), now  # a save that goes on is not known


@pytest.mark.parametrize(
    ("strategy", "every", "per_epoch", "steps", "expected"),
    [
        ("steps", 5, 6, (2, 20), 4),
        ("steps", 5, None, (5, 9), 0),
        ("epoch", 0, 6, (6, 18), 2),
        ("epoch", 0, 6, (7, 20), 3),
        ("epoch", 0, None, (0, 20), 1),
        ("epoch", 0, 6, (20, 20), 0),
        ("no", 5, 6, (0, 20), 0),
    ],
)
def test_what_is_planned(strategy, every, per_epoch, steps, expected):
    assert planned(strategy, every, per_epoch, *steps) == expected


def test_a_line_without_a_time_left_has_no_blanks_at_its_end(capsys):
    progress = TrainingProgress()
    state = SimpleNamespace(global_step=1, max_steps=9, epoch=0.5)
    progress._bar = console.Progress("train", 9, "steps", console.ProgressSink(), left=lambda step: None)
    logs = {"loss": 0.5, "learning_rate": 0.001, "interval_samples_per_second": 40.0}
    progress.on_log(None, state, None, logs)
    expected = "step 1/9  epoch 0.50  loss 0.5000  lr 1.00e-03  40.0 samples/s\n"
    assert capsys.readouterr().err == expected


def test_the_speed_is_of_the_training_steps(tiny, monkeypatch):
    loss = SequenceClassification.loss

    def slow_on_dev(self, network, outputs, batch):
        if not network.training:
            time.sleep(0.5)
        return loss(self, network, outputs, batch)

    monkeypatch.setattr(SequenceClassification, "loss", slow_on_dev)
    run = tiny("speed", "training.eval_steps=2", "training.save_steps=2", "training.logging_steps=2")
    logs = [event for event in EventLog(run.events_file).read() if event["event"] == "log"]
    rows = [5 + 8 if event["step"] in (6, 12) else 16 for event in logs]
    taken = sum(count / event["interval_samples_per_second"] for count, event in zip(rows, logs, strict=True))
    seconds = run.read_manifest().time["seconds"]
    assert taken <= seconds[DATA] + seconds[COMPUTE] + 0.01 and seconds[EVALUATE] > 3
    # Dev is scored in two batches of half a second: five times after the fourth step, and at the end.
    assert logs[1]["left"] > 5 and logs[-2]["left"] > 3
