"""Make the folders of a compression: in which process, and how.

A `StepPool` has them made in other processes, here or on other nodes, several at a time: quantisers change Paddle's
mode, names and random state, engines may crash, and each takes memory, which a separate process isolates. In it a
`StepExecutor` makes the folders of one step after the other.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nlpctl import console
from nlpctl.compress.plan import read_made, static_model
from nlpctl.compress.source import add_onnx, copy_files, copy_fp32, import_static
from nlpctl.config.recipe_of import read_like, recipe_of, with_process_of, with_settings
from nlpctl.config.schema import Recipe
from nlpctl.data.open_split import has_split
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.sample_rows import rows_for_int8, rows_to_compare
from nlpctl.errors import NlpctlError, RunFailed, UserError, of_the_machine
from nlpctl.export.request import ROWS, ExportRequest
from nlpctl.export.strategies import BY_STRATEGY, ORIGINAL, GraphBuildContext, Step, StepContext
from nlpctl.extras import require_onnx
from nlpctl.files import remove_leftovers_of, staged_dir, staging_prefix, writing
from nlpctl.layout import EXPORTS, MODEL
from nlpctl.models.export_folder import ExportManifest, write_manifest
from nlpctl.models.source import resolve_source
from nlpctl.runtime.interrupt import STOP_SECONDS
from nlpctl.runtime.lock import LET_GO, wait_until_free
from nlpctl.runtime.process import ProcessSetup, set_up_process
from nlpctl.runtime.ray_cluster import ClusterLost, UnfitNode
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.runtime.versions import graph_versions
from nlpctl.runtime.worker import RemoteProcess, WorkerKilled, WorkerLost, child_main
from nlpctl.runtime.worker_pool import Job, WorkerPool, answering
from nlpctl.runtime.worker_slots import WorkerSlots

if TYPE_CHECKING:
    from nlpctl.data.batches.collate import Batch
    from nlpctl.engines.parity import Parity

FREE_SPACE = "free some space, then run the same command again to continue"
GRACE = STOP_SECONDS + 5.0  # a training saves a checkpoint when it is asked to stop


class TimeIsUp(RunFailed):
    """A step was stopped because it exceeded its time limit."""


# -- several steps at a time -----------------------------------------------------------------------


@dataclass(frozen=True)
class StepResult:
    """How a step ended; `error` None: as it should. `seconds`: how long it took; `resumed`: its folder had been begun
    before, so that they are no estimate of the whole step."""

    step: Step
    error: NlpctlError | None
    seconds: float
    resumed: bool


@dataclass(frozen=True)
class _RunningStep:
    """A step that is being made, for at most `seconds`; `resumed`: as of `StepResult`; `begun`: by the clock."""

    step: Step
    seconds: float | None
    resumed: bool
    begun: float


class StepPool:
    """Makes steps in workers of runtime/worker_pool.py, one at each of `slots`, which ask a lost one again. Use it as a
    context: they end with it. `make`: from `slots.process_factory`.

    A process makes one step after the other, but a training has one of its own, and after an error there is a new one.
    """

    def __init__(
        self, recipe: Recipe, source: str, output: Path, slots: WorkerSlots, make: Callable[..., RemoteProcess]
    ):
        self._recipe, self._source, self._output, self._slots, self._make = recipe, source, output, slots, make
        self._temporary: list[str] = []  # a folder for each worker
        self._running: dict[Job, _RunningStep] = {}
        # A step that crashes its process here would crash the next one too. One on another node may only be lost.
        again = "another worker makes it"
        self._pool = WorkerPool(
            self._make_process, len(slots.runtimes), retried=(WorkerLost, WorkerKilled), again=again, hint=""
        )
        self._stack = ExitStack()

    @property
    def size(self) -> int:
        return self._pool.size

    @property
    def running(self) -> bool:
        """Whether a step is being made."""
        return bool(self._running)

    @property
    def logs(self) -> bool:
        """Whether each process writes to a `worker_log`, and not to standard error of this one."""
        return self.size > 1 or self._slots.elsewhere

    def __enter__(self) -> StepPool:
        with ExitStack() as stack:
            prefix = staging_prefix("temporary")  # if this command is killed, the next one removes it
            for _ in range(self.size):
                # It holds leftovers of a process that died in the middle of a step.
                with writing(self._output, FREE_SPACE):
                    folder = tempfile.TemporaryDirectory(None, prefix, self._output, ignore_cleanup_errors=True)
                self._temporary.append(stack.enter_context(folder))
            stack.enter_context(self._pool)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)
        for running in self._running.values():  # interrupted; the processes have ended
            remove_leftovers_of(self._output / running.step.folder)

    @property
    def tells(self) -> bool:
        """Whether what is being made shows its progress itself: a training that writes where this process does."""
        return not self.logs and any(each.step.trains for each in self._running.values())

    def so_far(self) -> dict[Step, float]:
        """The seconds that each step has taken that is being made."""
        now = time.monotonic()
        return {each.step: now - each.begun for each in self._running.values()}

    def begin(self, step: Step, seconds: float | None = None, after: float | None = None) -> None:
        """Begin to make a step, which is interrupted after `seconds`. A process must be idle. `after`: the seconds that
        the command needs when it is made, by which a training that `tells` says what the whole has left."""
        job = Job(
            make_step,
            (step, after),
            name=step.folder,
            where=step.name,
            deadline=None if seconds is None else time.monotonic() + seconds,
            own_process=step.trains,
        )
        exists = (self._output / step.folder).exists()
        self._running[job] = _RunningStep(step, seconds, exists, time.monotonic())
        self._pool.submit(job)

    def wait(self, tick: Callable[[], object] = lambda: None) -> StepResult:
        """The next step that ends. What is no error of nlpctl's is raised, and what ends all work on a cluster.

        `tick`: called every second until then."""
        job = self._pool.next_ended(tick)
        running, error = self._running.pop(job), job.error
        if error is not None or job.losses:
            remove_leftovers_of(self._output / running.step.folder)  # of a process that could not clean up itself
        if isinstance(error, TimeoutError):
            hint = "run the same command again to continue, with a longer @[budget]"
            error = TimeIsUp(f"was stopped after {running.seconds:.0f} s", running.step.name, hint)
        if isinstance(error, UnfitNode | ClusterLost) or not isinstance(error, NlpctlError | None):
            raise error
        return StepResult(running.step, error, job.seconds, running.resumed or job.losses > 0)

    def _make_process(self, number: int) -> RemoteProcess:
        recipe = dataclasses.replace(self._recipe, runtime=self._slots.runtimes[number])
        log = worker_log(self._output, number) if self.logs else None
        arguments = (self._temporary[number], recipe, self._source, self._output, log)
        return self._make(_open_executor, *arguments, grace=GRACE)


def worker_log(output: Path, number: int) -> Path:
    """Where the process of a worker writes to, where there are several."""
    return output / f"worker-{number}.log"


# -- in the process --------------------------------------------------------------------------------


def _open_executor(
    temporary: str, recipe: Recipe, source: str, output: Path, log: Path | None = None
) -> Callable[[Any], Any]:
    """Runs at the beginning of the process: returns what answers its jobs."""
    child_main(log)
    tempfile.tempdir = temporary
    return answering(StepExecutor(recipe, set_up_process(recipe), source, output))


def make_step(executor: StepExecutor, step: Step, after: float | None = None) -> None:
    """The job of a worker: make the folder of `step`. `after`: as of `StepPool.begin`."""
    # After a loss the process of the try before, on another node, may hold it for a moment longer.
    wait_until_free(executor.output / step.folder, LET_GO)
    with contextlib.nullcontext() if after is None else console.part_of("compress", after):
        executor.make(step)


@dataclass
class StepExecutor:
    """Makes the folders of a compression, in `output`, from the model folder or export `source`.

    `recipe`: that of the command. What several steps need is read once, such as the recipe that a network was trained
    with, and the answers of its fp32 graph, which a grid of calibrations is compared with.
    """

    recipe: Recipe
    setup: ProcessSetup
    source: str
    output: Path
    _recipes: dict[str, Recipe] = field(default_factory=dict)  # by folder
    _parities: dict[str, Parity] = field(default_factory=dict)  # by folder of an fp32 export

    def make(self, step: Step) -> None:
        """Make the folder of `step` atomically. The folders that it needs must exist.

        UserError or RunFailed if that is impossible. An interrupted training leaves checkpoints to resume from.
        """
        final = self.output / step.folder
        if step.is_network:
            self._make_network(step, RunDirectory(final))
            return
        with staged_dir(final) as folder:
            if step.kind != EXPORTS:
                self._make_candidate(step, folder)
            elif step.name == ORIGINAL:
                self._export_original(step, folder, final)
            else:
                network = step.needs[0]
                recipe = with_process_of(self._own_recipe(network), self.recipe)
                self._export(step, recipe, str(self.output / network / MODEL), folder, final)

    def _own_recipe(self, folder: str) -> Recipe:
        """The recipe that a network or an export of this compression was made with."""
        if folder not in self._recipes:
            self._recipes[folder] = recipe_of(self.output / folder, named_by=self.recipe)
        return self._recipes[folder]

    def _make_network(self, step: Step, run: RunDirectory) -> None:
        recipe, source = with_settings(self.recipe, dict(step.settings)), self.source
        if step.needs:  # it starts from a network made by an earlier step, which may encode text differently
            source = str(self.output / step.needs[0] / MODEL)
            own = self._own_recipe(step.needs[0])
            recipe = dataclasses.replace(recipe, data=own.data, model=own.model)
        step.made_by.make_network(recipe, source, step, run, self.setup)

    def _export_original(self, step: Step, folder: Path, final: Path) -> None:
        prefix = static_model(self.recipe)
        if prefix is not None:
            import_static(self.recipe, prefix, self.source, folder)
            add_onnx(folder)
        elif resolve_source(self.source).kind == "export":
            copy_fp32(self.recipe, Path(self.source), folder)
            add_onnx(folder)
        else:
            self._export(step, self.recipe, self.source, folder, final)

    def _export(self, step: Step, recipe: Recipe, model: str, folder: Path, final: Path) -> None:
        """Write the fp32 graphs of a model folder for both engines.

        Only this shows whether a network can become ONNX. Where it cannot, Paddle's graphs are written alone, with a
        warning; then candidates for ONNX Runtime fail one by one (GraphBuildContext.fp32_graph), and others do not.
        """
        from nlpctl.export.write_export import write_export

        try:
            require_onnx(*BY_STRATEGY)
            both = ExportRequest(("paddle", "onnx"), ("fp32",), onnx=BY_STRATEGY)
            write_export(recipe, self.setup, model, folder, final, both)
        except (RunFailed, UserError) as error:
            if of_the_machine(error) is not None:  # it says nothing of the network, and would be kept
                raise
            console.warn(f"{step.name}: Paddle graphs only, no ONNX graph: {error}")
            for path in folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            write_export(recipe, self.setup, model, folder, final, ExportRequest(("paddle",), ("fp32",)))

    def _make_candidate(self, step: Step, folder: Path) -> None:
        """An export with one graph, made from the graph of the first folder that the step needs."""
        origin = self.output / step.needs[0]
        # The fp32 graphs of its network. Every candidate made from them has copies of the files that say how text is
        # read, so their recipe is read once for all.
        export = f"{EXPORTS}/{step.name.partition('+')[0]}"
        own = self._own_recipe(export)
        reading = read_like(self.recipe, own)
        manifest = read_made(origin)
        copy_files(origin, folder, {name for graph in manifest.graphs for name in graph.files})
        context = GraphBuildContext(
            origin=origin,
            graphs=manifest.graphs,
            folder=folder,
            rows=lambda: int8_batches(step, reading, origin),
            networks=tuple(self.output / name for name in step.needs[1:]),
            compression=StepContext(step, self.recipe, own),
        )
        graph = step.made_by.make_graph(context)
        made = dataclasses.replace(manifest, graphs=(graph,), versions=graph_versions(), chosen=None)
        write_manifest(folder, self._checked(folder, made, self._parity(export, reading)))

    def _checked(self, folder: Path, manifest: ExportManifest, parity: Parity) -> ExportManifest:
        """`manifest` with differences and agreement between its graph and the fp32 graph. RunFailed if no engine runs
        it.

        No limit applies to the difference, since the table shows the candidate's score.
        """
        from nlpctl.export.verify import run_graphs, with_checks

        findings, problems = run_graphs(folder, manifest, self.setup, parity)
        if any(problems.values()):
            raise RunFailed(problems=[each for of_graph in problems.values() for each in of_graph])
        graphs = tuple(with_checks(graph, findings) for graph in manifest.graphs)
        return dataclasses.replace(manifest, graphs=graphs, rows=len(parity.examples))

    def _parity(self, export: str, recipe: Recipe) -> Parity:
        """The outputs of an export's fp32 graph for rows of dev. `recipe`: reads text as the network does."""
        if export not in self._parities:
            from nlpctl.engines.choice import open_choice, runnable_here
            from nlpctl.engines.parity import LARGEST_BATCH, Parity
            from nlpctl.tasks.base import task_and_encoder

            folder, setup = self.output / export, self.setup
            manifest = read_made(folder)
            task, encoder = task_and_encoder(folder, recipe)
            readers = task_rows(recipe.task, recipe.data)
            rows = rows_to_compare(readers, None, encoder.tokenizer, ROWS, masked=task.masks_inputs)
            choice = next(each for each in runnable_here(manifest, setup) if each.precision == "fp32")
            reference = open_choice(folder, manifest, choice, setup, LARGEST_BATCH)
            self._parities[export] = Parity(task, encoder, rows.examples, reference.outputs)
        return self._parities[export]


def int8_batches(step: Step, recipe: Recipe, origin: Path) -> Iterator[Batch]:
    """The batches of training rows that a step's calibration names, for the export `origin`. `recipe`: reads text as
    its network does."""
    from nlpctl.engines.parity import batches_of
    from nlpctl.tasks.base import task_and_encoder

    wanted = step.calibration
    assert wanted is not None
    task, encoder = task_and_encoder(origin, recipe)
    readers = task_rows(recipe.task, recipe.data)
    if not has_split(recipe.data, "train"):
        console.warn("there are no training rows: calibrated on dev, by which candidates are chosen too")
    examples = rows_for_int8(readers, None, encoder.tokenizer, wanted.rows, masked=task.masks_inputs).examples
    yield from islice(batches_of(task, encoder, examples, wanted.batch_size), wanted.batches)
