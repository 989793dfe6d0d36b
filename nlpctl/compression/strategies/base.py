"""What a strategy is, and the steps that it makes of a recipe. Imports neither Paddle nor NumPy.

A new strategy is one module in this folder, and one entry of STRATEGIES in registry.py. The module holds a class:

- `Int8Strategy`: another way to bring an fp32 graph to 8 bits. Say `graph` (what is written) and write it in `write`.
- `GraphStrategy`: any other change of a graph.
- `NetworkStrategy`: another network. Say the steps in `networks`, and make one of them in `make_network`.
- `Strategy`: neither; an engine runs the fp32 graphs otherwise.

Say `name`, `help`, and what else is true of it: of all other attributes and methods the default is that nothing is
needed, read or refused. The parser, the plan, the budget, the refusals, `nlpctl export` and the help ask here. What
imports Paddle stands inside of `check`, `make_network` and `make_graph` alone: the first tells what cannot work before
anything is made, the others run in a process of their own. A step takes its strategy there, so a module of your own
only has to be importable. An instance has no state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from nlpctl.config.schema import Recipe
from nlpctl.errors import UserError
from nlpctl.models.export_folder import Graph

if TYPE_CHECKING:
    from nlpctl.data.collate import Batch
    from nlpctl.runtime.process import ProcessSetup
    from nlpctl.runtime.run_directory import RunDirectory

KEY = "compression.strategy"
NETWORKS: Final = "networks"
EXPORTS: Final = "exports"
CANDIDATES: Final = "candidates"
FP32, INT8 = "fp32", "int8"
ORIGINAL = "original"  # the export of the source itself

START = 10.0  # seconds: a process, Paddle, opening graphs
TRAINING = 8.0  # a training step beside inference in fp32: forward, backward, the teacher, evaluations
CALIBRATING = 4.0  # rows that are run to calibrate, in the same measure

# Measured: docs/compression.md, Calibration; PaddleNLP's own (mse and KL of 4, 8, 16 rows) calibrate on a few rows.
BATCH_SIZES, BATCH_NUMBERS = (32,), (16,)


class Kind(Enum):
    """What a strategy makes. In a sum each comes once at most, in this order."""

    NETWORK = "another network"
    INT8 = "8 bits"
    EMBEDDINGS = "smaller embeddings"
    PRECISION = "another precision"

    @property
    def place(self) -> int:
        return list(Kind).index(self)


@dataclass(frozen=True)
class CalibrationRows:
    """Rows that are run to find the range of activations; `algorithm` None where the strategy has but one."""

    algorithm: str | None
    batch_size: int
    batches: int

    @property
    def name(self) -> str:
        rows = f"{self.batch_size}x{self.batches}"
        return rows if self.algorithm is None else f"{self.algorithm}-{rows}"


@dataclass(frozen=True)
class Step:
    """One folder, KIND/NAME, made by a strategy of the folders in `needs`, the first of which is changed."""

    kind: Literal["networks", "exports", "candidates"]
    name: str
    made_by: Strategy
    needs: tuple[str, ...] = ()
    width: Fraction | None = None
    calibration: CalibrationRows | None = None

    @property
    def folder(self) -> str:
        return f"{self.kind}/{self.name}"

    @property
    def method(self) -> str:
        return self.made_by.name

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
        return self.is_network and self.made_by.trains


@dataclass(frozen=True)
class Planned:
    """The step of a compression that a graph is made for, its recipe, and the recipe of the export it is made of."""

    step: Step
    recipe: Recipe
    own: Recipe


@dataclass(frozen=True)
class Making:
    """What a graph is made of: the `graphs` of the export `origin`, whose files another one joins in `folder`.

    `rows`: what to calibrate with, read when it is called. `networks`: run directories, those that the step needs
    beside `origin`. `planned`: what a compression says of it; None in `nlpctl export`, which knows no such settings.
    """

    origin: Path
    graphs: tuple[Graph, ...]
    folder: Path
    rows: Callable[[], Iterable[Batch]]
    networks: tuple[Path, ...] = ()
    planned: Planned | None = None

    def fp32(self, format: str) -> Path:
        """The fp32 graph in a format: the file of ONNX, the prefix of Paddle's files. UserError: there is none."""
        found = next((each for each in self.graphs if (each.format, each.precision) == (format, FP32)), None)
        if found is None:
            message = f"there is no fp32 graph in the format {format}"
            raise UserError(message, str(self.origin), "see the warnings above")
        return self.prefix(found) if format == "paddle" else self.origin / found.files[0]

    def prefix(self, graph: Graph) -> Path:
        """Of the files of a Paddle graph."""
        return (self.origin / graph.files[0]).with_suffix("")


class Strategy:
    """A word of --strategy, and all that is known about it. Two instances of a class are the same strategy."""

    name: str
    kind: Kind
    help: str  # what it does, in a line
    gain: float = 1.0  # how many times as fast its graph should be, before it was tried
    trains: bool = False
    key: str = KEY  # the key that asks for it
    reads: tuple[str, ...] = ()  # settings of section compression; a flag that nobody reads is told
    in_names: tuple[str, ...] = ()  # those of them that names of folders tell, so that a later call may have others
    of_training: tuple[str, ...] = ()  # those that decide about trained networks alone
    runs_on: tuple[str, str] | None = None  # engine and precision that its graph is for; None where any will do

    @property
    def reads_rows(self) -> bool:
        """Whether training rows are read, other than by a training."""
        return False

    @property
    def on_network(self) -> str | None:
        """What it does to a network, as a sentence, where graphs are not enough to start from."""
        return f"{self.name} trains a network" if self.trains else None

    def check_sum(self, text: str, parts: Sequence[Strategy]) -> None:
        """UserError where it cannot be one of `parts`, which `text` names; their kinds are in order already."""

    def refuse_early(self, recipe: Recipe, beside: Sequence[Strategy]) -> None:
        """UserError for what can be told without Paddle. `beside`: all strategies of the command, this one too."""

    def refuse_missing(self, recipe: Recipe) -> None:
        """UserError where data are missing."""

    def starts_from(self, recipe: Recipe) -> str | None:
        """The model, beside the source, that a training starts from; None where there is none."""
        return None

    def check(self, recipe: Recipe, config: Mapping[str, Any]) -> None:
        """UserError where it cannot work with a network of this config.json. Imports Paddle."""

    def unread(self, recipe: Recipe, beside: Sequence[Strategy]) -> str | None:
        """A setting that changes nothing after all, as a sentence; None where there is none. `beside`: all others."""
        return None

    def way(self, device: str) -> tuple[str, str] | None:
        """`runs_on`, where the graph is made with this device ("cpu", "gpu")."""
        return self.runs_on

    def rows_trained(self, recipe: Recipe, count: Callable[[], int]) -> float:
        """How many rows its training reads, every epoch counted. `count`: of the training data, counted when called."""
        return rows_read(recipe.training, count)

    def seconds(self, step: Step, speed: float, rows: float) -> float:
        """What a step should take before one like it was made. `speed`: rows per second of the source in fp32;
        `rows`: what a training reads."""
        return START + (TRAINING * rows / speed if step.trains else 0.0)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))


class NetworkStrategy(Strategy, ABC):
    """Makes another network of the source, which is exported and goes on from there."""

    kind = Kind.NETWORK

    @property
    def on_network(self) -> str | None:
        return super().on_network or f"{self.name} changes a network"

    @abstractmethod
    def networks(self, section: Any, base: Step | None) -> Iterator[Step]:
        """The networks that a recipe's section compression asks for, made of `base`, of the source where it is None.

        Their names hold no +.
        """

    @abstractmethod
    def make_network(self, recipe: Recipe, source: str, step: Step, run: RunDirectory, setup: ProcessSetup) -> None:
        """Make the network of `step` of the model folder `source` in `run`; go on where that was interrupted."""

    def config(self, recipe: Recipe) -> Mapping[str, Any] | None:
        """What config.json of the network will say where it is of another kind than the source, as far as that is
        known. Imports Paddle."""
        return None

    def network(self, name: str, base: Step | None, width: Fraction | None = None) -> Step:
        """A step of this strategy: of `networks`."""
        before, needs = ("", ()) if base is None else (f"{base.name}-", (base.folder,))
        return Step(NETWORKS, before + name, self, needs, width)


class GraphStrategy(Strategy, ABC):
    """Makes a graph of one that is there."""

    def graphs(self, before: Step, network: tuple[str, ...], section: Any) -> Iterator[tuple[Step, ...]]:
        """The ways to change the graph of `before`: the steps of each, of which the last is the graph.

        `network`: the folder of the network whose graph this is; () for the source.
        """
        yield (self.candidate(before),)

    @abstractmethod
    def make_graph(self, making: Making) -> Graph:
        """Write the files of a graph into `making.folder`, and say what they are."""

    def candidate(self, before: Step, calibration: CalibrationRows | None = None) -> Step:
        """A step of this strategy: of `graphs`."""
        told = "" if calibration is None else f"-{calibration.name}"
        return Step(CANDIDATES, f"{before.name}+{self.name}{told}", self, (before.folder,), None, calibration)


class Int8Strategy(GraphStrategy):
    """Brings an fp32 graph to 8 bits. `nlpctl export --precision int8` does the same, where nothing is trained."""

    kind = Kind.INT8
    graph: Graph  # what is written
    holds_tables: bool = False  # whether embedding tables are in 8 bits too

    @property
    def precision(self) -> str:
        """What `nlpctl export --precision` calls this one graph: int8-dynamic."""
        return f"{INT8}-{self.graph.method}"

    @abstractmethod
    def write(self, making: Making) -> None:
        """Write the files of `graph` into `making.folder`."""

    def make_graph(self, making: Making) -> Graph:
        self.write(making)
        return self.graph


class CalibratedInt8(Int8Strategy):
    """One that runs rows to find how large activations get: a graph for each number of rows that is named."""

    reads: tuple[str, ...] = ("batch_size_list", "batch_num_list")
    in_names: tuple[str, ...] = reads

    @property
    def reads_rows(self) -> bool:
        return True

    def algorithms(self, section: Any) -> Sequence[str | None]:
        """The ways to find ranges of activations that the section asks for."""
        return (None,)

    def slowness(self, algorithm: str | None) -> float:
        """How many times as long as a mean of largest values an algorithm takes."""
        return 1.0

    def graphs(self, before: Step, network: tuple[str, ...], section: Any) -> Iterator[tuple[Step, ...]]:
        for algorithm in dict.fromkeys(self.algorithms(section)):
            for size in dict.fromkeys(section.batch_size_list or BATCH_SIZES):
                for number in dict.fromkeys(section.batch_num_list or BATCH_NUMBERS):
                    yield (self.candidate(before, CalibrationRows(algorithm, size, number)),)

    def seconds(self, step: Step, speed: float, rows: float) -> float:
        calibration = step.calibration
        if calibration is None:
            return super().seconds(step, speed, rows)
        run = calibration.batch_size * calibration.batches
        return START + self.slowness(calibration.algorithm) * CALIBRATING * run / speed


def rows_read(training: Any, count: Callable[[], int]) -> float:
    """How many rows a training (a recipe's section) reads. `count` is called only where it decides."""
    if training.max_steps > 0:
        return float(training.max_steps * training.per_device_train_batch_size * training.gradient_accumulation_steps)
    return float(count() * training.num_train_epochs)
