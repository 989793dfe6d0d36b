"""The process that times engines for "auto": python -m nlpctl.inference.measure ORDER PARENT.

Writes JSON lines: {"trying": NAME} before each choice is loaded, {"failed": {NAME: reason}}, and at the end
{"rows_per_second": {NAME: ...}}.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import nlpctl  # noqa: F401  before paddle
from nlpctl.config.recipe_of import recipe_of
from nlpctl.inference.speeds import Order
from nlpctl.models.export_folder import read_manifest
from nlpctl.runtime.process import ProcessSetup, quiet_import
from nlpctl.runtime.worker import die_with_parent

ROWS = 128  # synthetic rows; a larger batch size gives one batch
SECONDS = 0.5  # seconds per choice on average, after one warm-up round; at least one round


def main(argv: Sequence[str]) -> None:
    die_with_parent(int(argv[1]))
    words = json.loads(argv[0])
    order = Order(**{**words, "names": tuple(words["names"])})
    folder, setup = Path(order.folder), ProcessSetup(order.device, order.threads, rank=0, world_size=1)
    with quiet_import():
        import paddle

        from nlpctl.inference.auto import choices, open_choice
        from nlpctl.inference.samples import sample_batches
    paddle.set_device(order.device)
    manifest = read_manifest(folder)
    batches = sample_batches(folder, recipe_of(folder), order.batch_size, max(ROWS, order.batch_size))
    known = {choice.name: choice for choice in choices(manifest, setup)}
    runs = {}
    for name in order.names:
        _say({"trying": name})
        try:
            run = open_choice(folder, manifest, known[name], setup, order.batch_size).outputs
            for batch in batches:
                run(batch)
            runs[name] = run
        except Exception as error:
            _say({"failed": {name: " ".join(str(error).split())[:200] or type(error).__name__}})
    rows = sum(len(next(iter(batch.values()))) for batch in batches)
    _say({"rows_per_second": {name: rows / seconds for name, seconds in _times(runs, batches).items()}})


def _times(runs: Mapping[str, Any], batches: Sequence[Any]) -> dict[str, float]:
    """Seconds of the best round of each choice, in alternating rounds, so that other load affects all of them alike."""
    best = dict.fromkeys(runs, float("inf"))
    spent = dict.fromkeys(runs, 0.0)
    while sum(spent.values()) < SECONDS * len(runs):
        for name, run in runs.items():
            started = time.perf_counter()
            for batch in batches:
                run(batch)
            seconds = time.perf_counter() - started
            best[name] = min(best[name], seconds)
            spent[name] += seconds
    return best


def _say(event: Mapping[str, Any]) -> None:
    print(json.dumps(event), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
