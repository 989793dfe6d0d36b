"""The strategies that make another network, and the list of all. export/strategies.py has those of graphs, and tells
how to write one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from nlpctl.config.recipe_of import student_model, usable_student, with_own_schedule
from nlpctl.config.schema import Recipe, parse_width
from nlpctl.data.open_split import has_split
from nlpctl.errors import UserError
from nlpctl.export.strategies import (
    GRAPH_STRATEGIES,
    ORIGINAL,
    SMALLER_TRAININGS,
    Fp32Export,
    GraphBuildContext,
    Int8Strategy,
    NetworkStrategy,
    Step,
    Strategy,
    length_of,
    part_of,
    rows_read,
)
from nlpctl.graphs.graph_files import INT8_PREFIX, paddle_files
from nlpctl.layout import CANDIDATES, NETWORKS
from nlpctl.models.export_folder import Graph

if TYPE_CHECKING:
    from nlpctl.runtime.process import ProcessSetup
    from nlpctl.runtime.run_directory import RunDirectory


# -- distill: a student that learns the trained network's answers to many texts --------------------

STUDENT = "student"
EPOCHS = "distillation.num_train_epochs"
COPIES = "distillation.generate.copies"
LAYERS = "distillation.num_hidden_layers"


class Distill(NetworkStrategy):
    name = "distill"
    stem = STUDENT
    help = "a student of another architecture or with fewer layers, set in section distillation"
    trains = True
    reads = of_training = ("criterion",)

    def networks(self, section: Any, base: Step | None) -> Iterator[Step]:
        yield self.network(STUDENT, base)

    def refuse_network(self, recipe: Recipe, config: Mapping[str, Any]) -> None:
        from nlpctl.compress.networks.distill import check

        check(recipe, config)

    def starts_from(self, recipe: Recipe) -> str | None:
        return student_model(recipe).name_or_path

    def config(self, recipe: Recipe) -> Mapping[str, Any] | None:
        """config.json of a student that is one of nlpctl's own networks."""
        from nlpctl.models.families import OWN

        model = student_model(recipe)
        architecture = None if model.from_scratch is None else model.from_scratch.architecture
        return {"model_type": OWN[architecture]} if architecture is not None and architecture in OWN else None

    def unread(self, recipe: Recipe, beside: Sequence[Strategy]) -> str | None:
        if recipe.compression.criterion is None or recipe.distillation.hard:
            return None
        if any("criterion" in each.reads for each in beside):
            return None
        return f"compression.criterion has no effect: {self.name} weights it by distillation.hard, which is 0"

    def rows_trained(self, recipe: Recipe, count: Callable[[], int]) -> float:
        """Includes unlabelled and generated texts."""
        section, taught = recipe.distillation, _training(recipe)
        more = 1 + section.generate.copies
        return rows_read(taught, lambda: (count() + sum(_rows(recipe, path) for path in section.unlabelled)) * more)

    def smaller(self, step: Step, recipe: Recipe, config: Mapping[str, Any]) -> Iterator[Step]:
        """First a shorter training, down to one epoch; then no generated texts; then a part of an epoch; then fewer
        layers of the teacher."""
        section = recipe.distillation
        key, whole = _length(recipe)
        copies, layers = section.generate.copies, _layers(recipe, config)
        planned = {key: whole, COPIES: copies, LAYERS: layers}

        def form(length: float, copies: int, fewer: int) -> Step:
            wanted = {key: length, COPIES: copies, LAYERS: fewer}
            changed = {name: value for name, value in wanted.items() if value != planned[name]}
            return step.in_form(changed, (1 + fewer) / (1 + layers))  # 1: the teacher, and what is not in layers

        length = whole
        while not isinstance(whole, int) and length > 1:
            length = float(math.ceil(length / 2))
            yield form(length, copies, layers)
        if copies:
            yield form(length, 0, layers)
        for share in SMALLER_TRAININGS:
            yield form(part_of(length, share), 0, layers)
        fewer = layers // 2
        while fewer:
            yield form(part_of(length, SMALLER_TRAININGS[-1]), 0, fewer)
            fewer //= 2

    def make_network(self, recipe: Recipe, source: str, step: Step, run: RunDirectory, setup: ProcessSetup) -> None:
        from nlpctl.compress.networks.distill import train_student

        train_student(recipe, source, run, setup)


def _training(recipe: Recipe) -> Any:
    """Section training of the student."""
    section, student = recipe.distillation, usable_student(recipe)
    return with_own_schedule(recipe.training if student is None else student.training, section)


def _length(recipe: Recipe) -> tuple[str, float]:
    """The key that sets the length of the student's training, and its value."""
    key, length = length_of(_training(recipe), "training" if recipe.student is None else "student.training")
    return (key if recipe.distillation.num_train_epochs is None else EPOCHS), length


def _layers(recipe: Recipe, config: Mapping[str, Any]) -> int:
    """The number of layers of a student whose layers are the teacher's and may be fewer, else 0."""
    section, teacher = recipe.distillation, config.get("num_hidden_layers")
    model = section.model
    if section.student or section.layers or model.from_scratch is not None or model.name_or_path is not None:
        return 0
    return section.num_hidden_layers or (teacher // 2 if isinstance(teacher, int) else 0)


def _rows(recipe: Recipe, path: str) -> int:
    """The approximate number of rows in a file: its lines, but of json."""
    if path.endswith(".json"):
        from nlpctl.data.predict_input import open_input
        from nlpctl.data.rows.task_rows import task_rows

        return sum(1 for _ in open_input(task_rows(recipe.task, recipe.data), path, "auto").rows())
    with open(path, "rb") as stream:
        return sum(1 for _ in stream)


# -- dynabert: networks of a smaller width, distilled from the full one ----------------------------

WIDTHS = ("3/4",)


class DynaBert(NetworkStrategy):
    name = "dynabert"
    stem = "width"
    help = "narrower networks, distilled from the full one"
    trains = True
    reads = ("width_mult_list", "criterion")
    in_names = ("width_mult_list",)
    of_training = ("criterion",)

    def networks(self, section: Any, base: Step | None) -> Iterator[Step]:
        for text in section.width_mult_list or WIDTHS:
            width = parse_width(text)
            yield self.network(width_name(width), base, width)

    def refuse_network(self, recipe: Recipe, config: Mapping[str, Any]) -> None:
        from nlpctl.compress.networks.dynabert import check

        check(recipe, config)

    def make_network(self, recipe: Recipe, source: str, step: Step, run: RunDirectory, setup: ProcessSetup) -> None:
        from nlpctl.compress.networks.dynabert import train_width

        if step.width is None:
            raise ValueError(f"{step.folder} has no width")
        train_width(recipe, source, step.width, run, setup)


def width_name(width: Fraction) -> str:
    """3/4 is width-0.75."""
    return f"{DynaBert.stem}-{float(width):.4g}"


# -- qat: 8 bits for Paddle Inference, by quantisation-aware training ------------------------------


class Qat(Int8Strategy):
    name = "qat"
    help = "8 bits for Paddle Inference, by quantisation-aware training"
    gain = 2.0
    trains = True
    reads = ("weight_quantize_type", "activation_quantize_type", "moving_rate", "use_pact", "criterion")
    of_training = ("activation_quantize_type", "moving_rate", "use_pact", "criterion")
    runs_on = ("paddle", "int8")
    graph = Graph("paddle", "int8", paddle_files(INT8_PREFIX), "qat")

    def engine_on(self, device: str) -> tuple[str, str] | None:
        """A GPU trains it; its graph is made with --device cpu, in the same folder."""
        return self.runs_on if device == "cpu" else None

    def graphs(self, before: Step, network: tuple[str, ...], section: Any) -> Iterator[tuple[Step, ...]]:
        training = Step(NETWORKS, f"{before.name}+{self.name}", self, network)
        yield training, Step(CANDIDATES, training.name, self, (before.folder, training.folder))

    def refuse_network(self, recipe: Recipe, config: Mapping[str, Any]) -> None:
        from nlpctl.compress.networks.qat import check

        check(recipe, config)

    def make_network(self, recipe: Recipe, source: str, step: Step, run: RunDirectory, setup: ProcessSetup) -> None:
        """The step that trains the exported network for 8 bits."""
        from nlpctl.compress.networks.qat import train_qat

        train_qat(recipe, source, run, setup)

    def write(self, context: GraphBuildContext) -> None:
        from nlpctl.compress.networks.qat import write_qat_graph

        (network,), compression = context.networks, context.compression
        if compression is None:
            raise ValueError(f"{self.name} needs a training, which `nlpctl export` does not do")
        write_qat_graph(compression.recipe, network, context.origin, context.folder, compression.export_recipe)


# --------------------------------------------------------------------------------------------------
# compression.prune_embeddings: a network without the vocabulary entries that no training text uses; others are made of
# it. No word of --strategy, but a setting, which holds for all of them.

FEWER_WORDS_NAME = "fewer-words"


class FewerWords(NetworkStrategy):
    name = "prune_embeddings"
    stem = FEWER_WORDS_NAME
    help = "a network without the vocabulary entries that no training text uses"
    key = "compression.prune_embeddings"
    in_names = ("prune_embeddings",)

    @property
    def reads_rows(self) -> bool:
        return True

    @property
    def on_network(self) -> str:
        return "dropping vocabulary entries changes a network"

    def networks(self, section: Any, base: Step | None) -> Iterator[Step]:
        if section.prune_embeddings:
            yield self.network(FEWER_WORDS_NAME, base)

    def refuse_missing_data(self, recipe: Recipe) -> None:
        if not has_split(recipe.data, "train"):
            message = "dropping vocabulary entries needs training rows, and there are none"
            raise UserError(message, "data.train", "give them: @[data.train=FILE]")

    def refuse_network(self, recipe: Recipe, config: Mapping[str, Any]) -> None:
        from nlpctl.compress.networks.prune_embeddings import check

        check(recipe)

    def make_network(self, recipe: Recipe, source: str, step: Step, run: RunDirectory, setup: ProcessSetup) -> None:
        from nlpctl.compress.networks.prune_embeddings import prune_vocabulary

        prune_vocabulary(recipe, source, run, setup)


# Names for --strategy.
STRATEGIES: tuple[Strategy, ...] = (
    DynaBert(),
    Distill(),
    Qat(),
    *GRAPH_STRATEGIES,
)
# Not selectable by name: the start of every chain.
FP32_EXPORT, FEWER_WORDS = Fp32Export(), FewerWords()


def strategies() -> dict[str, Strategy]:
    """The strategies that --strategy may name, by name."""
    return {strategy.name: strategy for strategy in STRATEGIES}


def every_strategy() -> tuple[Strategy, ...]:
    """All strategies, including those that --strategy cannot name."""
    return (*STRATEGIES, FP32_EXPORT, FEWER_WORDS)


def simplicity(candidate: str) -> tuple[int, int]:
    """How simple a candidate is, by the name of its folder, to choose among equals; less is simpler.

    First how it was made: 0 the uncompressed network, 1 without training, 2 with a training. Then the number of parts.
    """
    parts = parts_of(candidate)
    trained = any(part is None or part.trains for part in parts)
    return (2 if trained else min(1, len(parts))), len(parts)


def parts_of(candidate: str) -> tuple[Strategy | None, ...]:
    """The strategies that a candidate was made by, from the name of its folder; None for one that is not known here."""
    network, *made = candidate.split("+")
    known = every_strategy()
    parts: list[Strategy | None] = []
    while network not in ("", ORIGINAL):
        stems = {each.stem or each.name: each for each in known if isinstance(each, NetworkStrategy)}
        stem = _begun(network, stems)
        parts.append(stems.get(stem))
        rest = network.removeprefix(stem).removeprefix("-")
        network = rest if stem and _begun(rest, stems) else ""
    names = {each.name: each for each in known}
    return (*parts, *(names.get(_begun(part, names)) for part in made))


def _begun(text: str, names: Iterable[str]) -> str:
    """The longest of the names that a text is, or begins with before a hyphen; "" if there is none."""
    return max((name for name in names if f"{text}-".startswith(f"{name}-")), key=len, default="")
