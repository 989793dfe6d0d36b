"""Runs an untrusted program in a separate process, with limits on time and memory.

Paddle's executor trusts its programs. An endless loop, an allocation of a terabyte or an access out of bounds
would end the process that runs it. `main` runs in that process: it reads a folder with the program and its arrays, and
writes the outputs there.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nlpctl.formats.program import Program
from nlpctl.runtime.worker import run_python
from nlpctl.static_graph.operators import OPERATORS

SECONDS = 600.0
MEMORY = 8 << 30  # bytes beside four times the arrays
_JOB = "job.json"


class CannotRun(Exception):
    """`str()` says why a program cannot be run, or what became of it."""


def run_program(
    program: Program,
    variables: Mapping[str, np.ndarray],
    feeds: Mapping[str, np.ndarray],
    fetches: Sequence[str],
    seconds: float = SECONDS,
    memory: int = MEMORY,
) -> dict[str, np.ndarray]:
    """The variables `fetches` that the program computes from `feeds`, with `variables` as its parameters.

    A training program is cut down to what the fetches need. Raises CannotRun: it has operators that are not run, or
    that this Paddle lacks; it takes more than `seconds`, or more `memory` than that and four times its arrays.
    """
    with tempfile.TemporaryDirectory(prefix="nlpctl-") as name:
        folder = Path(name)
        (folder / "program").write_bytes(program.serialized)
        job = {
            "variables": _write(folder, "variable", variables),
            "feeds": _write(folder, "feed", feeds),
            "fetches": list(fetches),
            "prune": not program.fetches,
            "memory": memory + 4 * sum(array.nbytes for array in (*variables.values(), *feeds.values())),
        }
        (folder / _JOB).write_text(json.dumps(job), encoding="utf-8")
        code = f"from nlpctl.static_graph.run_program import main; main({str(folder)!r})"
        answer = run_python("-c", code, seconds=seconds)
        if answer.failure:
            raise CannotRun(f"the process that ran it failed: {answer.failure[:200]}")
        # The last line only: operators and libraries may print before it.
        reason = json.loads(answer.output.splitlines()[-1])
        if reason:
            raise CannotRun(reason)
        return {fetch: np.load(folder / f"output-{index}.npy") for index, fetch in enumerate(fetches)}


def _write(folder: Path, what: str, arrays: Mapping[str, np.ndarray]) -> list[str]:
    """Write each array to WHAT-INDEX.npy; the names in the order of the indexes."""
    for index, array in enumerate(arrays.values()):
        np.save(folder / f"{what}-{index}.npy", array)
    return list(arrays)


def _read(folder: Path, what: str, names: Sequence[str]) -> dict[str, np.ndarray]:
    return {name: np.load(folder / f"{what}-{index}.npy") for index, name in enumerate(names)}


def main(name: str) -> None:
    """The process: run the job in the folder `name`, write output-N.npy, print why it was not possible or ""."""
    folder = Path(name)
    job = json.loads((folder / _JOB).read_text(encoding="utf-8"))
    import paddle

    _limit(job["memory"])
    paddle.enable_static()
    try:
        results = _execute(folder, job)
    except CannotRun as error:
        print(json.dumps(str(error)))
    except Exception as error:  # what Paddle raises for an operator or attribute that it has no more
        print(json.dumps(f"Paddle cannot run the program ({_reason(error)})"))
    else:
        for index, result in enumerate(results):
            np.save(folder / f"output-{index}.npy", np.asarray(result))
        print(json.dumps(""))


def _limit(memory: int) -> None:
    """Allocations beyond `memory`, counted from here, fail. Systems that know no such limit have none."""
    try:
        import resource
    except ImportError:
        return
    # RLIMIT_AS counts address space, of which Paddle and its libraries map several GB before any tensor.
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    resource.setrlimit(resource.RLIMIT_AS, (memory + pages * resource.getpagesize(),) * 2)
    # A crash here is expected of damaged programs; a core file of gigabytes is not wanted.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _execute(folder: Path, job: Mapping[str, Any]) -> list[Any]:
    import paddle

    graph = paddle.static.deserialize_program((folder / "program").read_bytes())
    block = graph.global_block()
    feeds = _read(folder, "feed", job["feeds"])
    for feed in feeds:
        block.var(feed).stop_gradient = True
    fetches = [block.var(name) for name in job["fetches"]]
    if job["prune"]:
        # clone(for_test=True) also switches dropout and batch norm to inference.
        graph = graph.clone(for_test=True)._prune(fetches)
    _check_operators(graph)
    scope, place = paddle.static.Scope(), paddle.CPUPlace()
    for name, array in _read(folder, "variable", job["variables"]).items():
        scope.var(name).get_tensor().set(array, place)
    with paddle.static.scope_guard(scope):
        return paddle.static.Executor(place).run(graph, feed=feeds, fetch_list=fetches, return_numpy=True)


def _check_operators(graph: Any) -> None:
    """Checks all blocks, since everything in the graph runs, needed or not. Raises CannotRun."""
    unknown = sorted({op.type for block in graph.blocks for op in block.ops} - OPERATORS - {"feed", "fetch"})
    if unknown:
        raise CannotRun(f"it has operators that nlpctl does not run: {', '.join(unknown)}")


def _reason(error: Exception) -> str:
    """The last line of an error of Paddle's that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if "Error:" in line] or lines or [type(error).__name__]
    return told[-1][:200]
