"""`nlpctl compress`: smaller and faster models of a trained one, each scored where it will run, and the best."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nlpctl.compression.hooks import check_hooks
from nlpctl.compression.plan_file import PLAN, check_plan, make_plan, write_plan
from nlpctl.compression.scores import Failure, Metric, Row, TestScore
from nlpctl.compression.selection import Aim, select
from nlpctl.compression.steps import CANDIDATES, EXPORTS, NETWORKS, ORIGINAL, Step, plan_steps, trains
from nlpctl.compression.strategy import KEY, TRAINED, Chain, parse_strategy
from nlpctl.config.checks import check
from nlpctl.config.schema import Recipe
from nlpctl.data.sources import has_split
from nlpctl.errors import Interrupted, NlpctlError, UserError
from nlpctl.inference.support import is_installed
from nlpctl.models.export_folder import read_manifest
from nlpctl.models.source import resolve_source
from nlpctl.runners.compress_worker import Workshop
from nlpctl.runners.score_candidates import Scorer, Timing, check_scorable
from nlpctl.runners.trained import check_export, one_process, prepared
from nlpctl.runtime import console
from nlpctl.runtime.files import remove_dir, remove_leftovers, writing
from nlpctl.runtime.interrupt import sigterm_interrupts
from nlpctl.runtime.layout import EXPORT, MODEL, RECIPE
from nlpctl.runtime.lock import take_lock
from nlpctl.runtime.run_directory import RunDirectory

COMPRESS = "compress"
SCORES = "scores"
_ELSEWHERE = "name another folder: -o FOLDER"


@dataclass(frozen=True)
class CompressResult:
    """Where everything lies, the table, what is missing in it and why, and the best row, also on test data."""

    folder: Path
    rows: tuple[Row, ...]
    failures: tuple[Failure, ...]
    metric: Metric
    aim: Aim
    reference: Row
    best: Row
    test: TestScore | None


def compress(
    recipe: Recipe, source: str, *, output: Path | None = None, overwrite: bool = False
) -> CompressResult:
    """Make every candidate that recipe.compression names of the model folder or export `source`, and score it.

    Folders and scores that are there from an earlier call are taken as they are. A candidate that fails costs nobody
    else. UserError, before anything is made, where a strategy cannot work with this model, task or machine;
    Interrupted after Ctrl-C: the same call goes on.
    """
    chains = parse_strategy(recipe.compression.strategy)
    _refuse_early(recipe, source, chains)
    folder = output if output is not None else _default_output(source)
    plan = make_plan(recipe, source)
    _refuse_output(folder, source, plan, recipe, overwrite)
    prepared(recipe)
    check_scorable(recipe)
    steps = plan_steps(chains, recipe.compression)
    with _taken(folder, overwrite, plan), sigterm_interrupts():
        try:
            return _Compression(recipe, source, folder, steps).run()
        except KeyboardInterrupt:
            hint = "the same command goes on from here"
            raise Interrupted("interrupted", where=str(folder), hint=hint) from None


@dataclass
class _Compression:
    """One call: which folders are made, and what they are worth."""

    recipe: Recipe
    source: str
    folder: Path
    steps: Sequence[Step]
    rows: list[Row] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    lost: set[str] = field(default_factory=set)  # folders that could not be made

    def run(self) -> CompressResult:
        section = self.recipe.compression
        aim = Aim(section.max_drop, section.target, section.batch_sizes)
        original = self.folder / EXPORTS / ORIGINAL
        recipe = _in_one_process(self.recipe)
        with Workshop(recipe, self.source, self.folder) as workshop:
            self._make(workshop, self.steps[0])
            if self.lost:
                raise self.error
            timing = Timing(batch_sizes=section.batch_sizes)
            with Scorer(recipe, original, self.folder / SCORES, timing) as scorer:
                reference = scorer.reference()
                for step in self.steps:
                    self._make(workshop, step)
                    if step.scored and step.folder not in self.lost:
                        scored = scorer.score(self.folder / step.folder)
                        self.rows += scored.rows
                        self.failures += scored.failures
                best = select(self.rows, reference, scorer.metric, aim)
                test = scorer.on_test(best)
                return CompressResult(
                    self.folder,
                    tuple(self.rows),
                    tuple(self.failures),
                    scorer.metric,
                    aim,
                    reference,
                    best,
                    test,
                )

    def _make(self, workshop: Workshop, step: Step) -> None:
        """Make a folder that is not there; what fails is told and noted."""
        if is_made(self.folder, step):
            return
        missing = [name for name in step.needs if name in self.lost]
        if missing:
            self._lose(step, f"needs {missing[0]}, which could not be made")
            return
        console.note(f"making {step.folder}")
        started = time.monotonic()
        try:
            workshop.make(step)
        except NlpctlError as error:
            self.error = error
            self._lose(step, str(error))
            console.warn(f"{step.name}: {error}")
        else:
            console.note(f"{step.folder} made in {time.monotonic() - started:.0f} s")

    def _lose(self, step: Step, reason: str) -> None:
        self.lost.add(step.folder)
        self.failures.append(Failure(step.name, "", reason))


def is_made(folder: Path, step: Step) -> bool:
    """Whether the folder of `step` is complete."""
    if not step.trains:
        return (folder / step.folder).is_dir()
    run = RunDirectory(folder / step.folder)
    return run.manifest_file.is_file() and run.read_manifest()["state"] == "finished" and run.model.is_dir()


def _in_one_process(recipe: Recipe) -> Recipe:
    return dataclasses.replace(recipe, runtime=one_process(recipe.runtime))


# -- what is refused before anything is made -------------------------------------------------


def _refuse_early(recipe: Recipe, source: str, chains: Sequence[Chain]) -> None:
    """UserError for what can be told without Paddle."""
    check_hooks(recipe)
    if not has_split(recipe.data, "dev"):
        check_scorable(recipe)  # tells so
    found = resolve_source(source)
    if found.kind == "export":
        _refuse_for_export(recipe, found.folder, chains)
    if trains(chains):
        problems = check(recipe, "train")
        if problems:
            raise UserError(problems=problems)
    if any(chain.int8 in ("ort-dynamic", "ort-static") for chain in chains):
        from nlpctl.export.onnx import require_paddle2onnx

        require_paddle2onnx()
        if not is_installed("onnxruntime"):
            raise UserError("ONNX Runtime is not installed", KEY, "pip install onnxruntime, or take ptq")


def _refuse_for_export(recipe: Recipe, folder: Path, chains: Sequence[Chain]) -> None:
    """UserError where a strategy needs more than the graphs of an export."""
    manifest = read_manifest(folder)
    check_export(recipe, manifest)
    training = [part for chain in chains for part in chain.parts if part in TRAINED]
    if training:
        message = f"{training[0]} trains a network, and an export holds graphs only"
        hint = "give the run or the model folder that it was made from, or take ptq, ort-dynamic"
        raise UserError(message, KEY, hint)


def _default_output(source: str) -> Path:
    """compress/ in the run that holds `source`. UserError for a model that is not of a run."""
    folder = resolve_source(source).folder
    if folder is not None:
        run = folder.resolve().parent
        if folder.name in (MODEL, EXPORT) and (run / RECIPE).is_file():
            return folder.parent / COMPRESS
    raise UserError("the model is not in a run: where shall the results go?", where="-o", hint="name it: -o FOLDER")


def _refuse_output(folder: Path, source: str, plan: dict, recipe: Recipe, overwrite: bool) -> None:
    """UserError where `folder` is something else, or holds what another plan made."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UserError("this is a file, not a folder", where=str(folder), hint=_ELSEWHERE)
    model = resolve_source(source).folder
    if model is not None and folder.resolve() in (model, *model.parents):
        raise UserError("this holds the model itself", where=str(folder), hint=_ELSEWHERE)
    if not any(folder.iterdir()):
        return
    if not (folder / PLAN).is_file():
        raise UserError("is no folder of compressed models, and is not touched", where=str(folder), hint=_ELSEWHERE)
    if not overwrite:
        check_plan(folder, plan, recipe)


@contextlib.contextmanager
def _taken(folder: Path, overwrite: bool, plan: dict) -> Iterator[None]:
    """Hold `folder` for this command alone, without what a killed one left behind."""
    with writing(folder, _ELSEWHERE):
        folder.mkdir(parents=True, exist_ok=True)
    lock = take_lock(folder)
    if lock is None:
        raise UserError("another command is at work here", where=str(folder), hint="wait for it, or stop it")
    try:
        with writing(folder, _ELSEWHERE):
            if overwrite:
                for path in [path for path in folder.iterdir() if path.is_dir()]:
                    remove_dir(path)
            write_plan(folder, plan)
            for name in (".", NETWORKS, EXPORTS, CANDIDATES):
                remove_leftovers(folder / name)
        yield
    finally:
        os.close(lock)
