"""Where the time of a training goes: waiting for data, computing, logging, evaluating, saving. Imports no Paddle."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from nlpctl.config.schema import Recipe
from nlpctl.report.language import Later, later, say

DATA, COMPUTE, LOG, EVALUATE, SAVE = "data", "compute", "log", "evaluate", "save"
TITLES: Mapping[str, Later] = {
    DATA: later("waiting for data"),
    COMPUTE: later("computing"),
    EVALUATE: later("evaluating on dev"),
    SAVE: later("saving checkpoints"),
    LOG: later("logging"),
}
SHORTEST = 20.0  # seconds: the shares of a shorter training say little, so nothing is advised
_Item = TypeVar("_Item")


class TimeShares:
    """Seconds per phase of the training loop. Whatever is not another phase is computing.

    On a GPU, computing includes the wait for its results, since every step reads its loss (docs/guards.md).
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter):
        self.seconds: dict[str, float] = dict.fromkeys(TITLES, 0.0)
        self.ended: dict[str, int] = dict.fromkeys(TITLES, 0)  # how often each phase ended
        self._whole: dict[str, float] = dict.fromkeys(TITLES, 0.0)  # what those took that ended
        self._clock = clock
        self._phases: list[str] = []  # the innermost last
        self._since = 0.0

    @contextmanager
    def measured(self) -> Iterator[None]:
        """The training loop."""
        self._since = self._clock()
        with self._phase(COMPUTE):
            yield

    @contextmanager
    def spent(self, phase: str) -> Iterator[None]:
        """The body belongs to `phase`, not to the phase around it; outside the loop nothing is counted."""
        if not self._phases:
            yield
            return
        with self._phase(phase):
            yield

    def of_steps(self) -> float:
        """Seconds of the training steps alone, until now: computing, and waiting for their data."""
        self._count()
        return self.seconds[DATA] + self.seconds[COMPUTE]

    def usual(self, phase: str) -> float | None:
        """Seconds of a phase, in the mean of those that ended; None before one has."""
        return self._whole[phase] / self.ended[phase] if self.ended[phase] else None

    def so_far(self, phase: str) -> float | None:
        """Seconds that a phase has taken which goes on now; None if none does."""
        self._count()
        return self.seconds[phase] - self._whole[phase] if phase in self._phases else None

    @contextmanager
    def _phase(self, phase: str) -> Iterator[None]:
        self._count()
        self._phases.append(phase)
        try:
            yield
        finally:
            self._count()
            self._phases.pop()
            self.ended[phase] += 1
            self._whole[phase] = self.seconds[phase]

    def _count(self) -> None:
        now = self._clock()
        if self._phases:
            self.seconds[self._phases[-1]] += now - self._since
        self._since = now

    def waiting(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """`items`; the time until each is there is waiting for data."""
        with self.spent(DATA):
            iterator = iter(items)
        while True:
            with self.spent(DATA):
                try:
                    item = next(iterator)
                except StopIteration:
                    return
            yield item


def summary(shares: Sequence[Mapping[str, float]], steps: int, before: Mapping[str, Any] | None) -> dict[str, Any]:
    """For the manifest: mean seconds per phase over the processes, `shares`, and the steps that took them.

    `before`: the summary of the run's earlier processes, which is added.
    """
    seconds = {name: sum(each[name] for each in shares) / len(shares) for name in TITLES}
    longest = max(each[DATA] for each in shares)
    if before is not None:
        seconds = {name: value + before["seconds"][name] for name, value in seconds.items()}
        longest, steps = longest + before["longest_wait"], steps + before["steps"]
    return {
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "longest_wait": round(longest, 3),  # for data, of one process: the others wait for it in turn
        "steps": steps,
    }


def rows_of(found: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    """The phase, its seconds and its share of all, as a table shows them."""
    total = total_of(found)
    return [(say(title), found["seconds"][name], found["seconds"][name] / total) for name, title in TITLES.items()]


def total_of(found: Mapping[str, Any]) -> float:
    """Seconds of the training loop."""
    return sum(found["seconds"].values()) or 1e-9


def is_sound(found: Any) -> bool:
    """Whether an entry of a manifest is a summary."""
    if not isinstance(found, dict) or not isinstance(found.get("seconds"), dict):
        return False
    figures = [*(found["seconds"].get(name) for name in TITLES), found.get("longest_wait"), found.get("steps")]
    return found["seconds"].keys() == TITLES.keys() and all(
        isinstance(figure, int | float) and not isinstance(figure, bool) and figure >= 0 for figure in figures
    )


# -- advice --------------------------------------------------------------------------------------


def advice(found: Mapping[str, Any], recipe: Recipe, device: str | None) -> list[str]:
    """What to change so that more of the time is computing; nothing for a short training, or if there is nothing."""
    total = total_of(found)
    if total < SHORTEST:
        return []
    shares = {name: seconds / total for name, seconds in found["seconds"].items()}
    shares[DATA] = max(shares[DATA], found["longest_wait"] / total)
    told = [tell(shares[name], recipe) for name, (least, tell) in _ADVICE.items() if shares[name] >= least]
    on_gpu = (device or "").startswith("gpu")
    return [*told, *([say(_GPU)] if on_gpu else [])]


def _about_data(share: float, recipe: Recipe) -> str:
    workers = recipe.training.dataloader_num_workers
    change = say("set training.dataloader_num_workers to {} (now {})", 2 * workers, workers) if workers else say(
        "set training.dataloader_num_workers: 2 (now 0), so that processes of their own read and tokenise"
    )  # fmt: skip
    return say("The network waited for data {:.0%} of the time: {}.", share, change)


def _about_evaluation(share: float, recipe: Recipe) -> str:
    less = _less_often(recipe.training.evaluation_strategy, recipe, "evaluation_strategy", "eval_steps")
    more = say("raise training.per_device_eval_batch_size, or score a part of dev (training.max_evaluate_steps)")
    return say("Evaluating took {:.0%} of the time: {}, {}.", share, less, more)


def _about_saving(share: float, recipe: Recipe) -> str:
    less = _less_often(recipe.training.save_strategy, recipe, "save_strategy", "save_steps")
    return say("Saving took {:.0%} of the time: {}, or write to a faster disk.", share, less)


def _less_often(now: str, recipe: Recipe, strategy: str, steps: str) -> str:
    """What to set so that an evaluation or a save comes less often than by the strategy of `now`: the keys of both,
    where the best model is looked for, since that compares what was evaluated and saved at once (config/checks.py)."""
    together, strategy, steps = recipe.training.load_best_model_at_end, f"training.{strategy}", f"training.{steps}"
    if now == "steps":
        return say("raise training.eval_steps and training.save_steps alike") if together else say("raise {}", steps)
    if together:
        return say(
            "set training.evaluation_strategy and training.save_strategy to steps, and training.eval_steps and "
            "training.save_steps to one number, larger than the steps of an epoch"
        )
    return say("set {} to steps, and {} to more than the steps of an epoch", strategy, steps)


def _about_logging(share: float, recipe: Recipe) -> str:
    now = recipe.training.logging_steps
    return say(
        "Logging took {:.0%} of the time: raise training.logging_steps (now {}), or report_to: none.", share, now
    )


# Phase -> the least share of the time about which something is said, and what.
_ADVICE: Mapping[str, tuple[float, Callable[[float, Recipe], str]]] = {
    DATA: (0.10, _about_data),
    EVALUATE: (0.30, _about_evaluation),
    SAVE: (0.15, _about_saving),
    LOG: (0.05, _about_logging),
}
_GPU = later(
    "nvidia-smi shows how busy the card is while it computes. A larger per_device_train_batch_size (then adjust "
    "learning_rate), fp16 or bf16, and longer batches of like length (data.length_grouped) raise that."
)
