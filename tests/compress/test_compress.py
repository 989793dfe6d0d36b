"""The course of a compression: what is made and scored in which order, with stand-ins for both."""

from __future__ import annotations

import dataclasses
import re
import shutil
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from scored import rounds_of, scored

from nlpctl.cli.compress import show
from nlpctl.compress import compress, steps, timing
from nlpctl.compress.costs import Clock
from nlpctl.compress.plan import CompressionPlan, CompressRequest, parse_strategy
from nlpctl.compress.refusals import refuse_output, warn_unread
from nlpctl.compress.scores import Failure, Metric, Scored
from nlpctl.compress.steps import TimeIsUp
from nlpctl.compress.timing import LastRound, Timing
from nlpctl.config.load import Override, load_recipe
from nlpctl.errors import RunFailed, UserError
from nlpctl.export.strategies import Step
from nlpctl.files import write_json_atomic
from nlpctl.outputs import inputs_noted
from nlpctl.runtime import worker_pool
from nlpctl.runtime.process import ProcessSetup
from nlpctl.runtime.ray_cluster import UnfitNode
from nlpctl.runtime.worker import NoRoom, WorkerLost
from nlpctl.runtime.worker_slots import WorkerSlots

SETUP = ProcessSetup("cpu", threads=1, rank=0, world_size=1)
STRATEGY = "dynabert+ort-dynamic,ort-dynamic,ptq"
SECONDS = 60.0  # of a training of one epoch
TRAINED = re.compile(r"-epochs-[\d.]+")  # the smaller form of a training
TABLE = {  # what is made is worth: score, times
    "original": (0.880, 1.0),
    "original+ort-dynamic": (0.879, 2.0),
    "original+ptq-avg-32x16": (0.850, 3.0),
    "width-0.75": (0.878, 1.3),
    "width-0.75+ort-dynamic": (0.877, 2.5),
}

NOTHING_PLANNED = CompressionPlan(source="m", sha256={}, data={}, networks={}, settings={})


class Process:
    """A process of a worker, in which a bench makes steps."""

    name = "a process"
    alive = True

    def __init__(self, bench: Bench):
        self.bench, self.step = bench, None

    def start(self) -> None:
        return None

    def ask(self, request, where, hint, seconds, callback) -> None:
        _, (self.step, _) = request
        self.bench.make(self.step, seconds)

    def end(self, interrupt: bool = False) -> None:
        if interrupt and self.step is not None:
            self.bench.interrupted(self.step)


class Bench:
    """Makes and scores in the place of processes. `breaks`: folders that cannot be made."""

    def __init__(self, folder: Path, breaks: tuple[str, ...] = ()):
        self.now = 0.0
        self.folder = folder
        self.breaks = breaks
        self.made: list[str] = []
        self.scored: list[str] = []
        self.metric = Metric("accuracy")
        self.timing = Timing()
        self.rounds: list[LastRound] = []

    def __call__(self, *_, **__):
        return self

    def process(self, *_, **__) -> Process:
        """What makes steps in the place of a process, for `WorkerSlots`."""
        return Process(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def make(self, step: Step, seconds: float | None = None) -> None:
        self.made.append(step.folder)
        self.now += SECONDS * dict(step.settings).get("training.num_train_epochs", 1.0) if step.trains else 10.0
        if step.folder in self.breaks:
            raise UserError("cannot be made", step.folder, "do something else")
        folder = self.folder / step.folder
        folder.mkdir(parents=True)
        if step.is_network:
            (folder / "model").mkdir()
            # renamed into place, as runs write it: with two workers the other thread may be reading it
            write_json_atomic(folder / "manifest.json", {"format": 1, "state": "finished"})

    def interrupted(self, step: Step) -> None:
        """The process that makes `step` was interrupted."""

    def reference(self):
        return self._row("original")

    def score(self, folder: Path) -> Scored:
        if TRAINED.sub("", folder.name) not in TABLE:
            raise UserError("not an export", str(folder))
        self.now += 1.0
        self.scored.append(f"{folder.parent.name}/{folder.name}")
        return Scored((self._row(folder.name),))

    def on_test(self, row):
        return None

    def release(self) -> None:
        return None

    def stored_round(self, field):
        names = {row.name for row in field.rows}
        return next((last for last in self.rounds if names == set(last.rounds[0])), None)

    def last_round(self, field):
        self.now += field.seconds(self.timing.rows)
        self.rounds.append(rounds_of(field.rows, {}, {}))
        return self.rounds[-1]

    def _row(self, name: str):
        score, times = TABLE[TRAINED.sub("", name)]
        return scored(name, score, times, seconds=1.0, folder="/where/it/was/made")


@pytest.fixture
def compression(tmp_path, monkeypatch):
    """A compression into tmp_path, with its bench."""

    def make(strategy: str = STRATEGY, budget: float | None = None, breaks: tuple[str, ...] = (), workers: int = 1):
        (tmp_path / "train.tsv").write_text("text\tlabel\n" + "a\tx\nb\ty\n" * 1500)
        (tmp_path / "recipe.yaml").write_text("task: sequence_classification\ndata: {train: train.tsv}\n")
        recipe = load_recipe(tmp_path / "recipe.yaml", (), "apply")
        section = dataclasses.replace(recipe.compression, strategy=strategy, algo_list=("avg",))
        recipe = dataclasses.replace(recipe, compression=section)
        bench = Bench(tmp_path, breaks)
        best: list[str] = []
        monkeypatch.setattr(compress, "Scorer", bench)
        monkeypatch.setattr(timing, "physical_cores", lambda: 1)  # budgets are tight
        for module in (steps, worker_pool):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: bench.now))
        monkeypatch.setattr(worker_pool, "_AGAIN", 0.01)
        monkeypatch.setattr(compress, "write_best", lambda row, folder: best.append(row.candidate))
        monkeypatch.setattr(compress, "write_reports", lambda *_: None)
        monkeypatch.setattr(compress, "refuse_graphs", lambda *_: {})  # nothing here has a graph
        request = CompressRequest(recipe, "model", parse_strategy(strategy), tmp_path)
        clock = Clock(budget, lambda: bench.now)
        slots = WorkerSlots((recipe.runtime,) * workers, False, float(workers), bench.process)
        call = partial(compress._make_and_choose, request, SETUP, clock, slots)
        return SimpleNamespace(run=call, bench=bench, best=best)

    return make


def test_cheap_ones_first_and_every_export_is_scored(compression, tmp_path):
    found = compression()
    result = found.run()
    assert found.bench.made == [
        "exports/original",
        "candidates/original+ort-dynamic",
        "candidates/original+ptq-avg-32x16",
        "networks/width-0.75",
        "exports/width-0.75",
        "candidates/width-0.75+ort-dynamic",
    ]
    assert found.bench.scored == [name for name in found.bench.made if not name.startswith("networks")]
    assert {row.candidate for row in result.rows} == set(TABLE) and not result.failures
    assert result.best.candidate == "width-0.75+ort-dynamic"
    assert result.best.folder == str(tmp_path / "candidates" / "width-0.75+ort-dynamic")
    assert found.best == ["original", "original+ort-dynamic", "width-0.75+ort-dynamic"]  # always the best so far


@pytest.mark.parametrize(
    ("flags", "steps"), [(("num_train_epochs",), -1), (("num_train_epochs", "max_steps"), 1), ((), 120)]
)
def test_epochs_of_a_flag_go_before_the_steps_of_the_run(tmp_path, flags, steps):
    (tmp_path / "recipe.yaml").write_text("task: sequence_classification\ntraining: {max_steps: 120}\n")
    overrides = [Override(f"training.{name}", "1", f"--{name}") for name in flags]
    recipe = compress._by_epochs(load_recipe(tmp_path / "recipe.yaml", overrides, "apply"))
    assert (recipe.training.max_steps, recipe.training.num_train_epochs) == (steps, 1.0)


def test_two_are_made_side_by_side_and_scored_while_none_is_made(compression, monkeypatch):
    alone = compression().run()
    for kind in ("networks", "exports", "candidates"):
        shutil.rmtree(alone.folder / kind)
    found = compression(workers=2)
    bench, make, active = found.bench, found.bench.make, set()
    together = threading.Barrier(2, timeout=60)

    def watched(step: Step, seconds: float | None = None) -> None:
        active.add(step.folder)
        if step.folder.startswith("candidates/original"):  # both have begun before one ends
            together.wait()
        make(step, seconds)
        active.remove(step.folder)

    score = bench.score
    monkeypatch.setattr(bench, "make", watched)
    monkeypatch.setattr(bench, "score", lambda folder: score(folder) if not active else pytest.fail(str(active)))
    result = found.run()
    assert {row.name for row in result.rows} == {row.name for row in alone.rows} and not result.failures
    assert len(bench.made) == len(set(bench.made)) == 6
    assert bench.made.index("networks/width-0.75") < bench.made.index("exports/width-0.75")


def test_a_budget_is_of_the_clock_and_leaves_time_to_score_one_by_one(compression):
    """Of two trainings side by side, each takes twice as long; the scoring of both has to fit behind them."""
    found = compression(budget=70.0, workers=2)
    result = found.run()
    assert not any(name.startswith("networks") for name in found.bench.made) and found.bench.now <= 70.0
    assert {failure.name for failure in result.failures} >= {"width-0.75", "width-0.75+ort-dynamic"}


class Gone:
    """The worker of a candidate is lost so often, and then there is no room for another one so often."""

    def __init__(self, make, losses: int, waits: int):
        self.make, self.errors = make, [WorkerLost("its node is gone")] * losses + [NoRoom("no room")] * waits

    def __call__(self, step: Step, seconds: float | None = None) -> None:
        if step.name == "original+ort-dynamic" and self.errors:
            raise self.errors.pop(0)
        self.make(step, seconds)


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_lost_with_its_node_is_made_again(compression, monkeypatch, capsys, workers):
    found = compression("ort-dynamic", workers=workers)
    monkeypatch.setattr(found.bench, "make", Gone(found.bench.make, 2, 1))
    result = found.run()
    assert not result.failures and "original+ort-dynamic" in {row.candidate for row in result.rows}
    told = capsys.readouterr().err
    assert told.count("its node is gone; another worker makes it") == 2 and "no room; it is asked for again" in told


def test_what_is_lost_three_times_is_given_up(compression, monkeypatch):
    found = compression("ort-dynamic,ptq")
    monkeypatch.setattr(found.bench, "make", Gone(found.bench.make, 3, 0))
    (failure,) = found.run().failures
    assert failure.name == "original+ort-dynamic" and "its node is gone" in failure.reason


def test_a_node_that_does_not_see_the_folder_ends_all(compression, monkeypatch):
    found = compression()

    def refuse(step: Step, seconds: float | None = None) -> None:
        raise UnfitNode("node n does not see it", "/here", "share it")

    monkeypatch.setattr(found.bench, "make", refuse)
    with pytest.raises(UserError, match="/here: node n does not see it"):
        found.run()


def test_an_error_ends_what_is_made_beside_it(compression, monkeypatch):
    found, begun, ended = compression("ort-dynamic,ptq", workers=2), threading.Event(), threading.Event()
    make = found.bench.make

    def waits(step: Step, seconds: float | None = None) -> None:
        if "ptq" in step.name:
            begun.set()
            assert ended.wait(60)
            raise KeyboardInterrupt
        if "ort" in step.name:
            assert begun.wait(60)
            raise ZeroDivisionError  # none of nlpctl's
        make(step, seconds)

    monkeypatch.setattr(found.bench, "make", waits)
    monkeypatch.setattr(found.bench, "interrupted", lambda step: ended.set() if "ptq" in step.name else None)
    with pytest.raises(ZeroDivisionError):
        found.run()
    assert ended.is_set()


def test_reports_on_the_way_name_what_is_not_made_yet(compression, monkeypatch, capsys):
    found, told = compression(), []
    note = {"original+ptq-avg-32x16", "original+ort-dynamic", "width-0.75", "width-0.75+ort-dynamic"}
    monkeypatch.setattr(compress, "write_reports", lambda result, *_: told.append(result.failures))
    found.run()
    assert [{each.name for each in failures} for failures in told[:2]] == [note, note - {"original+ort-dynamic"}]
    assert all("run the same command again" in each.reason for each in told[0]) and told[-1] == ()
    said = capsys.readouterr().err
    assert "making candidates/original+ptq-avg-32x16: 8 bits for Paddle Inference, calibrated" in said


def test_what_is_there_is_scored_before_the_best_is_written(compression, tmp_path):
    compression().run()
    again = compression()
    (tmp_path / "train.tsv").unlink()  # nothing is trained, so that its rows are not counted
    assert again.run().best.candidate == "width-0.75+ort-dynamic"
    assert not again.bench.made and again.best == ["width-0.75+ort-dynamic"]


@pytest.mark.parametrize(
    ("held", "calibrated", "again", "kept"),
    [
        ("original+ort-dynamic", False, "ort-dynamic", None),
        ("original+ort-dynamic", True, "ort-dynamic", None),
        ("original+ort-dynamic", False, STRATEGY, None),
        ("original+ort-dynamic", True, STRATEGY, "original+ort-dynamic"),
        ("width-0.75+ort-dynamic", False, "ort-dynamic", "width-0.75+ort-dynamic"),  # deleted by `runs clean`
        ("width-0.75+ort-dynamic", False, STRATEGY, "width-0.75+ort-dynamic"),
    ],
)
def test_nothing_is_lost_of_an_earlier_best(compression, tmp_path, monkeypatch, capsys, held, calibrated, again, kept):
    compression("ort-dynamic").run()
    found, folder = compression(again), tmp_path / "best"
    folder.mkdir()
    (folder / "held").write_text(held)
    written = []

    def holds(best: Path, row) -> bool:
        return (best / "held").read_text() == row.candidate

    def write(row, best: Path) -> None:
        written.append(row.candidate)
        best.mkdir(exist_ok=True)
        (best / "held").write_text(row.candidate)

    monkeypatch.setattr(compress, "holds", holds)
    monkeypatch.setattr(
        compress, "is_given_by", lambda best, rows: any(holds(best, row) for row in rows) and not calibrated
    )
    def report(result, *_) -> None:  # what a command that is interrupted now leaves
        assert (folder / "held").read_text() == result.best.candidate

    monkeypatch.setattr(compress, "write_best", write)
    monkeypatch.setattr(compress, "write_reports", report)
    best = found.run().best.candidate
    assert "original" not in written and (best in written) == (best != held or kept == held)
    aside = list(tmp_path.glob("best-before-*/held"))
    assert [file.read_text() for file in aside] == ([] if kept is None else [kept])
    assert ("best-before-1 now" in capsys.readouterr().err) == (kept is not None)


def test_what_fails_costs_only_what_needs_it(compression):
    found = compression(breaks=("networks/width-0.75",))
    result = found.run()
    assert {row.candidate for row in result.rows} == {name for name in TABLE if "width" not in name}
    reasons = {failure.name: failure.reason for failure in result.failures}
    assert set(reasons) == {"width-0.75", "width-0.75+ort-dynamic"}
    assert "cannot be made" in reasons["width-0.75"] and "could not be made" in reasons["width-0.75+ort-dynamic"]


def test_all_that_was_asked_for_fails(compression):
    found = compression("dynabert+ort-dynamic", breaks=("networks/width-0.75",))
    result = found.run()
    assert isinstance(result.failed, UserError) and "cannot be made" in str(result.failed)
    assert found.best == ["original"] and {each.name for each in result.failures} >= {"width-0.75"}


@pytest.mark.parametrize("damaged", [True, False])
def test_what_is_there_and_gives_no_row_is_no_success(compression, monkeypatch, damaged):
    """Damaged, or an engine that fails: another strategy of the same command makes it a success."""
    compression("ort-dynamic").run()
    for strategy, failed in (("ort-dynamic", True), ("ort-dynamic,ptq", False)):
        found = compression(strategy)
        score = found.bench.score

        def broken(folder: Path, score=score) -> Scored:
            if folder.name != "original+ort-dynamic":
                return score(folder)
            if damaged:
                raise UserError("was altered", str(folder))
            return Scored((), (Failure(folder.name, "onnxruntime int8 (dynamic)", "it died"),))

        monkeypatch.setattr(found.bench, "score", broken)
        result = found.run()
        assert "original+ort-dynamic" in {failure.candidate for failure in result.failures}
        told = "was altered" if damaged else "every engine failed with it"
        assert (told in str(result.failed)) if failed else (result.failed is None)


def in_two_engines(bench: Bench, monkeypatch) -> None:
    """The uncompressed network is scored in both engines, so that there is something to compare."""
    both = [bench.reference(), dataclasses.replace(bench.reference(), engine="onnxruntime")]
    alone = bench.score
    monkeypatch.setattr(bench, "score", lambda path: Scored(tuple(both)) if path.name == "original" else alone(path))


@pytest.mark.parametrize(("strategy", "rounds"), [("ort-dynamic", 0), ("ort-dynamic,bf16", 1)])
def test_no_last_round_of_the_uncompressed_network_where_nothing_is_left(compression, monkeypatch, strategy, rounds):
    """With bf16 its engines and precisions are what was asked for, so that nothing failed."""
    found = compression(strategy, breaks=("candidates/original+ort-dynamic",))
    in_two_engines(found.bench, monkeypatch)
    result = found.run()
    assert len(found.bench.rounds) == rounds and (result.failed is None) == bool(rounds)


def test_what_the_graph_refuses_is_not_made(compression, monkeypatch):
    found = compression("ptq+embeddings,ort-dynamic")
    refused = {"candidates/original+ptq-avg-32x16": UserError("nothing can be int8", "model")}
    monkeypatch.setattr(compress, "refuse_graphs", lambda *_: refused)
    result = found.run()
    assert found.bench.made == ["exports/original", "candidates/original+ort-dynamic"] and result.failed is None
    assert {failure.name for failure in result.failures} == {
        "original+ptq-avg-32x16", "original+ptq-avg-32x16+embeddings"
    }  # fmt: skip


def test_the_table_of_a_command_that_made_nothing_is_shown(compression, capsys):
    result = compression("ort-dynamic", breaks=("candidates/original+ort-dynamic",)).run()
    with pytest.raises(UserError, match="cannot be made"):
        show(result, json=False)
    told = capsys.readouterr()
    assert told.out.startswith(f"Take {result.folder / 'best'}: the original in ")
    assert "All candidates" not in told.out and "--details" in told.err
    with pytest.raises(UserError, match="cannot be made"):
        show(result, json=False, details=True)
    assert "All candidates:" in capsys.readouterr().out


def test_what_is_not_finished_in_time_is_no_failure_of_the_command(compression, monkeypatch):
    found = compression("dynabert+ort-dynamic")
    make = found.bench.make

    def late(step: Step, seconds: float | None = None) -> None:
        if step.is_network:
            raise TimeIsUp("was stopped after 60 s", step.name)
        make(step)

    monkeypatch.setattr(found.bench, "make", late)
    result = found.run()
    assert result.best.candidate == "original"
    assert [failure.name for failure in result.failures] == ["width-0.75", "width-0.75+ort-dynamic"]
    assert result.failures[1].reason == "needs exports/width-0.75, which was not finished in time"


def test_without_the_original_nothing_can_be_compared(compression):
    found = compression(breaks=("exports/original",))
    with pytest.raises(UserError, match="cannot be made"):
        found.run()
    assert found.bench.made == ["exports/original"] and not found.best


def test_the_last_round_is_of_all_candidates_and_not_repeated(compression):
    found = compression()
    result = found.run()
    (last,) = found.bench.rounds
    assert set(last.rounds[0]) == {row.name for row in result.rows} and result.speeds.rounds == 2
    again = compression("ort-dynamic")
    again.bench.rounds.append(last)
    assert again.run().speeds == result.speeds and len(again.bench.rounds) == 1  # of earlier commands too
    more = compression("ort-dynamic,ptq", budget=1.0)
    assert more.run().speeds.rounds == 0  # no time, and none was kept


def test_a_last_round_that_fails_keeps_the_table(compression, monkeypatch, capsys):
    found = compression("ort-dynamic")

    def dies(field):
        raise RunFailed("its process ended")

    monkeypatch.setattr(found.bench, "last_round", dies)
    assert found.run().speeds.rounds == 0
    assert "the last round: its process ended" in capsys.readouterr().err


def test_a_budget_leaves_out_what_does_not_fit(compression, capsys):
    """Calibrations take 20 s and more, trainings longer, also in their smallest form."""
    found = compression(budget=70.0)
    result = found.run()
    assert [name for name in found.bench.made if name.startswith("networks")] == []
    assert result.best.candidate == "original+ort-dynamic"
    untried = {"original+ptq-avg-32x16", "width-0.75", "width-0.75+ort-dynamic"}
    assert {failure.name for failure in result.failures} == untried
    assert all("not tried: it would take about" in failure.reason for failure in result.failures)
    assert "no time for original+ptq-avg-32x16, width-0.75" in capsys.readouterr().err


def test_a_budget_is_used_for_smaller_forms(compression, capsys):
    """The training takes a minute, and there are two for all: so a part of it is made, and its graphs."""
    found = compression("dynabert+ort-dynamic", budget=150.0)
    result = found.run()
    networks = [name for name in found.bench.made if name.startswith("networks")]
    assert networks and all(name.startswith("networks/width-0.75-epochs-") for name in networks)
    form, share = networks[0].partition("/")[2], networks[0].rpartition("-")[2]
    assert f"{form}+ort-dynamic" in {row.candidate for row in result.rows}
    told = capsys.readouterr().err
    assert f"left for it: {form} in its place, with training.num_train_epochs: {share} in place of 1" in told
    reasons = {failure.name: failure.reason for failure in result.failures}
    assert f"; {form} was made in its place, with training" in reasons["width-0.75"]
    assert result.speeds.rounds and found.bench.now <= 150.0  # the last round fits too
    again = compression("dynabert+ort-dynamic", budget=150.0)
    again.run()
    assert again.bench.made and not set(again.bench.made) & set(found.bench.made)  # larger ones, as far as they fit


def test_a_damaged_folder_is_told(compression, tmp_path):
    (tmp_path / "candidates" / "something").mkdir(parents=True)
    result = compression().run()
    assert [(each.name, each.reason.splitlines()[0].endswith("not an export")) for each in result.failures] == [
        ("something", True)
    ]


@pytest.mark.parametrize(
    ("useless", "told"),
    [(TABLE, "original"), (("original+ort-dynamic",), "original+ort-dynamic")],
)
def test_that_a_model_is_of_no_use_is_told_once(compression, monkeypatch, capsys, useless, told):
    """Of the uncompressed one, or of what compression made useless."""

    def row(self: Bench, name: str):
        return scored(name, *TABLE[name], report={"rows": 200, "accuracy": 0.0 if name in useless else 0.8})

    monkeypatch.setattr(Bench, "_row", row)
    compression("ort-dynamic,ptq").run()
    err = capsys.readouterr().err
    assert err.count("of no use") == 1 and f"warning: {told}, paddle fp32 is of no use on dev" in err


def test_what_a_killed_command_left_is_no_candidate(compression, tmp_path):
    (tmp_path / "candidates" / ".qat-x1y2").mkdir(parents=True)
    assert not compression().run().failures


def test_a_step_that_makes_nothing_ends_nothing(compression, monkeypatch):
    found = compression("ort-dynamic,ptq")
    make = found.bench.make
    monkeypatch.setattr(found.bench, "make", lambda step, seconds=None: "ort" in step.name or make(step))
    result = found.run()
    assert [failure.name for failure in result.failures] == ["original+ort-dynamic"]
    assert result.best.candidate == "original"


def test_one_command_at_a_time(tmp_path):
    with compress._locked_folder(tmp_path / "out", False, NOTHING_PLANNED):
        with pytest.raises(UserError, match="another command is writing to this folder"):
            with compress._locked_folder(tmp_path / "out", False, NOTHING_PLANNED):
                raise RunFailed("never")
    with compress._locked_folder(tmp_path / "out", False, NOTHING_PLANNED):
        assert (tmp_path / "out" / "plan.json").is_file()


def test_overwriting_leaves_what_is_not_ours(tmp_path):
    for name in ("networks/width-0.5", "best", "another-run"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "times.json").write_text("{}")
    with compress._locked_folder(tmp_path, True, NOTHING_PLANNED):
        assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"another-run"}
        assert not (tmp_path / "times.json").exists()


def test_what_is_to_be_read_is_not_deleted(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "plan.json").write_text("{}")
    (tmp_path / "recipe.yaml").write_text(
        "task: sequence_classification\ndistillation: {student: out/student.yaml}\n"
    )
    recipe = load_recipe(tmp_path / "recipe.yaml", (), "apply")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "ernie"}')
    for name in ("model_state.pdparams", "vocab.txt"):
        (tmp_path / "model" / name).write_text("something")
    with inputs_noted(), pytest.raises(UserError, match="this holds an input"):
        refuse_output(CompressRequest(recipe, str(tmp_path / "model"), (), tmp_path / "out", overwrite=True))


def test_a_flag_that_no_strategy_reads_is_told(tmp_path, capsys):
    file = tmp_path / "recipe.yaml"
    file.write_text("task: sequence_classification\ncompression: {algo_list: [avg]}\n")
    flags = [Override("compression.width_mult_list", "1/2", "--width_mult_list")]
    flags += [Override("compression.batch_num_list", "4", "--batch_num_list")]
    recipe = load_recipe(file, flags, "apply")
    warn_unread(CompressRequest(recipe, "model", parse_strategy("ort-static,distill")))
    told = capsys.readouterr().err
    assert "--width_mult_list has no effect: it applies to dynabert" in told
    assert told.count("has no effect") == 1  # a recipe's own settings may be there for other strategies
