"""Make the folders of a compression: in which process, and how.

A `StepPool` makes several at a time, each in a process of its own, here or on other nodes. A `StepProcess` is one of
these: quantisers change Paddle's mode, names and random state, engines may crash, and each takes memory; a separate
process isolates all of this. In it a `StepExecutor` makes the folders of one step after the other.
"""

from __future__ import annotations

import dataclasses
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from nlpctl import console
from nlpctl.compress.plan import static_model
from nlpctl.compress.source import add_onnx, copy_files, copy_fp32, import_static
from nlpctl.config.recipe_of import read_like, recipe_of, with_process_of, with_settings
from nlpctl.config.schema import Recipe
from nlpctl.data.open_split import has_split
from nlpctl.data.rows.task_rows import task_rows
from nlpctl.data.sample_rows import rows_to_calibrate, rows_to_compare
from nlpctl.errors import NlpctlError, RunFailed, UserError, of_the_machine
from nlpctl.export.request import ROWS, ExportRequest
from nlpctl.export.strategies import BY_STRATEGY, EXPORTS, ORIGINAL, Making, Planned, Step
from nlpctl.files import remove_leftovers_of, staged_dir, staging_prefix, writing
from nlpctl.layout import MODEL
from nlpctl.models.export_folder import ExportManifest, read_manifest, write_manifest
from nlpctl.models.source import resolve_source
from nlpctl.runtime.interrupt import STOP_SECONDS
from nlpctl.runtime.lock import LET_GO, wait_until_free
from nlpctl.runtime.process import ProcessSetup, set_up_process
from nlpctl.runtime.ray_cluster import ClusterLost, UnfitNode
from nlpctl.runtime.run_directory import RunDirectory
from nlpctl.runtime.versions import graph_versions
from nlpctl.runtime.worker import NoRoom, RemoteProcess, WorkerKilled, WorkerLost, child_main
from nlpctl.runtime.worker_pool import MOST_LOSSES, MOST_WAITS
from nlpctl.runtime.worker_slots import HERE, WorkerSlots

if TYPE_CHECKING:
    from nlpctl.data.batches.collate import Batch
    from nlpctl.engines.parity import Parity

FREE_SPACE = "free some space, then run the same command again to continue"
GRACE = STOP_SECONDS + 5.0  # a training saves a checkpoint when it is asked to stop


class TimeIsUp(RunFailed):
    """A step was stopped because it exceeded its time limit."""


# Several steps at a time.


@dataclass(frozen=True)
class StepResult:
    """How a step ended; `error` None: as it should. `seconds`: how long it took; `resumed`: its folder had been begun
    before, so that they are no estimate of the whole step."""

    step: Step
    error: NlpctlError | None
    seconds: float
    resumed: bool


@dataclass(frozen=True)
class _Ended:
    """As `StepResult`, of any error. `deadline`: of time.monotonic()."""

    step: Step
    error: BaseException | None
    seconds: float
    resumed: bool
    deadline: float | None


class StepPool:
    """A process at each of `slots`. Use it as a context: they end with it. `make`: as of `StepProcess`."""

    def __init__(
        self, recipe: Recipe, source: str, output: Path, slots: WorkerSlots, make: Callable[..., RemoteProcess]
    ):
        count = len(slots.runtimes)
        logs = [worker_log(output, number) if count > 1 or slots.elsewhere else None for number in range(count)]
        self._processes = [
            StepProcess(dataclasses.replace(recipe, runtime=each), source, output, log, make)
            for each, log in zip(slots.runtimes, logs, strict=True)
        ]
        self._output = output
        self._idle = list(self._processes)
        self._busy: dict[str, StepProcess] = {}  # by the folder of the step
        self._ended: SimpleQueue[_Ended] = SimpleQueue()
        self._losses, self._waits = Counter[str](), 0
        # The kernel ends a process with the thread that started it: these threads last as long as the processes.
        self._threads = ThreadPoolExecutor(count)
        self._futures: list[Future[None]] = []
        self._stack = ExitStack()

    @property
    def size(self) -> int:
        return len(self._processes)

    @property
    def running(self) -> frozenset[str]:
        """The folders that are being made."""
        return frozenset(self._busy)

    def __enter__(self) -> StepPool:
        with ExitStack() as stack:
            for process in self._processes:
                stack.enter_context(process)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            for process in self._busy.values():
                process.interrupt()
            wait(self._futures, timeout=GRACE)
        finally:  # a second Ctrl-C
            for process in self._busy.values():
                process.kill()
            self._stack.close()
            self._threads.shutdown()

    def begin(self, step: Step, seconds: float | None = None) -> None:
        """Begin to make a step in an idle process. `seconds`: as of `StepProcess.make`."""
        self._begin(step, None if seconds is None else time.monotonic() + seconds)

    def wait(self) -> StepResult:
        """The next step that ends. What was lost with its node is begun again. What is no error of nlpctl's is raised,
        and what ends all work on a cluster."""
        while True:
            ended = self._ended.get()
            error = ended.error
            # Behind the others: one of these goes on, if it is idle.
            self._idle.insert(0, self._busy.pop(ended.step.folder))
            if isinstance(error, UnfitNode | ClusterLost) or not isinstance(error, NlpctlError | None):
                raise error
            if isinstance(error, WorkerLost | WorkerKilled | NoRoom) and self._may_go_again(ended.step, error):
                self._begin(ended.step, ended.deadline)
                continue
            self._waits = 0
            return StepResult(ended.step, error, ended.seconds, ended.resumed)

    def _may_go_again(self, step: Step, error: NlpctlError) -> bool:
        name = step.folder
        if isinstance(error, NoRoom):
            self._waits += 1
            if self._waits == 1:
                console.note(f"{name}: {error.problems[0].message}; it is asked for again")
            return self._waits <= MOST_WAITS or bool(self._busy)
        self._losses[name] += 1
        if self._losses[name] == MOST_LOSSES:
            return False
        console.note(f"{name}: {error.problems[0].message}; another worker makes it")
        return True

    def _begin(self, step: Step, deadline: float | None) -> None:
        process = self._idle.pop()
        self._busy[step.folder] = process
        self._futures.append(self._threads.submit(self._make, process, step, deadline))

    def _make(self, process: StepProcess, step: Step, deadline: float | None) -> None:
        started, resumed, error = time.monotonic(), (self._output / step.folder).exists(), None
        try:
            process.make(step, None if deadline is None else max(0.0, deadline - started))
        except BaseException as failed:  # nobody must wait for ever
            error = failed
        self._ended.put(_Ended(step, error, time.monotonic() - started, resumed, deadline))


def worker_log(output: Path, number: int) -> Path:
    """Where the process of a worker writes to, where there are several."""
    return output / f"worker-{number}.log"


# One process.


class StepProcess:
    """Makes steps in another process, which is replaced after a failed step. Use it as a context."""

    def __init__(
        self,
        recipe: Recipe,
        source: str,
        output: Path,
        log: Path | None = None,
        make: Callable[..., RemoteProcess] = HERE,
    ):
        """`log`: where standard error goes; None: where that of this process goes. `make`: takes what `Worker`
        takes."""
        self._arguments = (recipe, source, output, log)
        self._output, self._log, self._make = output, log, make
        self._worker: RemoteProcess | None = None
        self._stopped = False

    def __enter__(self) -> StepProcess:
        prefix = staging_prefix("temporary")  # if this command is killed, the next one removes it
        with writing(self._output, FREE_SPACE):
            self._temporary = tempfile.TemporaryDirectory(None, prefix, self._output, ignore_cleanup_errors=True)
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            self._end()
        finally:
            self._temporary.cleanup()  # leftovers of a process that died in the middle of a step

    def make(self, step: Step, seconds: float | None = None) -> None:
        """Make the folder of `step`. RunFailed or the step's own error if it fails; TimeIsUp after `seconds`. Of a
        process elsewhere also what its `start` raises, WorkerLost and WorkerKilled.

        A training begins in a new process. KeyboardInterrupt stops the step and is raised again.
        """
        if step.trains:
            self._end()
        try:
            self._ask(step, seconds)
        except BaseException as error:
            # After an error of the step itself its process waits for the next one, and can leave in order.
            self._end(interrupt=isinstance(error, TimeIsUp) or not isinstance(error, NlpctlError))
            remove_leftovers_of(self._output / step.folder)  # of a process that could not clean up itself
            raise
        if step.trains:
            self._end()

    def _ask(self, step: Step, seconds: float | None) -> None:
        def note_progress(so_far: float) -> None:
            console.note(f"{step.folder}: {so_far:.0f} s so far")

        if self._worker is None or not self._worker.alive:
            self._end()
            self._worker = self._make(_open_executor, self._temporary.name, *self._arguments, grace=GRACE)
            self._worker.start()
        if self._stopped:  # before there was a process to interrupt
            raise KeyboardInterrupt
        silent = step.trains and self._log is None  # it tells its progress itself
        try:
            self._worker.ask(step, step.name, seconds=seconds, progress=None if silent else note_progress)
        except TimeoutError:
            hint = "run the same command again to continue, with a longer --budget"
            raise TimeIsUp(f"was stopped after {seconds:.0f} s", step.name, hint) from None

    def interrupt(self) -> None:
        """Have the step that another thread makes end like Ctrl-C: `make` raises there."""
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        """The same, at once."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        self._stopped = True
        worker = self._worker
        if worker is not None:
            worker.send_signal(number)

    def _end(self, interrupt: bool = False) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.end(interrupt)


def _open_executor(
    temporary: str, recipe: Recipe, source: str, output: Path, log: Path | None = None
) -> Callable[[Step], None]:
    """Runs in the process: makes the steps."""
    child_main(log)
    tempfile.tempdir = temporary
    executor = StepExecutor(recipe, set_up_process(recipe), source, output)

    def make(step: Step) -> None:
        # On another node the process of an earlier try may still hold it for a moment.
        wait_until_free(output / step.folder, LET_GO)
        executor.make(step)

    return make


# One step, in that process.


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
            copy_fp32(Path(self.source), folder)
            add_onnx(folder)
        else:
            self._export(step, self.recipe, self.source, folder, final)

    def _export(self, step: Step, recipe: Recipe, model: str, folder: Path, final: Path) -> None:
        """Write the fp32 graphs of a model folder for both engines; for Paddle alone where ONNX cannot have them."""
        from nlpctl.export.write_export import write_export
        from nlpctl.graphs.onnx import require_paddle2onnx

        try:
            require_paddle2onnx(*BY_STRATEGY)
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
        manifest = read_manifest(origin)
        copy_files(origin, folder, {name for graph in manifest.graphs for name in graph.files})
        making = Making(
            origin=origin,
            graphs=manifest.graphs,
            folder=folder,
            rows=lambda: calibration_batches(step, reading, origin),
            networks=tuple(self.output / name for name in step.needs[1:]),
            planned=Planned(step, self.recipe, own),
        )
        graph = step.made_by.make_graph(making)
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
            from nlpctl.engines.auto import choices, open_choice
            from nlpctl.engines.parity import LARGEST_BATCH, Parity
            from nlpctl.engines.samples import read_description

            folder, setup = self.output / export, self.setup
            manifest = read_manifest(folder)
            task, encoder = read_description(folder, recipe)
            readers = task_rows(recipe.task, recipe.data)
            rows = rows_to_compare(readers, None, encoder.tokenizer, ROWS, masked=task.hides)
            choice = next(each for each in choices(manifest, setup) if each.precision == "fp32")
            reference = open_choice(folder, manifest, choice, setup, LARGEST_BATCH)
            self._parities[export] = Parity(task, encoder, rows.examples, reference.outputs)
        return self._parities[export]


def calibration_batches(step: Step, recipe: Recipe, origin: Path) -> Iterator[Batch]:
    """The batches of training rows that a step's calibration names, for the export `origin`. `recipe`: reads text as
    its network does."""
    from nlpctl.engines.parity import batches_of
    from nlpctl.engines.samples import read_description

    wanted = step.calibration
    assert wanted is not None
    task, encoder = read_description(origin, recipe)
    readers = task_rows(recipe.task, recipe.data)
    if not has_split(recipe.data, "train"):
        console.warn("there are no training rows: calibrated on dev, by which candidates are chosen too")
    examples = rows_to_calibrate(readers, None, encoder.tokenizer, wanted.rows, masked=task.hides)
    yield from islice(batches_of(task, encoder, examples, wanted.batch_size), wanted.batches)
