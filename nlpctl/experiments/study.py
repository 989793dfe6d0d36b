"""The trials of a sweep as Optuna keeps them, in a journal that a killed process leaves readable.

What a trial tries depends on the seed of the recipe, its number, and the trials that had ended before. So a sweep in
one process that is killed and resumed makes the same trials as one that never was.
"""

from __future__ import annotations

import functools
import math
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from nlpctl.config.keys import find_key
from nlpctl.config.recipe_text import value_text
from nlpctl.config.schema import Axis, SearchSection, Steps
from nlpctl.config.search_space import applies, grid, ordered
from nlpctl.errors import UserError
from nlpctl.extras import install
from nlpctl.files import writing

FINISHED, PRUNED, FAILED, RUNNING = "finished", "pruned", "failed", "running"
_NAME, _REASON, _SECONDS = "sweep", "reason", "seconds"
_FOREST = 0  # seed of the trees that importance is computed with


@dataclass(frozen=True)
class Trial:
    """What a trial tries: values by key; a key whose condition does not hold is not there."""

    number: int
    values: Mapping[str, Any]

    @property
    def name(self) -> str:
        return f"{self.number:03d}"


@dataclass(frozen=True)
class TrialRecord(Trial):
    """A trial and what is known of it. `state`: FINISHED, PRUNED, FAILED or RUNNING. `score`: of a finished one."""

    state: str
    score: float | None
    seconds: float | None
    reason: str


def require_optuna() -> None:
    """UserError if it is not installed."""
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        message = f"a sweep needs Optuna, which cannot be imported ({error})"
        raise UserError(message, "nlpctl sweep", install("optuna")) from None


class Study:
    """The trials of a sweep. One process at a time opens the journal, but any of its threads may call."""

    def __init__(self, section: SearchSection, journal: Path, seed: int, greater_is_better: bool):
        import optuna
        from optuna.pruners import MedianPruner, NopPruner
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._section, self._seed, self._lock = section, seed, threading.RLock()
        direction: Any = "maximize" if greater_is_better else "minimize"
        hint = "free disk space, then call the same command with @[resume=true]"
        with writing(journal, hint), _readable(journal), _quiet():
            _mend(journal)
            lock: Any = _FolderIsLocked()  # has the methods of optuna's locks
            storage = JournalStorage(JournalFileBackend(str(journal), lock_obj=lock))
            pruner = MedianPruner() if section.pruner == "median" else NopPruner()
            self._study = optuna.create_study(
                storage=storage, pruner=pruner, study_name=_NAME, direction=direction, load_if_exists=True
            )
        self._trials: dict[int, Any] = {}

    def unfinished(self) -> list[Trial]:
        """The trials that a killed or interrupted call left."""
        with self._lock, _quiet():
            running = [trial for trial in self._study.get_trials() if not trial.state.is_finished()]
            return [self._drawn(trial.number, functools.partial(self._again, trial)) for trial in running]

    def draw(self) -> Trial:
        """A new trial."""
        with self._lock, _quiet():
            return self._drawn(len(self._study.get_trials(deepcopy=False)), self._study.ask)

    def _again(self, trial: Any) -> Any:
        from optuna.trial import Trial as OptunaTrial

        return OptunaTrial(self._study, trial._trial_id)

    def _drawn(self, number: int, begin: Callable[[], Any]) -> Trial:
        """The trial `number`. What a killed call has written of its values stays."""
        from optuna.samplers import PartialFixedSampler, RandomSampler

        values = self._values(number)
        # The values are drawn elsewhere first: a sampler that goes on in the middle of a trial would draw others.
        fixed = {name: _to_optuna(self._section.space[name], value) for name, value in values.items()}
        self._study.sampler = PartialFixedSampler(fixed, RandomSampler(self._seed_of(number)))
        trial = begin()
        assert trial.number == number
        self._trials[number] = trial
        return Trial(number, self._suggested(trial))

    def _values(self, number: int) -> dict[str, Any]:
        """What the sampler draws for a trial, after those before it."""
        import optuna
        from optuna.samplers import RandomSampler, TPESampler

        if self._section.sampler == "grid":
            return next(islice(grid(self._section.space), number, None))
        seed = self._seed_of(number)
        of_tpe = self._section.sampler == "tpe"
        sampler = TPESampler(seed=seed, constant_liar=True) if of_tpe else RandomSampler(seed=seed)
        copy = optuna.create_study(direction=self._study.direction, sampler=sampler)
        copy.add_trials(self._study.get_trials()[:number])
        return self._suggested(copy.ask())

    def _suggested(self, trial: Any) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, axis in ordered(self._section.space):
            if applies(axis, values):
                values[name] = _from_optuna(name, axis, _suggested(trial, name, axis))
        return values

    def _seed_of(self, number: int) -> int:
        import numpy as np

        return int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0])

    def worth_continuing(self, number: int, evaluation: int, score: float) -> bool:
        """Whether a trial that has `score` at this evaluation goes on; the pruner compares it with the others."""
        with self._lock, _quiet():
            reported = self._study.get_trials(deepcopy=False)[number].intermediate_values
            if reported and evaluation < max(reported):  # resumed from a checkpoint before: this was decided already
                return True
            if evaluation not in reported:
                self._trials[number].report(score, evaluation)
            return not self._trials[number].should_prune()

    def tell(
        self, number: int, state: str, score: float | None = None, seconds: float | None = None, reason: str = ""
    ) -> None:
        """How a trial ended. A finished one without a finite score has failed."""
        from optuna.trial import TrialState

        if state == FINISHED and (score is None or not math.isfinite(score)):
            state, reason = FAILED, f"its score on dev is {score}"
        states = {FINISHED: TrialState.COMPLETE, PRUNED: TrialState.PRUNED, FAILED: TrialState.FAIL}
        with self._lock, _quiet():
            trial = self._trials[number]
            for name, value in ((_REASON, reason), (_SECONDS, seconds)):
                trial.set_user_attr(name, value)
            self._study.tell(trial, score if state == FINISHED else None, state=states[state])

    def trials(self) -> list[TrialRecord]:
        """All trials, by their numbers."""
        from optuna.trial import TrialState

        states = {TrialState.COMPLETE: FINISHED, TrialState.PRUNED: PRUNED, TrialState.FAIL: FAILED}
        records = []
        with self._lock:
            for trial in self._study.get_trials(deepcopy=False):
                state, about = states.get(trial.state, RUNNING), trial.user_attrs
                axes = ((name, self._section.space[name]) for name in self._section.space if name in trial.params)
                values = {name: _from_optuna(name, axis, trial.params[name]) for name, axis in axes}
                score = trial.value if state == FINISHED else None
                records.append(
                    TrialRecord(trial.number, values, state, score, about.get(_SECONDS), about.get(_REASON, ""))
                )
        return records

    def importance(self) -> dict[str, float]:
        """The share of the variance of the scores that each key explains by itself or with others (fANOVA; Hutter et
        al., 2014), the largest first. Keys that only some finished trials have are left out; {}: too few trials."""
        from optuna.importance import FanovaImportanceEvaluator, get_param_importances

        finished = [record for record in self.trials() if record.state == FINISHED]
        if len({record.score for record in finished}) < 2:
            return {}
        varied = [
            name for name in self._section.space
            if all(name in record.values for record in finished)
            and len({str(record.values[name]) for record in finished}) > 1
        ]  # fmt: skip
        with self._lock, _quiet():
            evaluator = FanovaImportanceEvaluator(seed=_FOREST)
            shares = get_param_importances(self._study, evaluator=evaluator, params=varied) if varied else {}
        return {name: float(share) for name, share in shares.items()}


class _FolderIsLocked:
    """In place of Optuna's lock on the journal, which would outlive a killed process: the sweep's folder is locked."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


def _mend(journal: Path) -> None:
    """Take off the end of a line that a killed process or a full disk has cut: Optuna would append to it."""
    if journal.exists():
        whole = journal.read_bytes().rfind(b"\n") + 1
        os.truncate(journal, whole)


@contextmanager
def _readable(journal: Path) -> Iterator[None]:
    """UserError for what Optuna raises of a journal that something else has changed."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AssertionError) as error:
        message = f"the record of the trials cannot be read ({type(error).__name__}: {error})"
        raise UserError(message, str(journal), "restore the file, or begin again with @[overwrite=true]") from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Optuna's warnings of what is experimental or will change: users cannot act on them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="optuna")
        warnings.filterwarnings("ignore", message=".*(experimental|deprecated|Fixed parameter)")
        yield


# -- values ------------------------------------------------------------------------------------------------------


def _suggested(trial: Any, name: str, axis: Axis) -> Any:
    if axis.choices is not None:
        return trial.suggest_categorical(name, [_to_optuna(axis, value) for value in axis.choices])
    low, high = axis.ends
    if axis.whole:
        return trial.suggest_int(name, int(low), int(high), step=int(axis.step or 1), log=axis.log is not None)
    return trial.suggest_float(name, low, high, step=axis.step, log=axis.log is not None)


def _to_optuna(axis: Axis, value: Any) -> Any:
    """A value of the recipe as Optuna takes it: a list is none, but its text is."""
    if axis.choices is None or value is None or isinstance(value, str | int | float):
        return value
    return value_text(value)


def _from_optuna(name: str, axis: Axis, drawn: Any) -> Any:
    """What Optuna drew, as the recipe has it."""
    if axis.choices is not None:
        return next(value for value in axis.choices if _same(_to_optuna(axis, value), drawn))
    if isinstance(axis.points, Steps):  # Optuna's sums of steps give 0.30000000000000004
        return axis.points.nearest(drawn)
    key = find_key(name)
    return float(drawn) if key is not None and key.scalar is float else drawn


def _same(one: Any, other: Any) -> bool:
    return one == other and type(one) is type(other)
