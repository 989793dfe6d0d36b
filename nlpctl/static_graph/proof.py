"""The proof that a conversion is right: the static program and the dygraph network answer the same inputs alike.

A program is a stranger's code. Only operators that compute are run (OPERATORS): none that reads or writes files,
calls Python or talks to other processes.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nlpctl.models.weights import to_float32
from nlpctl.static_graph.graph import forward_part, leaves, needed_for
from nlpctl.static_graph.operators import OPERATORS
from nlpctl.static_graph.program import Program
from nlpctl.static_graph.static_mode import static_mode
from nlpctl.static_graph.variables import StaticModel

TOLERANCE = 1e-5
ROWS, LENGTH = 3, 16
_SEED = 7

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
    """One output of the program. `difference`: the largest, absolute; `of`: how the network's output was read."""

    output: str
    shape: tuple[int, ...]
    difference: float
    of: str = ""


@dataclass(frozen=True)
class Proof:
    """`possible`: whether both were run; where not, `reason` says why."""

    possible: bool
    reason: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[Compared, ...] = ()

    @property
    def difference(self) -> float | None:
        """The largest of all; None where nothing was compared."""
        return max((each.difference for each in self.outputs), default=None)

    @property
    def holds(self) -> bool:
        """Whether it was made and every output agrees."""
        return self.possible and all(each.difference <= TOLERANCE for each in self.outputs)

    @property
    def fails(self) -> bool:
        return self.possible and not self.holds


def prove(source: StaticModel, network: Any) -> Proof:
    """Run the program of `source` and `network` on the same inputs."""
    program = source.program
    if program is None:
        return Proof(False, "the source has no program to run")
    try:
        plan = _plan(program, source, network)
        theirs = _run_program(program, source, plan)
        ours = _run_network(network, plan)
    except _NotPossible as error:
        return Proof(False, str(error))
    compared = tuple(_compare(name, array, ours) for name, array in theirs.items())
    outputs = tuple(each for each in compared if each is not None)
    if not outputs:
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in theirs.items())
        return Proof(False, f"no output of the program has the shape of one of the network's ({shapes})")
    return Proof(True, "", tuple(plan.feeds), outputs)


class _NotPossible(Exception):
    """Why the program cannot be run."""


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
        raise _NotPossible("the program has no outputs")
    read = {name for op in needed_for(operators, fetches) for name in op.reads}
    feeds = [feed for feed in feeds if feed in read or program.feeds]
    strange = [feed for feed in feeds if feed not in known and feed in read]
    if strange:
        raise _NotPossible(f"what the program's input {strange[0]!r} means is not known")
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
    """Of the texts: as the program fixes it, else LENGTH."""
    lengths = [
        program.variables[feed].shape[1]
        for feed in known
        if feed in program.variables and len(program.variables[feed].shape) > 1 and program.variables[feed].shape[1] > 0
    ]
    return lengths[0] if lengths else LENGTH


def _inputs(network: Any, meanings: Sequence[str], length: int) -> dict[str, np.ndarray]:
    """Random texts. One of them is padded, unless the program wants to be told where: it may not mask as we do."""
    config = network.config
    random = np.random.default_rng(_SEED)
    pad = config.pad_token_id or 0
    ids = random.integers(1, config.vocab_size, (ROWS, length), dtype=np.int64)
    ids[ids == pad] = 1 if pad != 1 else 2
    types = np.zeros_like(ids)
    if "type_vocab_size" in vars(config) and config.type_vocab_size > 1:
        types[1:, length // 2 :] = 1
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
    while array.ndim < len(variable.shape):
        array = array[..., None]
    return array


def _run_program(program: Program, source: StaticModel, plan: _Plan) -> dict[str, np.ndarray]:
    import paddle

    with static_mode():
        try:
            graph = paddle.static.deserialize_program(program.serialized)
            block = graph.global_block()
            for feed in plan.feeds:
                block.var(feed).stop_gradient = True
            fetches = [block.var(name) for name in plan.fetches]
            if not program.fetches:
                graph = graph.clone(for_test=True)._prune(fetches)
            _check_operators(graph)
            scope = paddle.static.Scope()
            place = paddle.CPUPlace()
            for name, variable in source.variables.items():
                array = to_float32(variable.array) if variable.dtype == "bfloat16" else variable.array
                scope.var(name).get_tensor().set(np.ascontiguousarray(array), place)
            with paddle.static.scope_guard(scope):
                results = paddle.static.Executor(place).run(
                    graph, feed=dict(plan.feeds), fetch_list=fetches, return_numpy=True
                )
        except _NotPossible:
            raise
        except Exception as error:  # what Paddle's executor raises for an operator or attribute that it has no more
            raise _NotPossible(f"Paddle cannot run the program ({_reason(error)})") from error
    return {name: np.asarray(array) for name, array in zip(plan.fetches, results, strict=True)}


def _check_operators(graph: Any) -> None:
    """Of all blocks: everything in the graph runs, whether the outputs need it or not."""
    unknown = sorted({op.type for block in graph.blocks for op in block.ops} - OPERATORS - {"feed", "fetch"})
    if unknown:
        raise _NotPossible(f"it has operators that nlpctl does not run: {', '.join(unknown)}")


def _reason(error: Exception) -> str:
    """The last line of an error of Paddle's that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if "Error:" in line] or lines or [type(error).__name__]
    return told[-1][:200]


def _run_network(network: Any, plan: _Plan) -> list[np.ndarray]:
    import paddle

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


def _compare(name: str, theirs: np.ndarray, ours: list[np.ndarray]) -> Compared | None:
    """With the first output of the network that has its shape and is not compared yet; None where there is none.

    An export may end in a softmax or a sigmoid that the network leaves to its loss: then the network's output is given
    the same.
    """
    index = next((i for i, each in enumerate(ours) if each.shape == theirs.shape), None)
    if index is None or theirs.dtype.kind != "f":
        return None
    value = ours.pop(index)
    with np.errstate(over="ignore"):
        ways = {"": value, "softmax": _softmax(value), "sigmoid": 1 / (1 + np.exp(-value))}
    differences = {way: _largest(theirs, result) for way, result in ways.items()}
    best = "" if differences[""] <= TOLERANCE else min(differences, key=differences.get)
    if differences[best] > TOLERANCE:
        best = ""
    return Compared(name, theirs.shape, differences[best], best)


def _largest(one: np.ndarray, other: np.ndarray) -> float:
    """The largest absolute difference; infinite where either holds what is no number."""
    difference = np.abs(one.astype(np.float64) - other.astype(np.float64))
    return float(difference.max(initial=0.0)) if np.isfinite(difference).all() else float("inf")


def _softmax(value: np.ndarray) -> np.ndarray:
    powers = np.exp(value - value.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)
