"""Verifies a conversion: runs the static program and the dygraph network on the same inputs and compares outputs.

A program is untrusted code. It runs in a separate process (run_program.py), restricted to operators that only compute.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle

from nlpctl.formats.program import Program
from nlpctl.models.weights import to_float32
from nlpctl.static_graph.graph import forward_part, leaves, needed_for
from nlpctl.static_graph.run_program import CannotRun, run_program
from nlpctl.static_graph.variables import StaticModel

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
    `of`: how the network's output was read.
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
    """Run the program of `source` and `network` on the same inputs."""
    program = source.program
    if program is None:
        return Proof(False, NO_PROGRAM)
    try:
        plan = _plan(program, source, network)
        theirs = _run_program(program, source, plan)
        epsilon = _other_epsilon(program, network)
        with _layer_norms(network, epsilon):
            ours = _run_network(network, plan)
    except _NotPossible as error:
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


def _run_program(program: Program, source: StaticModel, plan: _Plan) -> dict[str, np.ndarray]:
    arrays = {
        name: to_float32(variable.array) if variable.dtype == "bfloat16" else variable.array
        for name, variable in source.variables.items()
    }
    try:
        return run_program(program, arrays, plan.feeds, plan.fetches)
    except CannotRun as error:
        raise _NotPossible(str(error)) from None


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
        ways = {"": value, "softmax": _softmax(value), "sigmoid": 1 / (1 + np.exp(-value))}
    differences = {way: _largest(theirs, result) for way, result in ways.items()}
    best = "" if differences[""] <= TOLERANCE else min(differences, key=differences.get)
    if differences[best] > TOLERANCE:
        best = ""
    return Compared(name, theirs.shape, differences[best], best)


def _nearest(ours: np.ndarray, theirs: Mapping[str, np.ndarray]) -> Compared | None:
    """The output of the program that is most like one of the network's; None where none has its shape."""
    alike = {name: array for name, array in theirs.items() if array.shape == ours.shape}
    found = [each for name, array in alike.items() if (each := _compare(name, array, [ours])) is not None]
    return min(found, key=lambda each: each.difference, default=None)


def _largest(one: np.ndarray, other: np.ndarray) -> float:
    """The largest difference, as Compared has it; infinite where either holds what is no number."""
    one, other = one.astype(np.float64), other.astype(np.float64)
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        return float("inf")
    return float(np.abs(one - other).max(initial=0.0)) / max(1.0, float(np.abs(one).max(initial=0.0)) / 10)


def _softmax(value: np.ndarray) -> np.ndarray:
    powers = np.exp(value - value.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)
