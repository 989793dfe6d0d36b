"""Verifies a conversion: runs the static program and the dygraph network on the same inputs and compares outputs.

A program is untrusted code. It runs in a separate process, restricted to operators that only compute
(formats/operators.py).
"""

from __future__ import annotations

import contextlib
import inspect
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from nlpctl.convert.graph import forward_part, leaves, needed_for
from nlpctl.convert.variables import StaticModel
from nlpctl.formats.operators import OPERATORS
from nlpctl.formats.program import Program
from nlpctl.models.weights import to_float32
from nlpctl.runtime.worker import run_python

TOLERANCE = 1e-5
ROWS, LENGTH = 3, 13  # lengths that are no width of a network, so that outputs are told apart by their shapes
_SEED = 7
NO_PROGRAM = "the source has no program to run"
# What inputs are called, in nlpctl's and PaddleNLP's exports and in the ERNIE and BERT of Paddle 1.x.
_NAMES: Mapping[str, tuple[str, ...]] = {
    "input_ids": ("input_ids", "src_ids", "src_id", "words", "word", "token_ids", "@HUB_input_ids"),
    "token_type_ids": ("token_type_ids", "sent_ids", "sentence_ids", "segment_ids"),
    "position_ids": ("position_ids", "pos_ids"),
    "task_type_ids": ("task_type_ids", "task_ids"),
    "attention_mask": ("attention_mask", "input_mask"),
}


@dataclass(frozen=True)
class Compared:
    """One output of the program.

    `difference`: the largest, absolute; of outputs beyond 10, which float32 rounds by more, in tenths of the largest.
    `of`: softmax or sigmoid, if the program's output is that of the network's; "" where both are the same.
    """

    output: str
    shape: tuple[int, ...]
    difference: float
    of: str = ""


@dataclass(frozen=True)
class Proof:
    """`possible`: whether both were run; where not, `reason` says why.

    `epsilon`: that of the program's layer norms, where the network's is another one: it was run with the program's.
    """

    possible: bool
    reason: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[Compared, ...] = ()
    epsilon: float | None = None

    @property
    def difference(self) -> float | None:
        """The largest of all; None if nothing was compared."""
        return max((each.difference for each in self.outputs), default=None)

    @property
    def holds(self) -> bool:
        """Whether it was made and every output agrees."""
        return self.possible and all(each.difference <= TOLERANCE for each in self.outputs)

    @property
    def fails(self) -> bool:
        return self.possible and not self.holds


def prove(source: StaticModel, network: Any) -> Proof:
    """Run the program of `source` and `network` on the same inputs, and compare their outputs.

    Where the two cannot be run or have no output in common, the Proof says why; nothing is raised.
    """
    program = source.program
    if program is None:
        return Proof(False, NO_PROGRAM)
    try:
        plan = _plan(program, source, network)
        theirs = _run_program(program, source, plan)
        epsilon = _other_epsilon(program, network)
        with _layer_norms(network, epsilon):
            ours = _run_network(network, plan)
    except CannotRun as error:
        return Proof(False, str(error))
    if program.fetches:
        compared = (_compare(name, array, ours) for name, array in theirs.items())
    else:  # what the program leaves unused holds the network's outputs, and others: a pooler's in a tagger
        compared = (_nearest(array, theirs) for array in ours)
    outputs = tuple(each for each in compared if each is not None)
    if not outputs:
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in theirs.items())
        return Proof(False, f"no output of the program has the shape of one of the network's ({shapes})")
    return Proof(True, "", tuple(plan.feeds), outputs, epsilon)


@dataclass(frozen=True)
class _Plan:
    """`feeds`: inputs of the program; `given`: the same for the network, under its own names."""

    feeds: Mapping[str, np.ndarray]
    given: Mapping[str, np.ndarray]
    fetches: Sequence[str]


def _plan(program: Program, source: StaticModel, network: Any) -> _Plan:
    operators = forward_part(program.operators)
    feeds = program.feeds or _declared_inputs(operators, program, source)
    known = {feed: meaning for feed in feeds if (meaning := _meaning(feed)) is not None}
    fetches = program.fetches or leaves(operators, known, source.variables)
    if not fetches:
        raise CannotRun("the program has no outputs")
    read = {name for op in needed_for(operators, fetches) for name in op.reads}
    feeds = [feed for feed in feeds if feed in read or program.feeds]
    strange = [feed for feed in feeds if feed not in known and feed in read]
    if strange:
        raise CannotRun(f"what the program's input {strange[0]!r} means is not known")
    arrays = _inputs(network, [known[feed] for feed in feeds if feed in known], _length(program, known))
    accepted = inspect.signature(network.forward).parameters
    given = {"input_ids": arrays["input_ids"]}
    if "token_type_ids" in known.values() and "token_type_ids" in accepted:
        given["token_type_ids"] = arrays["token_type_ids"]
    fed = {feed: _as_declared(arrays[known[feed]], feed, program) for feed in feeds if feed in known}
    return _Plan(fed, given, list(fetches))


def _declared_inputs(operators: Sequence[Any], program: Program, source: StaticModel) -> list[str]:
    """Without feed operators: what is read, is written by none and lies in no file."""
    written = {name for op in operators for name in op.writes}
    read = dict.fromkeys(name for op in operators for name in op.reads)
    return [name for name in read if name in program.variables and name not in written and name not in source.variables]


def _meaning(feed: str) -> str | None:
    bare = feed.rpartition("@")[2] if feed.startswith("@HUB") else feed
    return next((meaning for meaning, names in _NAMES.items() if bare in names), None)


def _length(program: Program, known: Mapping[str, str]) -> int:
    """The length of the texts: fixed by the program, else LENGTH."""
    lengths = [
        program.variables[feed].shape[1]
        for feed in known
        if feed in program.variables and len(program.variables[feed].shape) > 1 and program.variables[feed].shape[1] > 0
    ]
    return lengths[0] if lengths else LENGTH


def _inputs(network: Any, meanings: Sequence[str], length: int) -> dict[str, np.ndarray]:
    """Random texts. One is padded, unless the program takes a mask or positions as inputs: it may mask differently."""
    config = network.config
    random = np.random.default_rng(_SEED)
    pad = config.pad_token_id or 0
    ids = random.integers(1, config.vocab_size, (ROWS, length), dtype=np.int64)
    # Random ids must not pad in the middle of a text.
    ids[ids == pad] = 1 if pad != 1 else 2
    types = np.zeros_like(ids)
    if "type_vocab_size" in vars(config) and config.type_vocab_size > 1:
        types[1:, length // 2 :] = 1
    # A program that is told its mask or positions from outside would read padding in its own way.
    if "attention_mask" not in meanings and "position_ids" not in meanings:
        ids[-1, length // 2 :] = pad
        types[-1] = 0
    return {
        "input_ids": ids,
        "token_type_ids": types,
        "position_ids": np.tile(np.arange(length, dtype=np.int64), (ROWS, 1)),
        "task_type_ids": np.zeros_like(ids),
        "attention_mask": np.ones_like(ids, dtype=np.float32),
    }


def _as_declared(array: np.ndarray, feed: str, program: Program) -> np.ndarray:
    """In the type and number of axes that the program declares: those of Paddle 1.x are [rows, length, 1]."""
    variable = program.variables.get(feed)
    if variable is None:
        return array
    if variable.dtype in ("float32", "int32", "int64"):
        array = array.astype(variable.dtype)
    # Paddle 1.x's embedding wants a trailing axis of 1 on its ids.
    while array.ndim < len(variable.shape):
        array = array[..., None]
    return array


# -- running both -----------------------------------------------------------------------------------------------------


def _run_program(program: Program, source: StaticModel, plan: _Plan) -> dict[str, np.ndarray]:
    arrays = {
        name: to_float32(variable.array) if variable.dtype == "bfloat16" else variable.array
        for name, variable in source.variables.items()
    }
    return run_program(program, arrays, plan.feeds, plan.fetches)


def _run_network(network: Any, plan: _Plan) -> list[np.ndarray]:
    network.eval()
    with paddle.no_grad():
        outputs = network(**{name: paddle.to_tensor(array) for name, array in plan.given.items()})
    flat: list[np.ndarray] = []

    def collect(value: Any) -> None:
        if isinstance(value, paddle.Tensor):
            flat.append(value.numpy())
        elif isinstance(value, tuple | list):
            for each in value:
                collect(each)

    collect(outputs)
    return flat


def _other_epsilon(program: Program, network: Any) -> float | None:
    """The epsilon of the program's layer norms, if they share one and the network's differs; else None.

    PaddleNLP's ERNIE and BERT add 1e-12, those of Paddle 1.x added 1e-5: no mistake in the parameters.
    """
    theirs = {op.attributes["epsilon"] for op in program.operators if op.type == "layer_norm"}
    ours = {layer._epsilon for layer in _norms(network)}
    if len(theirs) != 1 or not ours:
        return None
    (epsilon,) = theirs
    return None if all(abs(each - epsilon) < 1e-3 * epsilon for each in ours) else epsilon


@contextlib.contextmanager
def _layer_norms(network: Any, epsilon: float | None) -> Iterator[None]:
    """Inside, the layer norms of `network` have this epsilon; None: their own."""
    before = [(layer, layer._epsilon) for layer in _norms(network)]
    for layer, _ in before if epsilon is not None else ():
        # 1e-12 against 1e-5 differs by more than TOLERANCE where a variance is small, with equal parameters.
        layer._epsilon = epsilon
    try:
        yield
    finally:
        for layer, own in before:
            layer._epsilon = own


def _norms(network: Any) -> list[Any]:
    return [layer for layer in network.sublayers() if isinstance(layer, paddle.nn.LayerNorm)]


# -- comparing outputs ------------------------------------------------------------------------------------------------


def _compare(name: str, theirs: np.ndarray, ours: list[np.ndarray]) -> Compared | None:
    """With the first output of the network that has its shape and is not compared yet; None if there is none.

    An export may end in a softmax or a sigmoid that the network leaves to its loss: then the network's output is given
    the same.
    """
    index = next((i for i, each in enumerate(ours) if each.shape == theirs.shape), None)
    if index is None or theirs.dtype.kind != "f":
        return None
    # Each output of the network is compared once; two outputs of one shape are compared in their order.
    value = ours.pop(index)
    with np.errstate(over="ignore"):
        readings = {"": value, "softmax": _softmax(value), "sigmoid": 1 / (1 + np.exp(-value))}
    differences = {reading: _largest(theirs, result) for reading, result in readings.items()}
    best = "" if differences[""] <= TOLERANCE else min(differences, key=differences.__getitem__)
    if differences[best] > TOLERANCE:
        best = ""
    return Compared(name, theirs.shape, differences[best], best)


def _nearest(ours: np.ndarray, theirs: Mapping[str, np.ndarray]) -> Compared | None:
    """The output of the program that is most like one of the network's; None where none has its shape."""
    alike = {name: array for name, array in theirs.items() if array.shape == ours.shape}
    comparisons = [each for name, array in alike.items() if (each := _compare(name, array, [ours])) is not None]
    return min(comparisons, key=lambda each: each.difference, default=None)


def _largest(one: np.ndarray, other: np.ndarray) -> float:
    """The largest difference, as Compared has it; infinite where either holds what is no number."""
    one, other = one.astype(np.float64), other.astype(np.float64)
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        return float("inf")
    return float(np.abs(one - other).max(initial=0.0)) / max(1.0, float(np.abs(one).max(initial=0.0)) / 10)


def _softmax(value: np.ndarray) -> np.ndarray:
    powers = np.exp(value - value.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


# -- an untrusted program in a process of its own ---------------------------------------------------------------------
#
# Paddle's executor trusts its programs. An endless loop, an allocation of a terabyte or an access out of bounds
# would end the process that runs it. `main` runs in that process: it reads a folder with the program and its arrays,
# and writes the outputs there.

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
) -> dict[str, np.ndarray]:
    """The variables `fetches` that the program computes from `feeds`, with `variables` as its parameters.

    A training program is cut down to what the fetches need. Raises CannotRun: it has operators that are not run, or
    that this Paddle lacks; it takes more than `seconds`, or more than MEMORY and four times its arrays.
    """
    with tempfile.TemporaryDirectory(prefix="nlpctl-") as name:
        folder = Path(name)
        (folder / "program").write_bytes(program.serialized)
        job = {
            "variables": _write(folder, "variable", variables),
            "feeds": _write(folder, "feed", feeds),
            "fetches": list(fetches),
            "prune": not program.fetches,
            "memory": MEMORY + 4 * sum(array.nbytes for array in (*variables.values(), *feeds.values())),
        }
        (folder / _JOB).write_text(json.dumps(job), encoding="utf-8")
        code = f"from nlpctl.convert.proof import main; main({str(folder)!r})"
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
    # Of all blocks, since everything in the graph runs, needed or not.
    unknown = sorted({op.type for block in graph.blocks for op in block.ops} - OPERATORS)
    if unknown:
        raise CannotRun(f"it has operators that nlpctl does not run: {', '.join(unknown)}")
    scope, place = paddle.static.Scope(), paddle.CPUPlace()
    for name, array in _read(folder, "variable", job["variables"]).items():
        scope.var(name).get_tensor().set(array, place)
    with paddle.static.scope_guard(scope):
        return paddle.static.Executor(place).run(graph, feed=feeds, fetch_list=fetches, return_numpy=True)


def _reason(error: Exception) -> str:
    """The last line of an error of Paddle's that says something: its messages begin with a C++ stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    errors = [line for line in lines if "Error:" in line] or lines or [type(error).__name__]
    return errors[-1][:200]
