"""The speed of each choice for an export on this machine: timed once, in a separate process, and cached.

The process is separate because an engine may abort it, and because its end frees the memory of the slower engines.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from nlpctl import console
from nlpctl.files import parse_json, read_json, write_json_atomic
from nlpctl.inference.choice import Choice
from nlpctl.layout import EXPORT_MANIFEST
from nlpctl.runtime.cache import cache_folder
from nlpctl.runtime.cpu import cpu_info
from nlpctl.runtime.process import ProcessSetup
from nlpctl.runtime.versions import ENGINES, installed_version
from nlpctl.runtime.worker import how_ended, run_python

FORMAT = 1


@dataclass(frozen=True)
class Speeds:
    """Rows per second by name of the choice, and the reasons of failed ones. `kept`: read from the cache."""

    rows_per_second: Mapping[str, float]
    failed: Mapping[str, str] = field(default_factory=dict)
    kept: bool = False


@dataclass(frozen=True)
class Order:
    """The order to the measuring process."""

    folder: str
    names: tuple[str, ...]
    batch_size: int
    device: str
    threads: int


def measured_speeds(folder: Path, found: Sequence[Choice], setup: ProcessSetup, batch_size: int) -> Speeds:
    """The speeds of `found` at `batch_size` rows, from the cache or measured now; never fails."""
    file = _cache_file(folder, found, setup, batch_size)
    kept = _read(file)
    if kept is not None:
        return kept
    console.note(f"auto: timing {len(found)} ways to run this export, once on this machine")
    speeds = measure(Order(str(folder), tuple(each.name for each in found), batch_size, setup.device, setup.threads))
    with contextlib.suppress(OSError):  # a cache that cannot be written costs only time
        content = {"rows_per_second": speeds.rows_per_second, "failed": speeds.failed}
        write_json_atomic(file, {"format": FORMAT, "export": str(folder), **content})
    return speeds


def measure(order: Order) -> Speeds:
    """Time the choices in a separate process. A choice that crashes it is recorded in `failed`; the others continue."""
    failed: dict[str, str] = {}
    while True:
        left = [name for name in order.names if name not in failed]
        words = {**asdict(order), "names": left}
        done = run_python("-m", "nlpctl.inference.measure", json.dumps(words), str(os.getpid()))
        trying, speeds = "", {}
        for line in done.output.splitlines():
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                trying = event.get("trying", trying)
                failed |= event.get("failed", {})
                speeds |= event.get("rows_per_second", {})
        if speeds or not trying or trying in failed:
            return Speeds(speeds, failed)
        # The process died while loading `trying`: the others are measured in a new process without it.
        failed[trying] = how_ended(done.code)


def _cache_file(folder: Path, found: Sequence[Choice], setup: ProcessSetup, batch_size: int) -> Path:
    """The cache file, named by everything that speed depends on: graphs, processor, threads, batch size, engines."""
    sums = read_json(folder / EXPORT_MANIFEST)["sha256"]
    key = [
        FORMAT,
        [[each.name, [sums[name] for name in each.graph.files]] for each in found],
        asdict(cpu_info()),
        [setup.device, setup.threads, batch_size],
        [installed_version(package) for package in ENGINES],
    ]
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()
    return cache_folder(os.environ) / "nlpctl" / "engines" / f"{digest[:32]}.json"


def _read(file: Path) -> Speeds | None:
    """The cached speeds; None if there are none, or the file is damaged."""
    try:
        content = parse_json(file.read_text(encoding="utf-8"))
        speeds = {str(name): float(value) for name, value in content["rows_per_second"].items()}
        failed = {str(name): str(value) for name, value in content["failed"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return Speeds(speeds, failed, kept=True) if speeds else None
