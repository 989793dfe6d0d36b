"""Which folders a strategy needs, and which of them are made of which.

    networks/NAME     a network that was made of the source: width-0.75, student, original+qat, fewer-words
    exports/NAME      a network's fp32 graphs: original, width-0.75, student, fewer-words
    candidates/NAME   one graph in 8 bits, or with smaller embeddings, and what an export holds beside it

Names say what a folder was made with, so that a folder that is there need not be made again. Imports no Paddle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Literal

from nlpctl.compression.plan.strategy import CALIBRATED, EMBEDDINGS, TRAINED, Chain
from nlpctl.config.compression_keys import parse_width

NETWORKS: Final = "networks"
EXPORTS: Final = "exports"
CANDIDATES: Final = "candidates"
ORIGINAL, STUDENT, FEWER_WORDS = "original", "student", "fewer-words"
EXPORT, VOCABULARY = "export", "prune_embeddings"  # methods of steps that no strategy names

# Measured: docs/compression.md, Calibration; PaddleNLP's own (mse and KL of 4, 8, 16 rows) calibrate on a few rows.
WIDTHS, ALGORITHMS, BATCH_SIZES, BATCH_NUMBERS = ("3/4",), ("avg", "mse"), (32,), (16,)

Kind = Literal["networks", "exports", "candidates"]


@dataclass(frozen=True)
class CalibrationRows:
    """Rows that are run to find the range of activations; `algorithm` None where the method has but one."""

    algorithm: str | None
    batch_size: int
    batches: int

    @property
    def name(self) -> str:
        rows = f"{self.batch_size}x{self.batches}"
        return rows if self.algorithm is None else f"{self.algorithm}-{rows}"


@dataclass(frozen=True)
class Step:
    """One folder, KIND/NAME, made by `method` of the folders in `needs`, the first of which is changed."""

    kind: Kind
    name: str
    method: str
    needs: tuple[str, ...] = ()
    width: Fraction | None = None
    calibration: CalibrationRows | None = None

    @property
    def folder(self) -> str:
        return f"{self.kind}/{self.name}"

    @property
    def work(self) -> str:
        """What is done, whatever to: steps of the same work take about as long."""
        return self.method if self.calibration is None else f"{self.method}-{self.calibration.name}"

    @property
    def scored(self) -> bool:
        """Whether it is in the table: every export is."""
        return self.kind != NETWORKS

    @property
    def is_network(self) -> bool:
        return self.kind == NETWORKS

    @property
    def trains(self) -> bool:
        return self.is_network and self.method in TRAINED


def plan_steps(chains: Sequence[Chain], section: Any) -> tuple[Step, ...]:
    """Every step of the alternatives, each once, after those it needs; `section`: the recipe's compression."""
    steps: dict[str, Step] = {}

    def add(step: Step) -> Step:
        return steps.setdefault(step.folder, step)

    add(_export(ORIGINAL, ()))
    base = add(Step(NETWORKS, FEWER_WORDS, VOCABULARY)) if section.prune_embeddings else None
    for chain in chains:
        for network in _networks(chain, section, base):
            needs = () if network is None else (add(network).folder,)
            export = add(_export(ORIGINAL if network is None else network.name, needs))
            for made in _int8(chain, export, needs, section):
                for step in made:
                    add(step)
                last = made[-1] if made else export
                if chain.embeddings:
                    add(Step(CANDIDATES, f"{last.name}+{EMBEDDINGS}", EMBEDDINGS, (last.folder,)))
    return tuple(steps.values())


def width_name(width: Fraction) -> str:
    """3/4 is width-0.75."""
    return f"width-{float(width):.4g}"


def _export(name: str, needs: tuple[str, ...]) -> Step:
    return Step(EXPORTS, name, EXPORT, needs)


def _networks(chain: Chain, section: Any, base: Step | None) -> Iterator[Step | None]:
    """The networks that a chain starts from; `base`: what they are made of. None stands for the source itself."""
    needs = () if base is None else (base.folder,)
    before = "" if base is None else f"{base.name}-"
    if chain.network is None:
        yield base
    elif chain.network == "distill":
        yield Step(NETWORKS, f"{before}{STUDENT}", "distill", needs)
    else:  # dynabert
        for text in section.width_mult_list or WIDTHS:
            width = parse_width(text)
            yield Step(NETWORKS, f"{before}{width_name(width)}", chain.network, needs, width=width)


def _int8(chain: Chain, export: Step, network: tuple[str, ...], section: Any) -> Iterator[tuple[Step, ...]]:
    """The ways to bring an export to 8 bits: the steps of each, the last of which is the graph; () leaves it as it is.

    `network`: the folder of the network that was exported; () for the source.
    """
    method = chain.int8
    if method is None:
        yield ()
        return
    if method == "qat":
        training = Step(NETWORKS, f"{export.name}+qat", "qat", network)
        yield training, Step(CANDIDATES, training.name, "qat", (export.folder, training.folder))
        return
    for calibration in _calibrations(method, section):
        name = f"{export.name}+{method}" + (f"-{calibration.name}" if calibration is not None else "")
        yield (Step(CANDIDATES, name, method, (export.folder,), calibration=calibration),)


def _calibrations(method: str, section: Any) -> Iterator[CalibrationRows | None]:
    if method not in CALIBRATED:
        yield None
        return
    algorithms = (section.algo_list or ALGORITHMS) if method == "ptq" else (None,)
    for algorithm in dict.fromkeys(algorithms):
        for size in dict.fromkeys(section.batch_size_list or BATCH_SIZES):
            for number in dict.fromkeys(section.batch_num_list or BATCH_NUMBERS):
                yield CalibrationRows(algorithm, size, number)


def trains(chains: Sequence[Chain]) -> bool:
    """Whether training data are needed for more than calibration."""
    return any(part in TRAINED for chain in chains for part in chain.parts)
