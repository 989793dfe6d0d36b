"""The strategies of compression that need only a graph; the base classes of all. Imports neither Paddle nor NumPy.

Why here and not in compress/: `nlpctl export --precision int8` writes the graphs of these strategies, and export/ lies
below compress/, which it cannot import. A strategy is one class, with its steps and its costs, so those are here too.

A new strategy is a class here, and an entry of GRAPH_STRATEGIES below; if it makes another network, a class in
compress/strategies.py and an entry of STRATEGIES there:

- `Int8Strategy`: another way to quantise an fp32 graph to 8 bits. Define `graph` (its description) and `write`.
- `CalibratedInt8`: the same, from the ranges of activations on training rows, which `context.rows()` gives.
- `GraphStrategy`: any other change of a graph. Define `kind` and `make_graph`. A change that may stand beside all those
  of StrategyKind in A+B needs a new member there.
- `NetworkStrategy`: another network. Define the steps in `networks` and make one of them in `make_network`.
- `Strategy`: no new files; an engine runs the fp32 graphs in another way. Define `kind` and `runs_on`.

Define `name` and `help`, and override what else applies: by default nothing is needed, read or refused. What a strategy
can be refused for, and in which order that is asked, is listed at the top of compress/refusals.py. Settings in `reads`
are fields of section compression: PaddleNLP's, or one added to config/schema.py. tests/compress/test_new_strategy.py
has two complete examples. The parser, the plan, the budget, the checks, `nlpctl export` and the help read these
attributes. Import Paddle only inside `refuse_network`, `make_network` and `make_graph`: the first runs before anything
is made, the others in a separate process. A step is pickled with its strategy, so your module only has to be
importable. An instance has no state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from nlpctl.config.schema import Recipe
from nlpctl.errors import UserError
from nlpctl.extras import is_installed, require_onnx
from nlpctl.graphs.graph_files import INT8_PREFIX, ONNX_DYNAMIC, ONNX_STATIC, PREFIX, paddle_files
from nlpctl.graphs.ptq_settings import PtqSettings
from nlpctl.layout import CANDIDATES, EXPORTS, NETWORKS
from nlpctl.models.export_folder import Graph

if TYPE_CHECKING:
    from nlpctl.data.batches.collate import Batch
    from nlpctl.runtime.process import ProcessSetup
    from nlpctl.runtime.run_directory import RunDirectory

KEY = "compression.strategy"
BY_STRATEGY = (KEY, "leave the strategies for ONNX Runtime out")  # who asks for ONNX graphs, and the alternative
FP32, FP16, INT8 = "fp32", "fp16", "int8"
ORIGINAL = "original"  # the export of the source itself

# What a step is expected to take before a similar one was made.
STARTUP_SECONDS = 10.0  # to start a process, import Paddle and open graphs
TRAINING_COST = 8.0  # of a row, relative to fp32 inference: forward, backward, teacher, evaluations
CALIBRATION_COST = 4.0  # of a row, in the same unit

# The smaller forms of a step, for a budget that is too short for it.
SMALLER_TRAININGS = (1 / 2, 1 / 4, 1 / 8, 1 / 16)  # shares of the training
MIN_CALIBRATION_BATCHES = 2

# Measured: docs/compression-benchmarks.md, Calibration; PaddleNLP's own (mse and KL of 4, 8, 16 rows) calibrate on
# a few rows.
DEFAULT_BATCH_SIZES, DEFAULT_BATCH_NUMBERS = (32,), (16,)


class StrategyKind(Enum):
    """The result of a strategy, as messages name it. A+B+C has each kind at most once, in the order of the members.

    A strategy works on what kinds above its own made, so a new member goes after everything that it can change.
    """

    NETWORK = "another network"
    INT8 = "8 bits"
    EMBEDDINGS = "smaller embeddings"
    PRECISION = "another precision"

    @property
    def place(self) -> int:
        return list(StrategyKind).index(self)


@dataclass(frozen=True)
class CalibrationRows:
    """The rows for finding the range of activations; `algorithm` is None if the strategy has only one.

    `batches` None: all rows.
    """

    algorithm: str | None
    batch_size: int
    batches: int | None

    @property
    def rows(self) -> int | None:
        """The number of rows; None: all."""
        return None if self.batches is None else self.batch_size * self.batches

    @property
    def name(self) -> str:
        rows = f"{self.batch_size}x{'all' if self.batches is None else self.batches}"
        return rows if self.algorithm is None else f"{self.algorithm}-{rows}"


@dataclass(frozen=True)
class Step:
    """One folder, KIND/NAME, made by a strategy from the folders in `needs`; the first one is the input that it
    changes."""

    kind: Literal["networks", "exports", "candidates"]
    name: str
    made_by: Strategy
    needs: tuple[str, ...] = ()
    width: Fraction | None = None
    calibration: CalibrationRows | None = None
    settings: tuple[tuple[str, Any], ...] = ()  # keys of the recipe with other values: a smaller form, for a budget
    share: float = 1.0  # cost of a trained row relative to the form that the recipe asks for

    @property
    def folder(self) -> str:
        return f"{self.kind}/{self.name}"

    @property
    def method(self) -> str:
        return self.made_by.name

    @property
    def work(self) -> str:
        """The kind of work, whatever its input: steps with the same work take similar times."""
        if self.calibration is not None:
            return f"{self.method}-{self.calibration.name}"
        return self.method + "".join(f"-{key}={value}" for key, value in self.settings)

    def in_form(self, settings: Mapping[str, float], share: float = 1.0) -> Step:
        """A smaller form of this step, with other values of keys of the recipe; its name tells them: student-epochs-1.

        `share`: see the field."""
        words = [(key.rpartition(".")[2].rpartition("_")[2], f"{value:.4g}") for key, value in settings.items()]
        name = "-".join([self.name, *(word for pair in words for word in pair)])
        return replace(self, name=name, settings=tuple(settings.items()), share=share)

    @property
    def scored(self) -> bool:
        """Whether it appears in the table; every export does."""
        return self.kind != NETWORKS

    @property
    def is_network(self) -> bool:
        return self.kind == NETWORKS

    @property
    def trains(self) -> bool:
        return self.is_network and self.made_by.trains


@dataclass(frozen=True)
class StepContext:
    """The step of a compression, its recipe, and the recipe of the export that the graph is made from."""

    step: Step
    recipe: Recipe
    export_recipe: Recipe


@dataclass(frozen=True)
class GraphBuildContext:
    """What a graph is made of: the `graphs` of the export `origin`. The new graph is written to `folder` next to its
    files.

    `rows`: returns the calibration batches; reads them when called. `networks`: run directories that the step needs
    besides `origin`. `compression`: the step and its recipes; None in `nlpctl export`, which has no step.
    """

    origin: Path
    graphs: tuple[Graph, ...]
    folder: Path
    rows: Callable[[], Iterable[Batch]]
    networks: tuple[Path, ...] = ()
    compression: StepContext | None = None

    def fp32_graph(self, format: str) -> Path:
        """The fp32 graph in a format: the file of ONNX, the prefix of Paddle's files.

        UserError: there is none, such as of a network that cannot become ONNX (compress/steps.py).
        """
        graph = next((each for each in self.graphs if (each.format, each.precision) == (format, FP32)), None)
        if graph is None:
            message = f"there is no fp32 graph in format {format}"
            raise UserError(message, str(self.origin), "see the warnings above")
        return self.prefix(graph) if format == "paddle" else self.origin / graph.files[0]

    def prefix(self, graph: Graph) -> Path:
        """The prefix of the files of a Paddle graph."""
        return (self.origin / graph.files[0]).with_suffix("")


class Strategy:
    """A strategy for --strategy and its properties. Two instances of a class are equal."""

    name: str
    kind: StrategyKind
    help: str  # its effect, in one line
    gain: float = 1.0  # expected speed-up of its graph before it was tried
    trains: bool = False
    key: str = KEY  # the key that selects it
    reads: tuple[str, ...] = ()  # settings of section compression; a flag that no strategy reads gives a warning
    in_names: tuple[str, ...] = ()  # those that are part of folder names, so that a later call may change them
    of_training: tuple[str, ...] = ()  # those that affect trained networks only
    runs_on: tuple[str, str] | None = None  # engine and precision of its graph; None: any

    @property
    def reads_rows(self) -> bool:
        """Whether training rows are read for anything but training."""
        return False

    @property
    def on_network(self) -> str | None:
        """Why it needs a network and not only graphs, as a sentence; None if graphs suffice."""
        return f"{self.name} trains a network" if self.trains else None

    # What a strategy refuses by itself. compress/refusals.py calls it, and lists what else a strategy is refused for.

    def refuse_combination(self, text: str, parts: Sequence[Strategy]) -> None:
        """UserError if it cannot be one of `parts`, which `text` names. `parts` are in the order of their kinds, and
        `text` may have another order, which is refused later."""

    def refuse_settings(self, recipe: Recipe, beside: Sequence[Strategy]) -> None:
        """UserError for settings that it cannot take, and packages that it needs. `beside`: all strategies of the
        command, including this one."""

    def refuse_missing_data(self, recipe: Recipe) -> None:
        """UserError if data is missing."""

    def refuse_network(self, recipe: Recipe, config: Mapping[str, Any]) -> None:
        """UserError if it cannot work with a network of this config.json. Imports Paddle."""

    def refuse_graph(self, context: GraphBuildContext) -> None:
        """UserError if nothing in the graphs of the uncompressed network can be changed. Asked before these are scored;
        `context` has no folder to write to, and no rows."""

    def engine_on(self, device: str) -> tuple[str, str] | None:
        """The engine and the precision of its graph on this device ("cpu", "gpu:0"); None: any. A strategy is refused
        where the machine cannot run them."""
        return self.runs_on

    def starts_from(self, recipe: Recipe) -> str | None:
        """A further model, besides the source, that a training starts from; None if there is none."""
        return None

    def unread(self, recipe: Recipe, beside: Sequence[Strategy]) -> str | None:
        """A sentence about a setting without effect; None if there is none. `beside`: all other strategies."""
        return None

    def rows_trained(self, recipe: Recipe, count: Callable[[], int]) -> float:
        """Rows read by its training over all epochs, or by a calibration on all rows. `count`: returns the number of
        training rows; counts when called."""
        return rows_read(recipe.training, count)

    def seconds(self, step: Step, speed: float, rows: float) -> float:
        """Expected seconds of a step before a similar one was made. `speed`: rows per second of the source in fp32;
        `rows`: rows read by a training."""
        return STARTUP_SECONDS + (step.share * TRAINING_COST * rows / speed if step.trains else 0.0)

    def smaller(self, step: Step, recipe: Recipe, config: Mapping[str, Any]) -> Iterator[Step]:
        """Forms of a step that take less time, the largest first, for a budget that is too short for it.

        Each has a name of its own, which tells the difference. `config`: config.json of the source, {} if unknown. By
        default a training is shortened, and nothing else has smaller forms.
        """
        if step.trains:
            key, whole = length_of(recipe.training, "training")
            for share in SMALLER_TRAININGS:
                yield step.in_form({key: part_of(whole, share)})

    def make_network(self, recipe: Recipe, source: str, step: Step, run: RunDirectory, setup: ProcessSetup) -> None:
        """Make the network of `step` from the model folder `source` in `run`; resumes an interrupted training."""
        raise NotImplementedError(f"{self.name} makes no network")

    def make_graph(self, context: GraphBuildContext) -> Graph:
        """Write the files of a graph into `context.folder`; returns their description."""
        raise NotImplementedError(f"{self.name} makes no graph")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))


class NetworkStrategy(Strategy, ABC):
    """Makes another network from the source; the network is exported, and graph strategies may follow.

    `stem`: what the names of its networks begin with; the strategy's name if it is not defined."""

    kind = StrategyKind.NETWORK
    stem: str = ""

    @property
    def on_network(self) -> str | None:
        return super().on_network or f"{self.name} changes a network"

    @abstractmethod
    def networks(self, section: Any, base: Step | None) -> Iterator[Step]:
        """The networks that a recipe's section compression asks for, made from `base`; None: from the source.

        Their names contain no +.
        """

    @abstractmethod
    def make_network(self, recipe: Recipe, source: str, step: Step, run: RunDirectory, setup: ProcessSetup) -> None:
        """Make the network of `step` from the model folder `source` in `run`; resumes an interrupted training."""

    def config(self, recipe: Recipe) -> Mapping[str, Any] | None:
        """The known part of the network's config.json if its kind differs from the source's, else None. Imports
        Paddle."""
        return None

    def network(self, name: str, base: Step | None, width: Fraction | None = None) -> Step:
        """A step of this strategy, for `networks`."""
        before, needs = ("", ()) if base is None else (f"{base.name}-", (base.folder,))
        return Step(NETWORKS, before + name, self, needs, width)


class GraphStrategy(Strategy, ABC):
    """Makes a graph from an existing one."""

    def graphs(self, before: Step, network: tuple[str, ...], section: Any) -> Iterator[tuple[Step, ...]]:
        """The ways to change the graph of `before`, each as steps; the last step is the graph.

        `network`: the folder of the graph's network; () for the source.
        """
        yield (self.candidate(before),)

    @abstractmethod
    def make_graph(self, context: GraphBuildContext) -> Graph:
        """Write the files of a graph into `context.folder`; returns their description."""

    def candidate(self, before: Step, calibration: CalibrationRows | None = None) -> Step:
        """A step of this strategy, for `graphs`."""
        ending = "" if calibration is None else f"-{calibration.name}"
        return Step(CANDIDATES, f"{before.name}+{self.name}{ending}", self, (before.folder,), None, calibration)


class Int8Strategy(GraphStrategy):
    """Quantises an fp32 graph to 8 bits. `nlpctl export --precision int8` does the same without training."""

    kind = StrategyKind.INT8
    graph: Graph  # what is written
    holds_tables: bool = False  # whether embedding tables become 8 bits too

    @property
    def precision(self) -> str:
        """The name of this graph in `nlpctl export --precision`: int8-dynamic."""
        return f"{INT8}-{self.graph.method}"

    @abstractmethod
    def write(self, context: GraphBuildContext) -> None:
        """Write the files of `graph` into `context.folder`."""

    def make_graph(self, context: GraphBuildContext) -> Graph:
        self.write(context)
        return self.graph


class CalibratedInt8(Int8Strategy):
    """A strategy that measures the range of activations on rows: one graph per configured number of rows."""

    reads: tuple[str, ...] = ("batch_size_list", "batch_num_list")
    in_names: tuple[str, ...] = reads

    @property
    def reads_rows(self) -> bool:
        return True

    def algorithms(self, section: Any) -> Sequence[str | None]:
        """The calibrations that the section asks for."""
        return (None,)

    def slowness(self, algorithm: str | None) -> float:
        """The time of an algorithm relative to the mean of largest values (avg)."""
        return 1.0

    def graphs(self, before: Step, network: tuple[str, ...], section: Any) -> Iterator[tuple[Step, ...]]:
        for algorithm in dict.fromkeys(self.algorithms(section)):
            for size in dict.fromkeys(section.batch_size_list or DEFAULT_BATCH_SIZES):
                for number in dict.fromkeys(section.batch_num_list or DEFAULT_BATCH_NUMBERS):
                    yield (self.candidate(before, CalibrationRows(algorithm, size, number)),)

    def seconds(self, step: Step, speed: float, rows: float) -> float:
        calibration = step.calibration
        if calibration is None:
            return super().seconds(step, speed, rows)
        run = rows if calibration.rows is None else calibration.rows
        return STARTUP_SECONDS + self.slowness(calibration.algorithm) * CALIBRATION_COST * run / speed

    def smaller(self, step: Step, recipe: Recipe, config: Mapping[str, Any]) -> Iterator[Step]:
        """Fewer calibration batches."""
        rows = step.calibration
        if rows is None:
            yield from super().smaller(step, recipe, config)
            return
        batches = 2 * DEFAULT_BATCH_NUMBERS[0] if rows.batches is None else rows.batches
        while (batches := batches // 2) >= MIN_CALIBRATION_BATCHES:
            fewer = replace(rows, batches=batches)
            yield replace(step, name=step.name.removesuffix(rows.name) + fewer.name, calibration=fewer)

    def rows_trained(self, recipe: Recipe, count: Callable[[], int]) -> float:
        return float(count()) if None in (recipe.compression.batch_num_list or ()) else 0.0


def rows_read(training: Any, count: Callable[[], int]) -> float:
    """Rows read by a training (a recipe's section). `count` is called only if needed."""
    if training.max_steps > 0:
        return float(training.max_steps * training.per_device_train_batch_size * training.gradient_accumulation_steps)
    return float(count() * training.num_train_epochs)


def length_of(training: Any, section: str) -> tuple[str, float]:
    """The key of `section` that sets the length of its training (a recipe's section training), and its value."""
    if training.max_steps > 0:
        return f"{section}.max_steps", training.max_steps
    return f"{section}.num_train_epochs", training.num_train_epochs


def part_of(whole: float, share: float) -> float:
    """A share of a length; steps stay whole numbers."""
    return max(1, int(share * whole)) if isinstance(whole, int) else share * whole


# --------------------------------------------------------------------------------------------------
# The fp32 graphs of a network, the input of all other graphs. Not a name for --strategy: every chain has this step.
#
# compress/steps.py writes them like `nlpctl export`.


class Fp32Export(Strategy):
    name = "export"
    kind = StrategyKind.PRECISION
    help = "the fp32 graphs of a network"

    def export(self, name: str, needs: tuple[str, ...]) -> Step:
        """The graphs of the network in the needed folder; of the source if no folder is needed."""
        return Step(EXPORTS, name, self, needs)


# -- bf16: makes nothing. Every fp32 graph is also scored in bf16 if the machine supports it. ------


class Bf16(Strategy):
    name = "bf16"
    kind = StrategyKind.PRECISION
    help = "nothing to make: fp32 graphs are also scored in bf16 if the processor supports it"
    runs_on = ("paddle", "bf16")

    def refuse_combination(self, text: str, parts: Sequence[Strategy]) -> None:
        # A graph with smaller embeddings is still an fp32 graph, which is scored in bf16 too.
        if any(part.kind is StrategyKind.INT8 for part in parts):
            message = (
                f"{text!r}: {self.name} is a way to compute an fp32 graph and does not apply to an 8-bit graph"
            )
            apart = "+".join(part.name for part in parts if part != self)
            raise UserError(message, KEY, f"leave out {self.name}, or separate it: {apart},{self.name}")


# -- the common base of strategies for ONNX Runtime ------------------------------------------------


class OnnxInt8(Int8Strategy):
    """8 bits for ONNX Runtime, embedding tables included."""

    runs_on = ("onnxruntime", "int8")
    holds_tables = True
    recurrent = False  # whether an LSTM becomes 8 bits

    def refuse_settings(self, recipe: Recipe, beside: Sequence[Strategy]) -> None:
        require_onnx(KEY, f"leave {self.name} out")
        if not is_installed("onnxruntime"):
            raise UserError("ONNX Runtime is not installed", KEY, f"pip install onnxruntime, or leave {self.name} out")

    def refuse_graph(self, context: GraphBuildContext) -> None:
        from nlpctl.graphs.onnx_quantize import refuse_without_products

        # A network that cannot become ONNX fails this candidate alone, when it is made.
        if any(graph.format == "onnx" for graph in context.graphs):
            refuse_without_products(context.fp32_graph("onnx"), recurrent=self.recurrent)


# -- ort-dynamic: 8 bits for ONNX Runtime, with activations scaled at run time ---------------------


class OrtDynamic(OnnxInt8):
    name = "ort-dynamic"
    help = "8 bits for ONNX Runtime, without calibration"
    gain = 1.8
    graph = Graph("onnx", "int8", (ONNX_DYNAMIC,), "dynamic")
    recurrent = True

    def write(self, context: GraphBuildContext) -> None:
        from nlpctl.graphs.onnx_quantize import quantize_dynamic

        quantize_dynamic(context.fp32_graph("onnx"), context.folder / ONNX_DYNAMIC)


# -- ort-static: 8 bits for ONNX Runtime, by calibration -------------------------------------------


class OrtStatic(OnnxInt8, CalibratedInt8):
    name = "ort-static"
    help = "8 bits for ONNX Runtime, calibrated on training rows"
    gain = 1.7
    graph = Graph("onnx", "int8", (ONNX_STATIC,), "static")

    def write(self, context: GraphBuildContext) -> None:
        from nlpctl.graphs.onnx_quantize import quantize_static

        quantize_static(context.fp32_graph("onnx"), context.folder / ONNX_STATIC, context.rows())


# -- ptq: 8 bits for Paddle Inference, by calibration ----------------------------------------------

DEFAULT_ALGORITHMS = ("avg", "mse")
SLOWNESS = {"hist": 2.0, "KL": 2.5, "mse": 5.0, "emd": 7.0}  # these try many bounds; measured time relative to avg
_ACTIVATIONS = "activation_quantize_type"
_SETTINGS = ("weight_quantize_type", "round_type", "bias_correction", "onnx_format")


class Ptq(CalibratedInt8):
    name = "ptq"
    help = "8 bits for Paddle Inference, calibrated on training rows"
    gain = 2.0
    reads = ("algo_list", *CalibratedInt8.reads, "round_type", "bias_correction", "weight_quantize_type", _ACTIVATIONS)
    in_names = ("algo_list", *CalibratedInt8.in_names)
    runs_on = ("paddle", "int8")
    graph = Graph("paddle", "int8", paddle_files(INT8_PREFIX), "ptq")

    @property
    def precision(self) -> str:
        """Only int8: an export has one such graph for Paddle."""
        return INT8

    def algorithms(self, section: Any) -> Sequence[str]:
        return section.algo_list or DEFAULT_ALGORITHMS

    def slowness(self, algorithm: str | None) -> float:
        return SLOWNESS.get(algorithm or "", 1.0)

    def refuse_settings(self, recipe: Recipe, beside: Sequence[Strategy]) -> None:
        """activation_quantize_type is not checked here if another strategy of the command reads it."""
        alone = not any(_ACTIVATIONS in each.reads for each in beside if each != self)
        for algorithm in self.algorithms(recipe.compression):
            _settings(recipe, algorithm, (*_SETTINGS, _ACTIVATIONS) if alone else _SETTINGS).check()

    def refuse_graph(self, context: GraphBuildContext) -> None:
        from nlpctl.graphs.ptq import refuse_without_products

        refuse_without_products(context.fp32_graph("paddle"))

    def write(self, context: GraphBuildContext) -> None:
        from nlpctl.graphs.ptq import quantize

        settings = PtqSettings()
        compression = context.compression
        if compression is not None:  # activations have only one type, and the setting was checked before
            rows = compression.step.calibration
            settings = _settings(compression.recipe, None if rows is None else rows.algorithm, _SETTINGS)
        quantize(context.fp32_graph("paddle"), context.folder / INT8_PREFIX, context.rows(), settings)


def _settings(recipe: Recipe, algorithm: str | None, names: Sequence[str]) -> PtqSettings:
    """The quantisation settings of an algorithm, with the settings `names` of the recipe; null means the default."""
    given = {name: value for name in names if (value := getattr(recipe.compression, name)) is not None}
    return PtqSettings(algorithm or DEFAULT_ALGORITHMS[0], **given)


# --------------------------------------------------------------------------------------------------
# embeddings: the large embedding tables of a graph for Paddle Inference in 8 bits, after any other change.


class Embeddings(GraphStrategy):
    name = "embeddings"
    kind = StrategyKind.EMBEDDINGS
    help = "embedding tables in 8 bits, for Paddle Inference"

    def refuse_combination(self, text: str, parts: Sequence[Strategy]) -> None:
        twice = next((part for part in parts if isinstance(part, Int8Strategy) and part.holds_tables), None)
        if twice is not None:
            message = f"{twice.name} already stores large embedding tables in 8 bits, so {text!r} repeats it"
            raise UserError(message, KEY, f"leave out {self.name}")

    def refuse_graph(self, context: GraphBuildContext) -> None:
        from nlpctl.graphs.embeddings import refuse_without_tables

        refuse_without_tables(context.fp32_graph("paddle"))

    def make_graph(self, context: GraphBuildContext) -> Graph:
        from nlpctl.graphs.embeddings import quantize_embeddings

        (before,) = [graph for graph in context.graphs if graph.format == "paddle"]
        prefix = INT8_PREFIX if before.precision == "int8" else PREFIX
        quantize_embeddings(context.prefix(before), context.folder / prefix)
        method = self.name if before.method is None else f"{before.method}+{self.name}"
        return Graph("paddle", before.precision, paddle_files(prefix), method)


# What needs only a graph. `nlpctl export` offers those of 8 bits; compress/strategies.py adds those of networks.
GRAPH_STRATEGIES: tuple[Strategy, ...] = (Ptq(), OrtDynamic(), OrtStatic(), Embeddings(), Bf16())


def int8_of_graphs() -> tuple[Int8Strategy, ...]:
    """The 8-bit strategies that need only a graph, as `nlpctl export` offers."""
    return tuple(each for each in GRAPH_STRATEGIES if isinstance(each, Int8Strategy) and each.on_network is None)


def export_precisions() -> tuple[str, ...]:
    """The values of `nlpctl export --precision`: int8 is every 8-bit method; what follows it, one of them."""
    return tuple(dict.fromkeys([FP32, FP16, INT8, *(strategy.precision for strategy in int8_of_graphs())]))
