"""`nlpctl runs clean`: what finished work needs no more, with its size; deleted once that is asked for.

    checkpoints   of finished runs but the newest, to train further from; all of folds, trials, networks of compress
    doubles       weights of a checkpoint that are those of the model: one file under both names
    leftovers     what killed commands were writing
    candidates    what compress chose best/ from: it would make them again
    trials        models of a finished sweep's trials, but the best

Never the model, an export, best/, nor what tells of a run (manifest, recipe, scores, logs, pages). Nothing goes where a
command works: a place is locked while it is looked at, and while it is cleaned. Links are not followed. What a training
keeps at its end (`tidy`) is decided here, too.
"""

from __future__ import annotations

import contextlib
import errno
import filecmp
import os
import shutil
import stat
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nlpctl import console
from nlpctl.console import display
from nlpctl.errors import Problem, UserError
from nlpctl.files import content_of, leftovers, remove_dir, remove_leftover, staged_path
from nlpctl.layout import (
    BEST_EXPORT,
    CANDIDATES,
    COMPRESS,
    COMPRESS_REPORT,
    EXPORT_MANIFEST,
    EXPORTS,
    MODEL,
    NETWORKS,
    PLAN,
    SERIES,
    SWEEP_RESULT,
    TRIALS,
    UNMADE,
    checkpoints_in,
    moved_aside,
    real_path,
)
from nlpctl.models.model_manifest import weights_sum
from nlpctl.models.source import WEIGHTS
from nlpctl.runs.run_files import is_run, other_kind
from nlpctl.runs.runs import state_of
from nlpctl.runtime.lock import held
from nlpctl.runtime.run_directory import RunDirectory

CHECKPOINT, DOUBLE, LEFTOVER, CANDIDATE, TRIAL = "checkpoints", "doubles", "leftovers", "candidates", "trials"
KINDS = (CHECKPOINT, DOUBLE, LEFTOVER, CANDIDATE, TRIAL)
_ONE_NAME = "this file system gives a file one name only"
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EMLINK)
QUIET = 3600.0  # seconds after which what is written beside runs counts as given up


@dataclass(frozen=True)
class Removable:
    """What may go: its kind, one of KINDS, its path, and the bytes that are free without it."""

    kind: str
    path: Path
    size: int

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "path": self.path, "bytes": self.size}


@dataclass
class Cleaning:
    """What `find` is to look for: which of KINDS, and how many checkpoints a finished run keeps.

    `busy`: what `find` left out, since a command works there, or since it cannot be locked.
    """

    kinds: Collection[str]
    keep: int
    busy: list[Path] = field(default_factory=list)
    _seen: set[Path] = field(default_factory=set)
    _links: Counter[tuple[int, int]] = field(default_factory=Counter)  # names of a file that were listed, by its inode

    def find(self, folder: Path) -> Iterator[Removable]:
        """What may go of `folder`, at any depth. While something is given, its place stays locked.

        UserError if there is no such folder, or if it is a part of a run, a series or a compression, whose lock counts.
        """
        if not folder.is_dir():
            raise UserError("there is no such folder", where=str(folder), hint="name the folder that holds your runs")
        for whole in real_path(folder).parents:
            of_run = is_run(whole) and real_path(folder) != whole / COMPRESS
            of_series = (whole / SERIES).is_file() and not is_run(folder)
            if of_run or of_series or _is_compression(whole):
                raise UserError("is a part of another folder", where=str(folder), hint=f"name that: {display(whole)}")
        for kind, path in self._in(folder):
            real = real_path(path)  # folders may be named that lie in each other
            if kind in self.kinds and real not in self._seen:
                self._seen.add(real)
                yield Removable(kind, path, self._freed(path))

    def _in(self, folder: Path, ended: bool = False) -> Iterator[tuple[str, Path]]:
        """`ended`: it is of a finished series, of which no run goes on."""
        if is_run(folder):
            yield from self._of_run(folder, ended)
        elif (folder / SERIES).is_file():
            yield from self._of_series(folder)
        elif _is_compression(folder):
            yield from self._of_compression(folder)
        else:
            # Nothing is locked here, and not all that is written has a lock of its own.
            yield from ((LEFTOVER, path) for path in _leftovers(folder) if _is_quiet(path))
            for inner in _folders(folder):
                if is_run(inner) or other_kind(inner) is None:  # a model, an export or an index is left alone
                    yield from self._in(inner, ended)

    def _of_run(self, folder: Path, ended: bool, *, best: bool = True) -> Iterator[tuple[str, Path]]:
        """`best`: False of a trial that is not the best of a finished sweep."""
        run = RunDirectory(folder)
        with self._locked(folder) as ours:
            if not ours:
                return
            try:
                manifest = run.read_manifest()
            except UserError:  # nobody knows what it holds
                return
            state = state_of(manifest.state, manifest.host, manifest.pid)
            if state == "running":  # on another machine, whose lock need not be seen here
                self.busy.append(folder)
                return
            for place in (folder, run.checkpoints, run.model):
                yield from ((LEFTOVER, path) for path in _leftovers(place))
            finished = state == "finished" and run.model.is_dir()
            keep = 0 if ended or manifest.made_by is not None else self.keep
            if finished or ended or state == "pruned":
                yield from ((CHECKPOINT, path) for path in _older_checkpoints(run, keep if finished else 0))
            if finished and best:
                yield from ((DOUBLE, path) for path in _doubles(run, keep))
            elif finished and not run.model.is_symlink():
                yield TRIAL, run.model
            if (folder / COMPRESS / PLAN).is_file() and not (folder / COMPRESS).is_symlink():
                yield from self._of_compression(folder / COMPRESS)

    def _of_series(self, folder: Path) -> Iterator[tuple[str, Path]]:
        with self._locked(folder) as ours:
            if not ours:
                return
            yield from ((LEFTOVER, path) for path in _leftovers(folder))
            series = content_of(folder / SERIES)
            finished = series.get("state") == "finished"
            parts = [series.get("runs"), series.get("own")]
            own = [name for names in parts if isinstance(names, list) for name in names]
            best, trials = content_of(folder / SWEEP_RESULT).get("best"), folder / TRIALS
            known = [trial.name for trial in _folders(trials) if (trial / MODEL).is_dir()]
            chosen = finished and best in known
            for inner in _folders(folder):
                if inner == trials and chosen:
                    for trial in filter(is_run, _folders(trials)):
                        yield from self._of_run(trial, True, best=trial.name == best)
                else:
                    yield from self._in(inner, finished and inner.name in own)  # a run of the user's may go on

    def _of_compression(self, folder: Path) -> Iterator[tuple[str, Path]]:
        with self._locked(folder) as ours:
            if not ours:
                return
            parts = [part for part in _folders(folder) if part.name in (NETWORKS, EXPORTS, CANDIDATES)]
            for place in (folder, *parts):
                yield from ((LEFTOVER, path) for path in _leftovers(place))
            report = content_of(folder / COMPRESS_REPORT)
            failures = [each.get("reason") for each in report.get("failures", []) if isinstance(each, dict)]
            if report and UNMADE not in failures and (folder / BEST_EXPORT / EXPORT_MANIFEST).is_file():
                yield from ((CANDIDATE, part) for part in parts)
            elif (folder / NETWORKS) in parts:
                for network in filter(is_run, _folders(folder / NETWORKS)):
                    yield from self._of_run(network, False)

    @contextlib.contextmanager
    def _locked(self, folder: Path) -> Iterator[bool]:
        """Whether this process holds the lock of `folder` inside the context."""
        with contextlib.ExitStack() as stack:
            ours = False
            with contextlib.suppress(OSError):
                ours = stack.enter_context(held(folder))
            if not ours:
                self.busy.append(folder)
            yield ours

    def _freed(self, path: Path) -> int:
        """The bytes of a file or folder; of a file that has further names, once all of these were listed."""
        total = 0
        for status in _regular_files(path):
            self._links[file := (status.st_dev, status.st_ino)] += 1
            total += status.st_size if self._links[file] == status.st_nlink else 0
        return total


@dataclass
class Deleted:
    """What is gone, the bytes that are free, and why the rest is not gone."""

    gone: list[Removable] = field(default_factory=list)
    freed: int = 0
    problems: list[Problem] = field(default_factory=list)


def delete(cleaning: Cleaning, folders: Sequence[Path], listed: Collection[Removable]) -> Deleted:
    """Delete what of `listed`, found in `folders`, may still go. What is busy by now is added to that of `cleaning`."""
    left, deleted = {each.path: each for each in listed}, Deleted()
    # Looked for again, since a place is locked only while `find` gives what is in it.
    again = Cleaning(cleaning.kinds, cleaning.keep)
    for path in (each.path for folder in folders for each in again.find(folder) if each.path in left):
        before, rest, reason = _bytes_of(path), None, None
        try:
            if left[path].kind == DOUBLE:
                if (reason := _share(path)) == _ONE_NAME:
                    console.note(f"{display(path)} stays: {reason}")
                    continue
            else:
                rest = (remove_leftover if left[path].kind == LEFTOVER else remove_dir)(path)
                reason = None if rest is None else _delete_again(rest)
                rest = None if reason is None else rest
        except OSError as error:
            reason = error.strerror or str(error)
        if reason is None:
            deleted.gone.append(left[path])
        else:
            hint = "check the rights of its folder, and who uses it; the same command tries again"
            deleted.problems.append(Problem(f"cannot be deleted ({reason})", display(rest or path), hint))
        if reason is None or rest is not None:
            deleted.freed += before - (0 if rest is None else _bytes_of(rest))
    cleaning.busy += [path for path in again.busy if path not in cleaning.busy]
    return deleted


def _delete_again(rest: Path) -> str | None:
    """Delete what could not be deleted; what the system says of the first thing that stays, None where it has gone."""
    try:
        if rest.is_dir():
            shutil.rmtree(rest)
        else:
            rest.unlink()
    except OSError as error:
        return f"{error.strerror or error}: {Path(error.filename or rest).name}"
    return None


def _bytes_of(path: Path) -> int:
    """The bytes that are free without this file or folder: those of files that have no other name."""
    sizes: dict[tuple[int, int], int] = {}
    names: Counter[tuple[int, int]] = Counter()
    for status in _regular_files(path):
        names[file := (status.st_dev, status.st_ino)] += 1
        sizes[file] = status.st_size if names[file] == status.st_nlink else 0
    return sum(sizes.values())


def _regular_files(path: Path) -> Iterator[os.stat_result]:
    """The status of a file, or of all files in a folder."""
    for each in (path, *path.rglob("*")):
        with contextlib.suppress(FileNotFoundError):  # gone meanwhile
            status = each.lstat()
            if stat.S_ISREG(status.st_mode):
                yield status


def tidy(run: RunDirectory, limit: int | None, *, model_is_best: bool) -> None:
    """At the end of a training: model/ takes the place of one of `limit` checkpoints, and only the newest stay, but one
    at least. None or 0, or where model/ is not the best of them: all stay. The file of weights that one of them has in
    common with model/ is there once."""
    try:
        with held(run.path) as ours:
            if not ours or not run.is_finished:  # somebody else's by now
                return
            if model_is_best and limit is not None and limit > 0:
                for path in _older_checkpoints(run, max(limit - 1, 1)):
                    rest = remove_dir(path)
                    if rest is not None and (reason := _delete_again(rest)) is not None:
                        console.warn(f"{display(rest)}: cannot be deleted ({reason})")
            for file in _doubles(run):
                _share(file)
    except OSError as error:
        console.warn(f"{display(run.path)}: checkpoints that are not needed stay ({error.strerror or error})")


def _older_checkpoints(run: RunDirectory, keep: int) -> list[Path]:
    """The damaged checkpoints that were moved aside, and all but the newest `keep` others; no links."""
    if run.checkpoints.is_symlink():
        return []
    found = checkpoints_in(run.checkpoints)
    older = [*moved_aside(run.checkpoints), *found[: max(len(found) - keep, 0)]]
    return [path for path in older if not path.is_symlink()]


def _doubles(run: RunDirectory, keep: int | None = None) -> list[Path]:
    """The weights of the newest `keep` checkpoints (None: of all) that are equal to those of the model, in files of
    their own: by the checksums that both folders list, which costs no reading, where they do."""
    model, found = run.model / WEIGHTS, checkpoints_in(run.checkpoints)
    files = [path / WEIGHTS for path in (found if keep is None else found[max(len(found) - keep, 0) :])]
    places = (run.checkpoints, run.model, model)
    if not model.is_file() or any(place.is_symlink() for place in places):
        return []
    return [
        file
        for file in files
        if file.is_file()
        and not (file.is_symlink() or file.parent.is_symlink() or file.samefile(model))
        and file.stat().st_size == model.stat().st_size
        and _seem_equal(file, model)
    ]


def _seem_equal(file: Path, other: Path) -> bool:
    sums = {weights_sum(each.parent) for each in (file, other)}
    return filecmp.cmp(file, other, shallow=False) if None in sums else len(sums) == 1


def _share(file: Path) -> str | None:
    """Make the weights of a checkpoint a further name of the model's file, if that has the same content, byte by byte;
    why it cannot be done, None if it is."""
    model = RunDirectory(file.parent.parent.parent).model / WEIGHTS
    if not filecmp.cmp(file, model, shallow=False):
        return "it is not what its checksum says, or the model is not"
    staged = staged_path(file)
    try:
        os.link(model, staged)
    except OSError as error:
        if error.errno in _NO_LINKS:
            return _ONE_NAME
        raise
    os.replace(staged, file)
    return None


def _is_compression(folder: Path) -> bool:
    return (folder / PLAN).is_file() and any((folder / part).is_dir() for part in (NETWORKS, EXPORTS, CANDIDATES))


def _leftovers(folder: Path) -> list[Path]:
    if folder.is_symlink() or not folder.is_dir():
        return []
    return [path for path in leftovers(folder) if not path.is_symlink()]


def _is_quiet(path: Path) -> bool:
    """Whether nothing was written into a file or folder for QUIET seconds, and nothing is renamed now."""
    try:
        return all(time.time() - each.lstat().st_mtime > QUIET for each in (path, *path.rglob("*")))
    except FileNotFoundError:
        return False


def _folders(folder: Path) -> list[Path]:
    """The folders in `folder`, without links and what is hidden; none if it cannot be read."""
    try:
        found = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError:
        return []
    return [path for path in found if path.is_dir() and not path.is_symlink()]
