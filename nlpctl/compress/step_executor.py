"""The steps of a compression. Each makes one folder and runs in the process of step_worker.py."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from nlpctl import console
from nlpctl.compress.source import add_onnx, copy_files, copy_fp32, import_static, static_model
from nlpctl.config.recipe_of import recipe_for_export, recipe_of, recipe_of_network, with_settings
from nlpctl.config.schema import Recipe
from nlpctl.data.open_split import has_split
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.sample_rows import rows_to_calibrate, rows_to_compare
from nlpctl.errors import RunFailed, UserError, of_the_machine
from nlpctl.export.request import ROWS, ExportRequest
from nlpctl.export.strategies import BY_STRATEGY, EXPORTS, ORIGINAL, Making, Planned, Step
from nlpctl.files import staged_dir
from nlpctl.layout import MODEL
from nlpctl.models.export_folder import ExportManifest, read_manifest, write_manifest
from nlpctl.models.source import resolve_source
from nlpctl.runtime.process import ProcessSetup
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.runtime.versions import graph_versions

if TYPE_CHECKING:
    from nlpctl.data.batches.collate import Batch
    from nlpctl.engines.parity import Parity


@dataclass
class StepExecutor:
    """Makes the folders of a compression, in `output`, from the model folder or export `source`.

    Shared inputs are cached, so that a grid of calibrations opens the fp32 graph once.
    """

    recipe: Recipe
    setup: ProcessSetup
    source: str
    output: Path
    _parities: dict[Path, Parity] = field(default_factory=dict)
    _recipes: dict[Path, Recipe] = field(default_factory=dict)

    def make(self, step: Step) -> None:
        """Make the folder of `step` atomically. The folders that it needs must exist.

        UserError or RunFailed if that is impossible. An interrupted training leaves checkpoints to resume from.
        """
        final = self.output / step.folder
        if step.is_network:
            self._network(step, RunDirectory(final))
            return
        with staged_dir(final) as folder:
            if step.kind == EXPORTS:
                self._export(step, folder, final)
            else:
                self._candidate(step, folder)

    # -- networks ----------------------------------------------------------------------------

    def _network(self, step: Step, run: RunDirectory) -> None:
        setup, source, recipe = self.setup, str(self._origin(step)), with_settings(self.recipe, dict(step.settings))
        if step.needs:  # a student may encode text differently from the source
            made = recipe_of_network(recipe, self.output / step.needs[0])
            recipe = dataclasses.replace(recipe, data=made.data, model=made.model)
        step.made_by.make_network(recipe, source, step, run, setup)

    def _origin(self, step: Step) -> Path | str:
        """The model folder that a step starts from: a network made by an earlier step, or the source."""
        return self.output / step.needs[0] / MODEL if step.needs else self.source

    # -- fp32 graphs -------------------------------------------------------------------------

    def _export(self, step: Step, folder: Path, final: Path) -> None:
        from nlpctl.export.write_export import write_export
        from nlpctl.graphs.onnx import require_paddle2onnx

        source, recipe = str(self._origin(step)), self.recipe
        if step.name != ORIGINAL:
            recipe = recipe_of_network(self.recipe, self.output / step.needs[0])
        elif (prefix := static_model(recipe)) is not None or resolve_source(source).kind == "export":
            if prefix is None:
                copy_fp32(Path(source), folder)
            else:
                import_static(recipe, prefix, source, folder)
            add_onnx(folder)
            return
        try:
            require_paddle2onnx(*BY_STRATEGY)
            both = ExportRequest(("paddle", "onnx"), ("fp32",), onnx=BY_STRATEGY)
            write_export(recipe, self.setup, source, folder, final, both)
        except (RunFailed, UserError) as error:
            if of_the_machine(error) is not None:  # it says nothing of the network, and would be kept
                raise
            console.warn(f"{step.name}: Paddle graphs only, no ONNX graph: {error}")
            _empty(folder)
            write_export(recipe, self.setup, source, folder, final, ExportRequest(("paddle",), ("fp32",)))

    # -- compressed graphs --------------------------------------------------------------------

    def _candidate(self, step: Step, folder: Path) -> None:
        """An export with one graph, made from the graph of the first folder that the step needs."""
        origin = self.output / step.needs[0]
        manifest = read_manifest(origin)
        graphs = {name for graph in manifest.graphs for name in graph.files}
        copy_files(origin, folder, graphs)
        making = Making(
            origin=origin,
            graphs=manifest.graphs,
            folder=folder,
            rows=lambda: self._calibration_batches(step, origin),
            networks=tuple(self.output / name for name in step.needs[1:]),
            planned=Planned(step, self.recipe, recipe_of(origin, named_by=self.recipe)),
        )
        graph = step.made_by.make_graph(making)
        made = dataclasses.replace(manifest, graphs=(graph,), versions=graph_versions(), chosen=None)
        write_manifest(folder, self._checked(step, folder, made))

    def _calibration_batches(self, step: Step, origin: Path) -> Iterator[Batch]:
        """The batches of training rows that a step's calibration names."""
        from nlpctl.engines.parity import batches_of
        from nlpctl.engines.samples import read_description

        recipe, wanted = self._reading(origin), step.calibration
        task, encoder = read_description(origin, recipe)
        readers = task_rows(recipe.task, recipe.data)
        if not has_split(recipe.data, "train"):
            console.warn("there are no training rows: calibrated on dev, by which candidates are chosen too")
        examples = rows_to_calibrate(readers, None, encoder.tokenizer, wanted.rows, masked=task.hides)
        yield from islice(batches_of(task, encoder, examples, wanted.batch_size), wanted.batches)

    def _checked(self, step: Step, folder: Path, manifest: ExportManifest) -> ExportManifest:
        """`manifest` with differences and agreement between its graph and the fp32 graph. RunFailed if no engine runs
        it.

        No limit applies to the difference, since the table shows the candidate's score.
        """
        from nlpctl.export.verify import run_graphs, with_checks

        parity = self._parity(self.output / EXPORTS / step.name.partition("+")[0])
        findings, problems = run_graphs(folder, manifest, self.setup, parity)
        if any(problems.values()):
            raise RunFailed(problems=[each for found in problems.values() for each in found])
        return dataclasses.replace(
            manifest, graphs=tuple(with_checks(graph, findings) for graph in manifest.graphs), rows=len(parity.examples)
        )

    def _parity(self, export: Path) -> Parity:
        """The outputs of an export's fp32 graph for rows of dev."""
        if export not in self._parities:
            from nlpctl.engines.auto import choices, open_choice
            from nlpctl.engines.parity import LARGEST_BATCH, Parity
            from nlpctl.engines.samples import read_description

            recipe, setup, manifest = self._reading(export), self.setup, read_manifest(export)
            task, encoder = read_description(export, recipe)
            rows = rows_to_compare(
                task_rows(recipe.task, recipe.data), None, encoder.tokenizer, ROWS, masked=task.hides
            )
            choice = next(each for each in choices(manifest, setup) if each.precision == "fp32")
            reference = open_choice(export, manifest, choice, setup, LARGEST_BATCH)
            self._parities[export] = Parity(task, encoder, rows.examples, reference.outputs)
        return self._parities[export]

    def _reading(self, export: Path) -> Recipe:
        """The recipe with the data of the source and the text encoding of the network of `export`."""
        if export not in self._recipes:
            self._recipes[export] = recipe_for_export(self.recipe, export)
        return self._recipes[export]


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
