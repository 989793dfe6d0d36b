"""How fast each choice runs an export on this machine, for "auto": known from export.json or the cache, or timed now.

1. `known_speeds`, `usual_speeds`, `measured_speeds`: where the figures come from. What was timed after the export is
   kept in the cache, since the export may be read-only or shared.
2. `measure` has them timed in a process of its own (python -m nlpctl.engines.speeds REQUEST), because an engine may
   abort it, and because its end frees the memory of the slower engines. The process writes JSON lines: {"trying": NAME}
   before each choice is loaded, {"failed": {NAME: reason}}, and at the end {"rows_per_second": {NAME: {SIZE: ...}},
   "others": SHARE} (models/engine_speeds.py).
3. `time_choices` times them: in that process, or in `nlpctl export`, which has run all of them already.

`nlpctl bench` and `nlpctl compress` time each candidate in a process of its own: inference/timed_process.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import nlpctl  # noqa: F401  before paddle
from nlpctl.checksums import sha256_of_text
from nlpctl.config.recipe_of import recipe_of
from nlpctl.engines.choice import Choice, open_choice, runnable_here
from nlpctl.models.engine_speeds import BUSY, Conditions, EngineSpeeds
from nlpctl.models.export_folder import ExportManifest, read_checked_manifest, read_manifest
from nlpctl.runtime.cache import cache_folder
from nlpctl.runtime.device import known_driver
from nlpctl.runtime.machine import Contention, cpu_info, physical_cores
from nlpctl.runtime.process import ProcessSetup, import_paddle
from nlpctl.runtime.versions import ENGINES, installed_version
from nlpctl.runtime.worker import how_ended, run_python

SIZES = (1, 8, 32, 64)  # batch sizes that are timed; speeds between them are interpolated
LIMIT = 20.0  # most seconds to time an export's engines, besides the import of Paddle
MARGIN = 100.0  # more seconds, for that import and for a slow engine, before the measuring process is killed
ROWS = 128  # synthetic rows
SECONDS = 0.1  # seconds per choice and batch size on average, after one warm-up round; at least one round
NICE = 10  # of a process that works in the background

Run = Callable[[Any], Any]

# Where nothing was timed: rows per second of MiniLM on an EPYC with two threads (docs/benchmarks.md), by batch size.
_USUAL = {
    ("paddle", "fp16"): {1: 400.0, 64: 1600.0},  # on cards; a guess
    ("paddle", "int8"): {1: 361.0, 8: 1152.0, 32: 1441.0, 64: 1445.0},
    ("paddle", "bf16"): {1: 298.0, 8: 909.0, 32: 1128.0, 64: 1068.0},
    ("onnxruntime", "int8"): {1: 513.0, 8: 974.0, 32: 1106.0, 64: 952.0},
    ("paddle", "fp32"): {1: 238.0, 8: 535.0, 32: 635.0, 64: 594.0},
    ("onnxruntime", "fp16"): {1: 400.0, 64: 1600.0},  # on cards; a guess
    ("onnxruntime", "fp32"): {1: 357.0, 8: 517.0, 32: 545.0, 64: 481.0},
}


# -- 1. where the figures come from ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KnownSpeeds:
    """Speeds, and where they come from, in words: "2 threads, timed at export"."""

    speeds: EngineSpeeds
    origin: str

    @property
    def origin_and_load(self) -> str:
        """Where they come from, and how busy the machine was, in words."""
        return ", ".join(filter(None, (self.origin, self.speeds.busy)))


def conditions(setup: ProcessSetup) -> Conditions:
    """The conditions of this machine with the device and the threads of `setup`."""
    cpu = cpu_info()
    versions = {name: version for name in ENGINES if (version := installed_version(name))}
    processor = " ".join(filter(None, (cpu.vendor, cpu.model)))
    if setup.device != "cpu":
        processor += f", {_card(int(setup.device.partition(':')[2] or 0))}"
    return Conditions(processor, cpu.instruction_sets, setup.device, setup.threads, versions, physical_cores())


def _card(number: int) -> str:
    """The name of a card, by the driver."""
    names = known_driver(os.environ).names
    return names[number] if number < len(names) else "unknown card"


def known_speeds(
    folder: Path, manifest: ExportManifest, choices: Sequence[Choice], setup: ProcessSetup
) -> KnownSpeeds | None:
    """The speeds of `choices` under the conditions of this process, from the export or the cache; None: not timed yet.

    Figures of the export count if every choice was timed or failed. Those of the cache always do, so that timing is not
    repeated where its time is too short for all. Of both, those for which the machine was less busy.
    """
    here, known = conditions(setup), []
    if manifest.speeds is not None and manifest.speeds.conditions == here and _covers(manifest.speeds, choices):
        known.append(KnownSpeeds(manifest.speeds, _timed(here, "at export")))
    if not known or known[0].speeds.busy:
        kept = _read(_cache_file(folder, choices, here))
        known += [] if kept is None else [KnownSpeeds(kept, _timed(here, "earlier"))]
    return min(known, key=lambda each: each.speeds.others, default=None)


def usual_speeds(manifest: ExportManifest, choices: Sequence[Choice], setup: ProcessSetup) -> KnownSpeeds:
    """What can be expected where nothing was timed: the exporting machine's speeds, else those of another network."""
    here = conditions(setup)
    if manifest.speeds is not None and _has_some(manifest.speeds, choices):
        there = manifest.speeds.conditions
        if there == here:
            return KnownSpeeds(manifest.speeds, _timed(here, "at export, where the time was too short for all"))
        if here.device == "cpu" and replace(there, threads=here.threads) == here:
            threads = f"{there.threads_text}, not {here.threads}"
            return KnownSpeeds(manifest.speeds, f"not timed here yet, but at export with {threads}")
        return KnownSpeeds(manifest.speeds, f"not timed here yet, but on {there}")
    usual = {each.name: _USUAL.get((each.engine, each.precision), {}) for each in choices}
    return KnownSpeeds(EngineSpeeds(here, usual), "not timed here yet; another network made")


def measured_speeds(
    folder: Path, choices: Sequence[Choice], setup: ProcessSetup, *, gently: bool = False
) -> KnownSpeeds:
    """The speeds of `choices`, measured now, and kept unless the machine was less busy earlier; never fails.

    `gently`: in the background of other work.
    """
    here = conditions(setup)
    speeds = measure(
        BenchmarkRequest(str(folder), tuple(each.name for each in choices), setup.device, setup.threads, gently=gently),
        here,
    )
    file = _cache_file(folder, choices, here)
    earlier = _read(file)
    if _has_some(speeds, choices) and (earlier is None or speeds.others <= max(earlier.others, BUSY)):
        with contextlib.suppress(OSError):  # a cache that cannot be written costs only time
            replace(speeds, export=str(folder)).save(file)
    return KnownSpeeds(speeds, _timed(here, "now"))


def _timed(here: Conditions, how: str) -> str:
    return ", ".join(filter(None, (here.threads_text, f"timed {how}")))


def _covers(speeds: EngineSpeeds, choices: Sequence[Choice]) -> bool:
    """Whether every choice was timed or failed, and one was timed."""
    known = {name for name, by_size in speeds.rows_per_second.items() if by_size} | set(speeds.failed)
    return _has_some(speeds, choices) and all(each.name in known for each in choices)


def _has_some(speeds: EngineSpeeds, choices: Sequence[Choice]) -> bool:
    return any(speeds.rows_per_second.get(each.name) for each in choices)


def _cache_file(folder: Path, choices: Sequence[Choice], here: Conditions) -> Path:
    """The cache file, named by everything that speed depends on: graphs, processor, threads, engines."""
    sums = read_checked_manifest(folder).sha256
    machine = {name: value for name, value in asdict(here).items() if name != "cores"}
    key = [EngineSpeeds.FORMAT, [[each.name, [sums[name] for name in each.graph.files]] for each in choices], machine]
    digest = sha256_of_text(json.dumps(key))
    return cache_folder(os.environ) / "nlpctl" / "engines" / f"{digest[:32]}.json"


def _read(file: Path) -> EngineSpeeds | None:
    """The cached speeds; None if there are none, or the file is damaged."""
    speeds = EngineSpeeds.load_if_valid(file)
    return None if speeds is None or not speeds.rows_per_second else replace(speeds, export=None)


# -- 2. timed in a process of its own ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class BenchmarkRequest:
    """What the measuring process is asked for. `gently`: it gives way to other processes."""

    folder: str
    names: tuple[str, ...]
    device: str
    threads: int
    seconds: float = LIMIT
    gently: bool = False


def measure(request: BenchmarkRequest, here: Conditions) -> EngineSpeeds:
    """Time the choices in a separate process. A choice that crashes or blocks it is recorded in `failed`; the others
    continue."""
    failed: dict[str, str] = {}
    while True:
        left = [name for name in request.names if name not in failed]
        words = {**asdict(request), "names": left}
        done = run_python("-m", "nlpctl.engines.speeds", json.dumps(words), seconds=request.seconds + MARGIN)
        speeds: dict[str, dict[int, float]] = {}
        trying, others = "", 0.0
        for line in done.output.splitlines():
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                trying = event.get("trying", trying)
                failed |= event.get("failed", {})
                speeds |= event.get("rows_per_second", {})
                others = event.get("others", others)
        if speeds or done.code == 0 or not trying or trying in failed:
            # JSON has texts for the sizes.
            by_name = {name: {int(size): speed for size, speed in by_size.items()} for name, by_size in speeds.items()}
            return EngineSpeeds(here, by_name, failed, others)
        # The process died or hung while loading `trying`: the others are measured in a new process without it.
        failed[trying] = how_ended(done.code) if done.code is not None else done.failure


def main(argv: Sequence[str]) -> None:
    """Time the choices of the BenchmarkRequest in argv[0], JSON, and print the events that `measure` reads."""
    values = json.loads(argv[0])
    request = BenchmarkRequest(**{**values, "names": tuple(values["names"])})
    if request.gently:
        os.nice(NICE)
    folder, setup = Path(request.folder), ProcessSetup(request.device, request.threads, rank=0, world_size=1)
    from nlpctl.engines.samples import synthetic_rows, timing_batches

    if any(name.startswith("paddle ") for name in request.names):
        import_paddle(setup)
    task, encoder, examples = synthetic_rows(folder, recipe_of(folder), ROWS)
    batches = timing_batches(task, encoder, examples, SIZES)
    result = time_choices(
        folder,
        read_manifest(folder),
        request.names,
        setup,
        batches,
        request.seconds,
        lambda name: _report({"trying": name}),
    )
    _report({"failed": result.failed})
    _report({"rows_per_second": result.rows_per_second, "others": result.others})


def _report(event: Mapping[str, Any]) -> None:
    print(json.dumps(event), flush=True)


# -- 3. the timing itself ----------------------------------------------------------------------------------------------


def time_choices(
    folder: Path,
    manifest: ExportManifest,
    names: Sequence[str],
    setup: ProcessSetup,
    batches: Mapping[int, Sequence[Any]],
    seconds: float,
    trying: Callable[[str], None] = lambda name: None,
) -> EngineSpeeds:
    """The speeds of the choices and the reasons of those that failed; never raises.

    After `seconds` the choices and the batch sizes that are left, the largest, are not timed: they are in neither.
    `trying` hears what is opened next.
    """
    until = time.monotonic() + seconds
    known = {choice.name: choice for choice in runnable_here(manifest, setup)}
    runs: dict[str, Run] = {}
    failed: dict[str, str] = {}
    smallest = batches[min(batches)][-1]
    for name in names:
        if runs and time.monotonic() > until:
            break
        trying(name)
        try:
            run = open_choice(folder, manifest, known[name], setup, max(batches)).outputs
            run(smallest)
            runs[name] = run
        except Exception as error:
            failed[name] = reason_of(error)
    speeds_by_size: dict[str, dict[int, float]] = {name: {} for name in runs}
    contention = Contention(setup.threads)
    for size, given in sorted(batches.items()):
        rows = sum(len(next(iter(batch.values()))) for batch in given)
        best = _best_rounds(runs, given, until, failed)
        if not best:
            break
        for name, taken in best.items():
            speeds_by_size[name][size] = rows / taken
    speeds = {name: by_size for name, by_size in speeds_by_size.items() if by_size and name not in failed}
    return EngineSpeeds(conditions(setup), speeds, failed, round(contention.share(), 3))


def _best_rounds(
    runs: dict[str, Run], batches: Sequence[Any], until: float, failed: dict[str, str]
) -> dict[str, float]:
    """Seconds of the best round of each choice, in alternating rounds, so that other load affects all of them alike.

    Nothing if the time is over before each had a round. A choice that fails is moved from `runs` to `failed`.
    """
    best: dict[str, float] = {}
    spent, warm = 0.0, False
    while spent < SECONDS * len(runs):
        for name, run in list(runs.items()):
            started = time.perf_counter()
            try:
                for batch in batches:
                    run(batch)
                    if time.monotonic() > until:
                        return best if len(best) == len(runs) else {}
            except Exception as error:
                failed[name] = reason_of(error)
                del runs[name]
                continue
            if warm:
                taken = time.perf_counter() - started
                best[name] = min(best.get(name, taken), taken)
                spent += taken
        warm = True
    return {name: taken for name, taken in best.items() if name in runs}


def reason_of(error: Exception) -> str:
    """Why an engine failed, in a line: engines raise what they like."""
    return " ".join(str(error).split())[:200] or type(error).__name__


if __name__ == "__main__":
    main(sys.argv[1:])
