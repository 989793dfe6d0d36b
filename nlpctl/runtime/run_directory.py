"""The run directory: its files, its lock, and its state.

    NAME/recipe.yaml     the resolved recipe: running it again reproduces the run
         manifest.json   command, versions, git commit, device, seed, data hashes, times, state
         events.jsonl    one line per log, evaluation and save
         checkpoints/    checkpoint-N, complete or absent
         model/          the best model; any command accepts this folder
         metrics.json    final scores per split
         mistakes.json   the worst errors on dev (or test)
         tallies/        what each row of dev and test adds to the scores, to compare runs; slices.json
         report.html     all of this as one page
         logs/           one log per process when there are several; VisualDL
"""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from nlpctl.checksums import changed_sums, sums_of
from nlpctl.documents import Count, Document, Finite, Moment, moment, whole_content
from nlpctl.errors import Interrupted, NlpctlError, Pruned, RunFailed, UserError, remedy
from nlpctl.files import remove_dir, write_json_atomic, write_text_atomic
from nlpctl.layout import (
    CARD,
    CHECKPOINTS,
    EVENTS,
    LOGS,
    MANIFEST,
    METRICS,
    MISTAKES,
    MODEL,
    RECIPE,
    REPORT,
    SERIES,
    SLICES,
    TALLIES,
    checkpoints_in,
)
from nlpctl.names import and_more, differing
from nlpctl.outputs import is_signed, refuse_inputs, refuse_lost_link, refuse_part
from nlpctl.runtime.event_log import EventLog
from nlpctl.runtime.interrupt import sigterm_interrupts
from nlpctl.runtime.work_folder import WorkFolder

RunState = Literal["running", "finished", "failed", "interrupted", "pruned"]
FURTHER = "further_files"  # in the manifest: what a training depends on besides its data
KEPT = ("continues", "time", "steps")  # facts of the manifest that a resumed run keeps
# In the manifests of networks that other commands than `nlpctl train` make
OF_COMPRESS, OF_ENSEMBLE = {"made_by": "compress"}, {"made_by": "ensemble"}


@dataclass(frozen=True)
class SkippedRows:
    """Of the bad rows that the training skipped in a split, the entry that every version wrote."""

    total: int


@dataclass(frozen=True)
class TruncatedRows:
    """Of the training rows that were looked at, those of more tokens than data.max_seq_length; `unread`: the share of
    the tokens of all."""

    rows: Count
    truncated: Count
    unread: Finite


@dataclass(frozen=True)
class ContinuedRun:
    """The finished `run` that a new one trains further, from its `checkpoint`, after `step`; `best`: its best one."""

    run: str
    checkpoint: str
    best: str | None
    step: Count


def _resumption(value: Mapping[str, str]) -> None:
    moment(value.get("at", ""))
    if "was" not in value:
        raise ValueError("does not say the state before")


@dataclass(frozen=True)
class RunManifest(Document):
    """manifest.json of a run: what is trained, by what and from what, and how that ended. `nlpctl train` and other
    commands that train write it first and add to it; commands that go on with the run, use it or list it read it.

    `resumed`: when the run was taken up again, and its state before ("at", "was"); `seconds_before`: what it had taken
    until the last of these (`seconds_of`); `data`, `further_files`,
    `functions`: SHA-256 of what the weights depend on (config/paths.py, config/user_code.py); `planned_processes`:
    among which the recipe's batches are divided as it says; `continues`: the finished run that this one trains further
    (training/continued.py); `time`, `steps`: where the time went (runs/time_shares.py), and what a step is made of
    (training/arguments.py); `made_by`: the command, if it is not `nlpctl train`; `content`: all entries.
    """

    FORMAT: ClassVar[int | None] = 1
    REPAIR: ClassVar[str] = "name another folder, or delete this one if it is not needed"

    state: RunState
    pid: int | None = None
    host: str | None = None
    started: Moment | None = None
    ended: Moment | None = None
    error: str | None = None
    resumed: tuple[Annotated[Mapping[str, str], _resumption], ...] = ()
    seconds_before: Finite | None = None  # older versions did not note them
    device: str | None = None
    processes: Count | None = None
    planned_processes: Count | None = None
    command: tuple[str, ...] = ()
    versions: Mapping[str, Any] = field(default_factory=dict)
    git_commit: str | None = None
    seed: int | None = None
    data: Mapping[str, str] = field(default_factory=dict)
    further_files: Mapping[str, str] | None = None  # older versions did not note them
    environment: Mapping[str, str] = field(default_factory=dict)
    functions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    skipped_rows: Mapping[str, SkippedRows] = field(default_factory=dict)
    truncated_rows: TruncatedRows | None = None  # older versions did not note them
    parameters: Mapping[str, Any] = field(default_factory=dict)
    continues: ContinuedRun | None = None
    time: Mapping[str, Any] | None = None
    steps: Mapping[str, Any] | None = None
    made_by: str | None = None
    content: Mapping[str, Any] = whole_content()


@dataclass(frozen=True)
class MetricsFile(Document):
    """metrics.json of a run: the report of each split that its model was scored on, at the end of the training."""

    REPAIR: ClassVar[str] = "score the model again: nlpctl eval, or train again"

    splits: Mapping[str, Mapping[str, Any]] = whole_content()


class RunDirectory:
    """One run on disk. Only the process that called `begin` changes its state; process 0 of several may add facts."""

    def __init__(self, path: Path, elsewhere: str = "use another training.output_dir"):
        """`elsewhere`: for hints, how to name another folder."""
        self.path, self._elsewhere = Path(path), elsewhere
        self._folder = WorkFolder(self.path, (CHECKPOINTS,))  # held from `begin` to the end of `recorded`

    @property
    def manifest_file(self) -> Path:
        return self.path / MANIFEST

    @property
    def recipe_file(self) -> Path:
        return self.path / RECIPE

    @property
    def events_file(self) -> Path:
        return self.path / EVENTS

    @property
    def metrics_file(self) -> Path:
        return self.path / METRICS

    def tallies_file(self, split: str) -> Path:
        """What each row of `split` adds to its scores (tasks/tallies.py)."""
        return self.path / TALLIES / f"{split}.npz"

    @property
    def slices_file(self) -> Path:
        """Scores of rows with a label, or of a length (tasks/slices.py)."""
        return self.path / TALLIES / SLICES

    @property
    def mistakes_file(self) -> Path:
        return self.path / MISTAKES

    @property
    def _results(self) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
        """The folders and the files that an earlier run left, but the checkpoints, the manifest and the recipe."""
        files = self.events_file, self.metrics_file, self.mistakes_file, self.report_file
        return (self.model, self.logs, self.path / TALLIES), files

    @property
    def report_file(self) -> Path:
        return self.path / REPORT

    @property
    def checkpoints(self) -> Path:
        return self.path / CHECKPOINTS

    @property
    def model(self) -> Path:
        return self.path / MODEL

    @property
    def logs(self) -> Path:
        return self.path / LOGS

    @property
    def is_finished(self) -> bool:
        """Whether a training finished here, so that its model can be used."""
        return self.manifest_file.is_file() and self.read_manifest().state == "finished" and self.model.is_dir()

    @property
    def made_by(self) -> str | None:
        """The command that made this run, if it was not `nlpctl train`: compress or ensemble."""
        try:
            return self.read_manifest().made_by
        except UserError:  # missing, or unreadable, which the code that needs it reports
            return None

    @property
    def is_of_compress(self) -> bool:
        """Whether this is a network of `nlpctl compress`, whose recipe does not include the teacher."""
        return self.made_by == OF_COMPRESS["made_by"]

    @property
    def is_of_series(self) -> bool:
        """Whether this is one of several trainings of a recipe."""
        return (self.path.parent / SERIES).is_file()

    def to_go_on(self, change: str = "") -> str:
        """For hints: the command that resumes this run, with the flags `change`, or that makes it anew."""
        maker = self.made_by
        if maker == OF_ENSEMBLE["made_by"]:
            change = " ".join(filter(None, ["--overwrite", change]))
        if maker is not None:
            return f"the same `nlpctl {maker}` command" + (f" with `{change}`" if change else "")
        return f"`nlpctl train {shlex.quote(str(self.path))} --resume{f' {change}' if change else ''}`"

    def read_manifest(self) -> RunManifest:
        """manifest.json; UserError when it cannot be read."""
        return RunManifest.load(
            self.manifest_file, f"{self._elsewhere}, or delete this folder if it is not needed"
        )

    def read_metrics(self) -> Mapping[str, Mapping[str, Any]]:
        """metrics.json: the scores by split. UserError when it cannot be read."""
        return MetricsFile.load(self.metrics_file).splits

    def last_checkpoint(self) -> Path | None:
        """The newest complete checkpoint, or None."""
        found = checkpoints_in(self.checkpoints)
        return found[-1] if found else None

    # -- beginning ---------------------------------------------------------------------------

    def check(self, *, resume: bool, overwrite: bool) -> None:
        """The checks of `begin` that are possible before the data is read.

        Raises UserError when the directory holds a finished run (unless `overwrite`), an unfinished one
        (unless `resume` or `overwrite`), a run in progress, or files that are not a run's.
        """
        if resume and overwrite:
            message = "@[resume=true] and @[overwrite=true] cannot be combined"
            raise UserError(message, where="@[resume]", hint="keep one of them")
        refuse_lost_link(self.path)
        refuse_part(self.path)
        if self.manifest_file.exists():
            self._refuse_if_in_progress()
            old = self.read_manifest()
            if overwrite:
                folders, files = self._results
                refuse_inputs(self.checkpoints, *folders, *files)
            else:
                self._refuse_to_replace("killed" if old.state == "running" else old.state, resume)
        elif self.path.exists() and self._folder.holds_more():
            raise UserError(
                "the folder is not empty and is not a run directory; nlpctl does not write into it",
                where=str(self.path),
                hint=self._elsewhere,
            )

    def begin(self, manifest: Mapping[str, Any], recipe_yaml: str, *, resume: bool, overwrite: bool) -> None:
        """Create or resume the run: check that no result gets lost, then write recipe and manifest.

        Raises UserError as `check` does, and when a resumed run would see other data.
        """
        self.check(resume=resume, overwrite=overwrite)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._take()
            self.check(resume=resume, overwrite=overwrite)  # now that nobody else can change the folder
            self._write_beginning(manifest, recipe_yaml, overwrite)
        except OSError as error:
            self._folder.release()
            raise UserError(
                f"cannot write the run directory ({error.strerror})",
                where=str(self.path),
                hint=f"free space and make it writable, or {self._elsewhere}",
            ) from None
        except BaseException:  # Ctrl-C too: in a notebook the process goes on
            self._folder.release()
            raise

    def _write_beginning(self, manifest: Mapping[str, Any], recipe_yaml: str, overwrite: bool) -> None:
        """Write manifest and recipe of a new or resumed run in a locked folder."""
        started = _now()
        resumed_from: list[Mapping[str, str]] = []
        kept: dict[str, Any] = {}
        before = 0.0
        if self.manifest_file.exists():
            old = self.read_manifest()
            if not overwrite:
                self.refuse_if_different(old, manifest, "train again with @[overwrite=true]")
                resumed_from = [*old.resumed, {"at": started, "was": old.state}]
                kept = {name: old.content[name] for name in KEPT if name in old.content}
                before = seconds_of(old.content, self._last_event()) or 0.0
                started = old.started or started
        state = {
            "state": "running",
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "started": started,
            "ended": None,
            "error": None,
            "resumed": resumed_from,
            "seconds_before": before,
        }
        if overwrite:
            self._forget_progress()
        self._write({**state, **kept, **manifest})  # before any other file: without it, this is not a run's folder
        if overwrite:
            self._clear()
        self.checkpoints.mkdir(exist_ok=True)
        # Only the holder of the lock may do this: a running process may be staging files.
        self._folder.remove_leftovers()
        write_text_atomic(self.recipe_file, recipe_yaml)

    def _last_event(self) -> datetime:
        """When a run that was killed is last known to have been there; 1970 if it told nothing. Not by the times of its
        files, which are new in a copy."""
        times, now = (each.get("time") for each in EventLog(self.events_file).read()), datetime.fromisoformat(_now())
        sound = (each for each in times if isinstance(each, int | float) and 0 < each <= now.timestamp())
        return datetime.fromtimestamp(max(sound, default=0.0), timezone.utc)

    def _refuse_to_replace(self, state: str, resume: bool) -> None:
        """UserError for an existing run in `state`, unless it is unfinished and resumed."""
        if resume and state == "finished":
            raise UserError(
                "the run is finished; there is nothing to resume",
                where=str(self.path),
                hint="use @[overwrite=true] to train again, or `nlpctl train RUN --continue N` for N more epochs",
            )
        if not resume:
            raise UserError(
                f"the folder holds a run that is {state}",
                where=str(self.path),
                hint="use " + ("" if state == "finished" else "@[resume=true] to continue, ")
                + f"@[overwrite=true] to train again; or {self._elsewhere}",
            )

    def _refuse_if_in_progress(self) -> None:
        if not self._folder.is_held:
            self._take()
            self._folder.release()

    def _take(self) -> None:
        """Lock the folder; UserError if another run holds the lock."""
        if not self._folder.take():
            raise UserError(
                f"the run is in progress (process {self.read_manifest().pid})",
                where=str(self.path),
                hint=f"wait for it, stop it, or {self._elsewhere}",
            )

    def refuse_if_different(self, old: RunManifest, new: Mapping[str, Any], otherwise: str) -> None:
        """UserError if a run with the manifest `new`, which goes on from `old`, would see other data.

        The caller compares the recipe and the processes. `otherwise`: for the hint.
        """
        changed = changed_sums(old.data, new["data"])
        if old.further_files is not None:
            changed += differing(old.further_files, new.get(FURTHER, {}))
        if changed:
            raise UserError(
                f"the data changed since the run began: {and_more(changed, 10)}",
                where=str(self.path),
                hint=f"restore the files, or {otherwise}",
            )

    def _forget_progress(self) -> None:
        """Remove the checkpoints of an earlier run, before the new manifest, so that no run resumes from them."""
        remove_dir(self.checkpoints)
        self.recipe_file.unlink(missing_ok=True)

    def _clear(self) -> None:
        """Remove the other files of an earlier run, except the manifest and files that nlpctl did not write."""
        folders, files = self._results
        self._folder.remove((*folders, *files))
        if is_signed(self.path / CARD):
            (self.path / CARD).unlink()

    # -- during the run ---------------------------------------------------------------

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        """At the end of the context, the manifest says finished, failed, pruned or interrupted, in any case."""
        try:
            with sigterm_interrupts():
                yield
        except KeyboardInterrupt:
            self._end_badly("interrupted", "stopped by a signal")
            raise Interrupted("interrupted", where=str(self.path), hint=self._resume_hint()) from None
        except Pruned as error:
            self._end("pruned", error.problems[0].message)
            raise
        except BaseException as error:
            self._end_badly("failed", f"{type(error).__name__}: {error}")
            # Full disks and memory are nobody's bug; other exceptions keep their traceback.
            if isinstance(error, NlpctlError) or not isinstance(error, MemoryError | OSError):
                raise
            hint = f"{remedy(error)}, then: {self._resume_hint()}"
            raise RunFailed(str(error) or "out of memory", where=str(self.path), hint=hint) from error
        else:
            self._end("finished", None)
        finally:
            self._folder.release()

    def _resume_hint(self) -> str:
        if self.made_by == OF_ENSEMBLE["made_by"]:
            return f"{self.to_go_on()} begins again"
        checkpoint = self.last_checkpoint()
        place = "the start, since there is no checkpoint yet" if checkpoint is None else checkpoint.name
        return f"{self.to_go_on()} goes on from {place}"

    def update_manifest(self, **values: Any) -> None:
        """Add facts that are known only during the run, such as the rows that were skipped."""
        self._write({**self.read_manifest().content, **values})

    def _end(self, state: str, error: str | None) -> None:
        self.update_manifest(state=state, error=error, ended=_now())

    def _end_badly(self, state: str, error: str) -> None:
        """Like `_end`, but an error while writing the manifest (a full disk) must not hide the original error."""
        with contextlib.suppress(OSError, UserError):
            self._end(state, error)

    def _write(self, manifest: Mapping[str, Any]) -> None:
        # Not through the class: an entry that does not fit must not end a training that is done.
        write_json_atomic(self.manifest_file, {"format": RunManifest.FORMAT, **manifest})


def describe_run(command: Sequence[str], seed: int, data_files: Sequence[Path], versions: Mapping[str, str]) -> dict:
    """The part of the manifest that is known before the run: command, versions, commit, seed, data hashes."""
    return {
        "command": list(command),
        "versions": dict(versions),
        "git_commit": git_commit(),
        "seed": seed,
        "data": sums_of(data_files),
    }


def git_commit(besides: Sequence[str] = ()) -> str | None:
    """The commit of the current folder's repository, with `+changes` when files other than `besides` differ from it.

    None outside of a repository.
    """
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10)
        looked = ["git", "status", "--porcelain", "-uno", "--", ":/", *(f":(top,exclude){each}" for each in besides)]
        status = subprocess.run(looked, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if head.returncode != 0:
        return None
    return head.stdout.strip() + ("+changes" if status.stdout.strip() else "")


def seconds_of(manifest: Mapping[str, Any], now: datetime) -> float | None:
    """The seconds that a run took, without the pauses before it was resumed, by the entries of its manifest; None if
    unknown. `now`: the end of a run that has not noted one."""
    begun, ended, before = manifest.get("started"), manifest.get("ended"), manifest.get("seconds_before")
    if begun is None:
        return None
    if before is not None and manifest["resumed"]:
        begun = manifest["resumed"][-1]["at"]
    end = now if ended is None else datetime.fromisoformat(ended)
    return (before or 0.0) + max(0.0, (end - datetime.fromisoformat(begun)).total_seconds())


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
