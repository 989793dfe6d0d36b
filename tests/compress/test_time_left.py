"""The time left of a compression: steps one after the other or side by side, then scoring, the last round, the test."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from scored import scored

from nlpctl import console
from nlpctl.compress import compress as module
from nlpctl.compress.compress import _Compression
from nlpctl.compress.costs import Clock, Costs
from nlpctl.compress.plan import parse_strategy, plan_steps
from nlpctl.compress.scores import Failure
from nlpctl.compress.timing import MAX_ROUNDS, MAX_SECONDS, MIN_ROUNDS, Timing, turns_of_a_row, usual_seconds
from nlpctl.errors import UserError


@pytest.fixture
def compression(monkeypatch, tmp_path):
    """A compression whose steps and scorings take what the estimates say; `now` is its clock."""
    sections = dict.fromkeys(("algo_list", "batch_size_list", "batch_num_list"))
    section = SimpleNamespace(**sections, width_mult_list=("1/2",), prune_embeddings=False)
    steps = {step.folder: step for step in plan_steps(parse_strategy("ort-dynamic,qat"), section)}
    now, made, so_far, told = [0.0], {next(iter(steps))}, {}, {}
    monkeypatch.setattr(module, "is_made", lambda folder, step: step.folder in made)
    monkeypatch.setattr(module, "has_split", lambda data, split: True)
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    self = object.__new__(_Compression)
    self.steps, self.folder, self.lost, self.rows, self.failures = steps, tmp_path, {}, {}, {}
    self.recipe, self.clock, self.last_round, self.phase = SimpleNamespace(data=None), Clock(None), None, None
    self.reference, self.scorer = scored("original", 0.9), SimpleNamespace(timing=Timing())
    self.costs = Costs(500.0, {}, 9.0, 4.0, measured={step.work: 60.0 for step in steps.values()})
    self.told = lambda run, since: told.get(run)
    self.pool = SimpleNamespace(size=1, so_far=lambda: dict(so_far))
    return SimpleNamespace(of=self, now=now, made=made, so_far=so_far, told=told, steps=steps)


def test_told_and_true(compression):
    """At constant speed what was told is true at every moment, and less than a budget has left."""
    of, steps = compression.of, list(compression.steps.values())
    row = of.reference.seconds
    missing, wanted = steps[1:], [step for step in steps if step.scored]
    scoring = {step.folder: of.to_score(step) for step in wanted}
    turns = sum((of.turns(step, MIN_ROUNDS) + of.turns(step, MAX_ROUNDS)) / 2 for step in wanted)
    end = 60.0 * len(missing) + sum(scoring.values()) + turns + module.AT_THE_END * row
    assert len(missing) >= 3 and of.seconds_left() == pytest.approx(end)
    for step in missing:
        for seconds in (0.0, 30.0):
            compression.so_far[step] = seconds
            assert of.seconds_left() == pytest.approx(end - compression.now[0] - seconds)
        compression.so_far[step] = 90.0  # it takes longer, and a training says how long
        compression.told[of.folder / step.folder] = 7.0
        assert of.seconds_left() == pytest.approx(end - compression.now[0] - 60 + 7)
        compression.so_far.clear()
        compression.made.add(step.folder)
        compression.now[0] += 60.0
        assert of.seconds_left() == pytest.approx(end - compression.now[0])
    of.clock = Clock(10.0, now=lambda: 0.0)
    assert of.seconds_left() == 10.0


def test_last_round_by_rows(compression):
    """A folder that is scored takes the turns of its own rows, one that is not those of the mean."""
    of, (original, candidate, *_) = compression.of, [step for step in compression.steps.values() if step.scored]
    slow = of.turns(candidate, MIN_ROUNDS)
    of.rows[original.folder] = (of.reference,)
    of.rows[candidate.folder] = (fast,) = (scored("fast", 0.9, times=8.0, engine="onnxruntime"),)
    assert of.turns(candidate, MIN_ROUNDS) == pytest.approx(turns_of_a_row(fast, of.scorer.timing.rows))
    assert of.turns(candidate, MIN_ROUNDS) < slow / 2


def test_usual_rounds():
    """Small networks stop between the fewest and the most rounds, those that take longer by the end of the time at the
    latest, large ones have the fewest."""
    assert usual_seconds(lambda rounds: 2.0 + 3.5 * rounds) == 2.0 + 3.5 * (MIN_ROUNDS + MAX_ROUNDS) / 2
    assert usual_seconds(lambda rounds: 2.0 + 12.0 * rounds) == (2.0 + 12.0 * MIN_ROUNDS + MAX_SECONDS) / 2
    assert usual_seconds(lambda rounds: 2.0 + 60.0 * rounds) == 2.0 + 60.0 * MIN_ROUNDS


def test_side_by_side_and_while_scoring(compression):
    of, steps = compression.of, list(compression.steps.values())
    alone = of.seconds_left()
    of.pool.size = 2
    assert of.seconds_left() == pytest.approx(alone - 60.0 * (len(steps) - 1) / 2)
    of.pool.size = 1
    of.tick = lambda: None
    with of.spending(8.0):
        compression.now[0] += 5.0
        assert of.seconds_left() == pytest.approx(alone - 5.0)
        compression.now[0] += 95.0  # it takes longer than expected
        assert of.seconds_left() == pytest.approx(alone - 8.0)
    with pytest.raises(UserError), of.spending(8.0):  # a scoring that fails
        raise UserError("damaged")
    assert of.seconds_left() == pytest.approx(alone)
    of.lost[steps[-1].folder] = RuntimeError()
    assert of.seconds_left() < alone


def test_what_could_not_be_scored_takes_no_more_time(compression):
    of, step = compression.of, next(step for step in reversed(compression.steps.values()) if step.scored)
    compression.made.update(compression.steps)
    before = of.seconds_left()
    of.failures[step.folder] = (Failure(step.name, "", "damaged"),)
    turns = (of.turns(step, MIN_ROUNDS) + of.turns(step, MAX_ROUNDS)) / 2
    assert of.seconds_left() == pytest.approx(before - of.to_score(step) - turns)


def test_what_is_made_scored_and_timed_is_counted(compression, monkeypatch):
    """A bar that is full while half of the time is to come says nothing; and it names what goes on."""
    of, (original, *others) = compression.of, list(compression.steps.values())
    of.pool.tells = False
    of.bar = console.Progress("compress", 1, "steps", console.ProgressSink())
    scored_steps = [step for step in compression.steps.values() if step.scored]

    def shown():
        of.tick()
        return of.bar.done, of.bar.total, of.bar.about

    total = len(compression.steps) + len(scored_steps) + 1
    assert shown() == (1, total, "")
    of.rows[original.folder] = (of.reference,)
    compression.so_far[others[0]] = 1.0
    assert shown() == (2, total, f"making {others[0].folder}")
    of.lost[others[-1].folder] = RuntimeError()
    assert shown()[1] == total - 1 - others[-1].scored
    of.last_round = object()
    assert shown()[0] == 3
