"""The order in which candidates are tried, and what is thought to fit into the time."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from scored import scored

from nlpctl.compress.costs import (
    FINALISTS_PER_FOLDER,
    SAFETY,
    SCORED_PER_FOLDER,
    Clock,
    Costs,
    format_seconds,
    read_times,
    write_times,
)
from nlpctl.compress.plan import parse_strategy, plan_steps
from nlpctl.compress.schedule import CandidateOrder
from nlpctl.compress.scores import Metric
from nlpctl.compress.selection import Objective
from nlpctl.export.strategies import TRAINING_COST
from nlpctl.layout import CANDIDATES, EXPORTS

REFERENCE = scored("original", 0.880)
ROWS = {"dynabert": 10_000.0, "qat": 10_000.0, "distill": 10_000.0}


@pytest.fixture
def candidate_order():
    def make(strategy: str, widths=("3/4", "1/2"), **measured: float) -> CandidateOrder:
        names = ("algo_list", "batch_size_list", "batch_num_list")
        section = SimpleNamespace(**dict.fromkeys(names), width_mult_list=widths, prune_embeddings=False)
        steps = {step.folder: step for step in plan_steps(parse_strategy(strategy), section)}
        costs = Costs(500.0, dict(ROWS), 9.0, 4.0, measured)
        return CandidateOrder(steps, REFERENCE, Metric("accuracy"), Objective(max_drop=0.5), costs)

    return make


def order(
    candidate_order: CandidateOrder, *rows, made: set[str] = frozenset(), lost: set[str] = frozenset()
) -> list[str]:
    found = candidate_order.missing({"exports/original", *made}, set(lost), [REFERENCE, *rows])
    return [candidate.step.name for candidate in found]


def test_what_is_cheap_comes_first_and_trainings_by_width(candidate_order):
    found = order(candidate_order("dynabert+ptq,qat,ort-dynamic,ptq", widths=("1/2", "3/4")))
    assert found[:3] == ["original+ort-dynamic", "original+ptq-avg-32x16", "original+ptq-mse-32x16"]
    assert found[3] == "original+qat"  # the whole network is wider than both
    widths = [name for name in found if name in ("width-0.75", "width-0.5")]
    assert widths == ["width-0.75", "width-0.5"]


def test_what_paid_off_elsewhere_comes_before_what_did_not(candidate_order):
    candidate_order = candidate_order("dynabert+ptq,dynabert+ort-dynamic,ptq,ort-dynamic")
    rows = [
        scored("original+ort-dynamic", 0.879, times=1.5),
        scored("original+ptq-mse-32x16", 0.878, times=3.0),
        scored("original+ptq-avg-32x16", 0.860, times=3.0),  # two points lost
        scored("width-0.75", 0.879, times=1.3),
    ]
    made = {f"candidates/{row.candidate}" for row in rows[:3]} | {"networks/width-0.75", "exports/width-0.75"}
    found = order(candidate_order, *rows, made=made)
    assert found[:3] == ["width-0.75+ptq-mse-32x16", "width-0.75+ort-dynamic", "width-0.75+ptq-avg-32x16"]
    assert found[3] == "width-0.5+ptq-mse-32x16"


def test_a_narrower_network_than_one_that_lost_too_much_comes_last(candidate_order):
    candidate_order = candidate_order("dynabert+ort-dynamic,qat")
    made = {"networks/width-0.75", "exports/width-0.75"}
    assert order(candidate_order, scored("width-0.75", 0.87), made=made) == [
        "width-0.75+ort-dynamic",
        "original+qat",
        "width-0.5+ort-dynamic",
        "width-0.5",
    ]


def test_lost_folders_and_all_that_needs_them_are_no_options(candidate_order):
    assert order(candidate_order("dynabert+ort-dynamic,ort-dynamic"), lost={"networks/width-0.75"}) == [
        "original+ort-dynamic",
        "width-0.5+ort-dynamic",
        "width-0.5",
    ]


def test_the_time_of_an_option_is_that_of_all_it_needs(candidate_order):
    candidate_order = candidate_order("dynabert+ort-dynamic", ("3/4",), **{"export": 20.0, "ort-dynamic": 5.0})
    (first, second) = candidate_order.missing({"exports/original"}, set(), [REFERENCE])
    training = 10 + TRAINING_COST * 10_000 / 500
    steps = {candidate.step.name: candidate for candidate in (first, second)}
    assert [step.folder for step in steps["width-0.75+ort-dynamic"].missing] == [
        "networks/width-0.75",
        "exports/width-0.75",
        "candidates/width-0.75+ort-dynamic",
    ]
    exports = 20 + SCORED_PER_FOLDER[EXPORTS] * 9 + FINALISTS_PER_FOLDER[EXPORTS] * 4
    whole = training + exports + 5 + SCORED_PER_FOLDER[CANDIDATES] * 9 + FINALISTS_PER_FOLDER[CANDIDATES] * 4
    assert steps["width-0.75+ort-dynamic"].seconds == pytest.approx(SAFETY * whole)
    candidate_order.costs.measured["dynabert"] = 1000.0
    (candidate, _) = candidate_order.missing({"exports/original"}, set(), [REFERENCE])
    assert candidate.seconds > 1000 * SAFETY


def shrunk(candidate_order: CandidateOrder, seconds: float, *made: str) -> str | None:
    """The name of the smaller form that is taken, of trainings that are halved three times."""

    def forms(step):
        found = [step.in_form({"training.num_train_epochs": share}) for share in (0.5, 0.25, 0.125)]
        for form in found if step.trains else ():
            candidate_order.costs.rows_read[form.work] = 10_000 * form.settings[0][1]
        return found if step.trains else step.made_by.smaller(step, None, {})

    candidates = candidate_order.missing({"exports/original"}, set(), [REFERENCE])
    found = candidate_order.add_smaller_form(candidates, forms, lambda form: form.folder in made, seconds)
    return None if found is None else found[1].name


def test_what_is_too_long_is_made_smaller(candidate_order):
    """The training takes 170 s, its half 90, its quarter 50; the fp32 graphs and their scores 45."""
    found = candidate_order("dynabert+ort-dynamic", ("3/4",))
    assert shrunk(found, SAFETY * (50 + 45) + 1) == "width-0.75-epochs-0.25"
    steps = list(found.steps)
    assert steps[-3:] == [
        "networks/width-0.75-epochs-0.25",
        "exports/width-0.75-epochs-0.25",
        "candidates/width-0.75-epochs-0.25+ort-dynamic",
    ]
    assert found.steps[steps[-1]].needs == (steps[-2],) and found.steps[steps[-2]].needs == (steps[-3],)
    names = order(found)
    assert "width-0.75" in names and "width-0.75-epochs-0.25+ort-dynamic" in names
    assert shrunk(candidate_order("dynabert", ("3/4",)), SAFETY * 60) is None


def test_no_form_is_smaller_than_one_that_is_there(candidate_order):
    made = "networks/width-0.75-epochs-0.25"
    assert shrunk(candidate_order("dynabert", ("3/4",)), SAFETY * (50 + 45) + 1, made) is None
    assert shrunk(candidate_order("dynabert", ("3/4",)), SAFETY * (90 + 45) + 1, made) == "width-0.75-epochs-0.5"


def test_a_calibration_takes_fewer_batches(candidate_order):
    found = candidate_order("ptq+embeddings")
    found.costs.speed = 5.0
    assert shrunk(found, 400.0) == "original+ptq-avg-32x8"
    assert "candidates/original+ptq-avg-32x8+embeddings" in found.steps


def test_a_measured_training_corrects_the_estimate_of_others(candidate_order):
    found = candidate_order("dynabert", ("3/4",))
    (network,) = [step for step in found.steps.values() if step.trains]
    form = network.in_form({"training.num_train_epochs": 0.5})
    found.costs.rows_read[form.work] = 5_000.0
    assert found.costs.total(form) == pytest.approx(90)
    found.costs.learn(form, 45.0)
    assert found.costs.total(form) == 45.0 and found.costs.total(network) == pytest.approx(170 / 2)


def test_the_clock():
    now = iter([100.0, 130.0, 170.0])
    clock = Clock(60.0, lambda: next(now))
    assert (clock.left(), clock.left()) == (30.0, -10.0)
    assert Clock(None).left() is None


def test_times_are_kept(tmp_path):
    assert read_times(tmp_path) == {}
    write_times(tmp_path, {"export": 3.5})
    assert read_times(tmp_path) == {"export": 3.5}
    (tmp_path / "times.json").write_text("[1]")
    assert read_times(tmp_path) == {}
    assert [format_seconds(seconds) for seconds in (40.2, 99.0, 720.0)] == ["40 s", "99 s", "12 min"]
