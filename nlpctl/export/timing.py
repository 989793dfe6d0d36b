"""Time the graphs of an export in every engine and precision of this machine, for "auto"."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nlpctl import console
from nlpctl.inference.auto import choices
from nlpctl.inference.measure import time_choices
from nlpctl.models.engine_speeds import EngineSpeeds
from nlpctl.models.export_folder import ExportManifest
from nlpctl.runtime.process import ProcessSetup


def time_graphs(
    folder: Path, manifest: ExportManifest, setup: ProcessSetup, batches: Mapping[int, Sequence[Any]], seconds: float
) -> EngineSpeeds | None:
    """Their speeds with `batches` by batch size, within `seconds`; None if there is no choice between engines.

    In this process, which has run all of them already: that they do not crash is known.
    """
    names = [choice.name for choice in choices(manifest, setup)]
    if len(names) < 2 or manifest.chosen is not None:
        return None
    console.note(f"timing {len(names)} ways to run the export, for auto (--timing 0 leaves it out)")
    found = time_choices(folder, manifest, names, setup, batches, seconds)
    _tell(found, tuple(batches))
    if found.busy:
        told = f"the engines were timed {found.busy}, so auto may take a slower one"
        console.warn(f"{told}; export again when the machine is idle (`nlpctl serve` times them anew by itself)")
    late = [name for name in names if name not in found.rows_per_second and name not in found.failed]
    if late:
        console.warn(f"{', '.join(late)} not timed: the time for timing was over ({seconds:g} s); see --timing")
    return found


def _tell(speeds: EngineSpeeds, sizes: Sequence[int]) -> None:
    """A note on the fastest at each batch size, and on what failed."""
    fastest: dict[str, list[str]] = defaultdict(list)
    for size in sizes:
        timed = {name: by_size[size] for name, by_size in speeds.rows_per_second.items() if size in by_size}
        if timed:
            name = max(timed, key=timed.__getitem__)
            fastest[name].append(f"{size} ({timed[name]:,.0f} rows/s)")
    for name, told in fastest.items():
        console.note(f"{name} is the fastest at batch size {', '.join(told)}")
    for name, reason in speeds.failed.items():
        console.warn(f"{name} was not timed: {reason}")
