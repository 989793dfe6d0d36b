"""The speed of each choice for an export on this machine: from export.json, from the cache, or measured.

Measuring takes a process of its own, because an engine may abort it, and because its end frees the memory of the slower
engines. What was measured after the export is kept in the cache, since the export may be read-only or shared.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from nlpctl.checksums import sha256_of_text
from nlpctl.engines.choice import Choice
from nlpctl.models.engine_speeds import BUSY, Conditions, EngineSpeeds
from nlpctl.models.export_folder import ExportManifest, read_checked_manifest
from nlpctl.runtime.cache import cache_folder
from nlpctl.runtime.device import ask_driver
from nlpctl.runtime.machine import cpu_info, physical_cores
from nlpctl.runtime.process import ProcessSetup
from nlpctl.runtime.versions import ENGINES, installed_version
from nlpctl.runtime.worker import how_ended, run_python

SIZES = (1, 8, 32, 64)  # batch sizes that are timed; speeds between them are interpolated
LIMIT = 20.0  # most seconds to time an export's engines, besides the import of Paddle
MARGIN = 100.0  # more seconds, for that import and for a slow engine, before the measuring process is killed

# Where nothing was timed: rows per second of MiniLM on an EPYC with two threads (docs/benchmarks.md), by batch size.
_USUAL = {
    ("paddle", "fp16"): {1: 400.0, 64: 1600.0},  # on cards; a guess
    ("paddle", "int8"): {1: 361.0, 8: 1152.0, 32: 1441.0, 64: 1445.0},
    ("paddle", "bf16"): {1: 298.0, 8: 909.0, 32: 1128.0, 64: 1068.0},
    ("onnxruntime", "int8"): {1: 513.0, 8: 974.0, 32: 1106.0, 64: 952.0},
    ("paddle", "fp32"): {1: 238.0, 8: 535.0, 32: 635.0, 64: 594.0},
    ("onnxruntime", "fp32"): {1: 357.0, 8: 517.0, 32: 545.0, 64: 481.0},
}


@dataclass(frozen=True)
class Known:
    """Speeds, and where they come from, in words: "2 threads, timed at export"."""

    speeds: EngineSpeeds
    origin: str

    @property
    def origin_and_load(self) -> str:
        """Where they come from, and how busy the machine was, in words."""
        return ", ".join(filter(None, (self.origin, self.speeds.busy)))


@dataclass(frozen=True)
class BenchmarkRequest:
    """What the measuring process is asked for. `gently`: it gives way to other processes."""

    folder: str
    names: tuple[str, ...]
    device: str
    threads: int
    seconds: float = LIMIT
    gently: bool = False


def conditions(setup: ProcessSetup) -> Conditions:
    """The conditions of this machine with the device and the threads of `setup`."""
    cpu = cpu_info()
    versions = {name: version for name in ENGINES if (version := installed_version(name))}
    processor = " ".join(filter(None, (cpu.vendor, cpu.model)))
    if setup.device != "cpu":
        processor += f", {_card(int(setup.device.partition(':')[2] or 0))}"
    return Conditions(processor, cpu.instruction_sets, setup.device, setup.threads, versions, physical_cores())


@functools.cache
def _card(number: int) -> str:
    """The name of a card, by the driver."""
    names = ask_driver(os.environ).names
    return names[number] if number < len(names) else "unknown card"


def known_speeds(
    folder: Path, manifest: ExportManifest, choices: Sequence[Choice], setup: ProcessSetup
) -> Known | None:
    """The speeds of `choices` under the conditions of this process, from the export or the cache; None: not timed yet.

    Figures of the export count if every choice was timed or failed. Those of the cache always do, so that timing is not
    repeated where its time is too short for all. Of both, those for which the machine was less busy.
    """
    here, known = conditions(setup), []
    if manifest.speeds is not None and manifest.speeds.conditions == here and _covers(manifest.speeds, choices):
        known.append(Known(manifest.speeds, _timed(here, "at export")))
    if not known or known[0].speeds.busy:
        kept = _read(_cache_file(folder, choices, here))
        known += [] if kept is None else [Known(kept, _timed(here, "earlier"))]
    return min(known, key=lambda each: each.speeds.others, default=None)


def usual_speeds(manifest: ExportManifest, choices: Sequence[Choice], setup: ProcessSetup) -> Known:
    """What can be expected where nothing was timed: the exporting machine's speeds, else those of another network."""
    here = conditions(setup)
    if manifest.speeds is not None and _has_some(manifest.speeds, choices):
        there = manifest.speeds.conditions
        if there == here:
            return Known(manifest.speeds, _timed(here, "at export, where the time was too short for all"))
        if here.device == "cpu" and replace(there, threads=here.threads) == here:
            threads = f"{there.threads_told}, not {here.threads}"
            return Known(manifest.speeds, f"not timed here yet, but at export with {threads}")
        return Known(manifest.speeds, f"not timed here yet, but on {there}")
    usual = {each.name: _USUAL.get((each.engine, each.precision), {}) for each in choices}
    return Known(EngineSpeeds(here, usual), "not timed here yet; another network made")


def measured_speeds(folder: Path, choices: Sequence[Choice], setup: ProcessSetup, *, gently: bool = False) -> Known:
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
    return Known(speeds, _timed(here, "now"))


def measure(request: BenchmarkRequest, here: Conditions) -> EngineSpeeds:
    """Time the choices in a separate process. A choice that crashes or blocks it is recorded in `failed`; the others
    continue."""
    failed: dict[str, str] = {}
    while True:
        left = [name for name in request.names if name not in failed]
        words = {**asdict(request), "names": left}
        done = run_python("-m", "nlpctl.engines.measure", json.dumps(words), seconds=request.seconds + MARGIN)
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


def _timed(here: Conditions, how: str) -> str:
    return ", ".join(filter(None, (here.threads_told, f"timed {how}")))


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
