"""For scripts/chaos.py: how two files differ in what they say; times, speeds and process numbers do not count."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from check_resume import different_values

CLOCKS = {"time", "seconds", "left", "started", "ended", "pid", "resumed", "command", "train_runtime", "eval_runtime"}
CLOCKS |= {"eval_samples_per_second", "eval_steps_per_second", "interval_samples_per_second", "interval_runtime"}
CLOCKS |= {"interval_steps_per_second", "train_samples_per_second", "train_steps_per_second", "source", "output_dir"}
# The first is found out by training steps: a run killed after the last one has lost it. The order in the second varies.
CLOCKS |= {"unreached", "model.pdiparams.info", "speeds"}
# Of a compression: what is measured, and what is chosen or named by it.
CLOCKS |= {"load_seconds", "peak_mb", "rounds", "last_rounds", "conditions", "indistinct", "baselines", "key"}
CLOCKS |= {"alternatives"}


def readable(file: Path) -> bool:
    with contextlib.suppress(ValueError):
        json.loads(file.read_text(encoding="utf-8"))
        return True
    return False


def without_clocks(value: Any) -> Any:
    """`value` without what differs: times, speeds, process numbers."""
    if isinstance(value, dict):
        return {name: without_clocks(each) for name, each in value.items() if name not in CLOCKS}
    return [without_clocks(each) for each in value] if isinstance(value, list) else value


def differences(reference: Path, file: Path) -> list[str]:
    """How two files differ in what they say; times do not count."""
    if file.suffix in (".pdparams", ".pdopt"):
        return different_values(reference, file)
    if file.name in READ:
        one, other = (READ[file.name](each) for each in (reference, file))
        return [] if one == other else ["differs"]
    if file.suffix == ".json":
        one, other = (without_clocks(json.loads(each.read_text(encoding="utf-8"))) for each in (reference, file))
        return [] if one == other else [f"differs in {', '.join(sorted(changed(one, other)))}"]
    return [] if reference.read_bytes() == file.read_bytes() else ["differs"]


def changed(one: Any, other: Any, place: str = "") -> set[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        names = one.keys() | other.keys()
        return {at for name in names for at in changed(one.get(name), other.get(name), f"{place}.{name}")}
    return set() if one == other else {place or "all"}


def _events(file: Path) -> Any:
    events = [without_clocks(json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]
    return [event for event in events if event["event"] != "save"]  # a run that is stopped saves once more


READ: dict[str, Callable[[Path], Any]] = {  # files that hold times outside JSON
    "events.jsonl": _events,
    # The sum of a checkpoint's state, which holds times, is compared by what the state says.
    "checksums.json": lambda file: {**json.loads(file.read_text()), "trainer_state.json": None},
    # Of times.json: what a killed process has timed alone is in no file, and needed for nothing but the time left.
    **dict.fromkeys(("report.html", "report.md", "model.pdiparams.info", "times.json"), lambda file: None),
}
