"""How fast the engines run an export: the timing itself, and the process that does it for "auto".

    python -m nlpctl.engines.measure REQUEST

writes JSON lines: {"trying": NAME} before each choice is loaded, {"failed": {NAME: reason}}, and at the end
{"rows_per_second": {NAME: {SIZE: ...}}, "others": SHARE} (models/engine_speeds.py).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import nlpctl  # noqa: F401  before paddle
from nlpctl.config.recipe_of import recipe_of
from nlpctl.engines.speeds import SIZES, BenchmarkRequest, conditions
from nlpctl.models.engine_speeds import EngineSpeeds
from nlpctl.models.export_folder import ExportManifest, read_manifest
from nlpctl.runtime.machine import Contention
from nlpctl.runtime.process import ProcessSetup, quiet_import

ROWS = 128  # synthetic rows
SECONDS = 0.1  # seconds per choice and batch size on average, after one warm-up round; at least one round
NICE = 10  # of a process that works in the background

Run = Callable[[Any], Any]


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
    from nlpctl.engines.auto import choices, open_choice

    until = time.monotonic() + seconds
    known = {choice.name: choice for choice in choices(manifest, setup)}
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


def main(argv: Sequence[str]) -> None:
    """Time the choices of the BenchmarkRequest in argv[0], JSON, and print the events that `speeds.measure` reads."""
    values = json.loads(argv[0])
    request = BenchmarkRequest(**{**values, "names": tuple(values["names"])})
    if request.gently:
        os.nice(NICE)
    folder, setup = Path(request.folder), ProcessSetup(request.device, request.threads, rank=0, world_size=1)
    with quiet_import():
        import paddle

        from nlpctl.engines.samples import synthetic_rows, timing_batches
    paddle.set_device(request.device)
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


if __name__ == "__main__":
    main(sys.argv[1:])
