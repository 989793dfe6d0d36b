"""A folder that a command fills piece by piece, and that the same command goes on with after it was killed.

A run directory, the folder of several trainings and that of a compression are such folders. What they have in common:

- a document says what the work is, and is written before anything else: manifest.json (run_directory.py), series.json
  (experiments/series.py), plan.json (compress/plan.py). By it a later command knows the folder, and compares what it is
  asked for; `changed_sums` (checksums.py) tells the files that differ;
- one process at a time works in the folder: it holds the lock of the folder itself, which the kernel releases when the
  process ends, however it ends. Whatever was checked before is checked again once the lock is held;
- pieces are complete or absent, since they are written aside and renamed (files.py: `staged_dir`, `staged_file`). So
  a piece that is there need not be made again, and what a killed command left aside is known by its name;
- for --overwrite the pieces go, never an input of the command, and never what nlpctl did not write.

Two other ways to write stay apart. What is replaced as a whole (an export, an index, a converted model) is locked
beside its place (`sole_writer` in lock.py), since the folder itself is exchanged; so is the folder of a divided
prediction, which becomes the output (inference/shard_folder.py). And the one growing file of an undivided prediction
(`PartialOutput` in inference/predict.py) is cut back to its last whole chunk when it goes on, since a file of its own
for each chunk would be thousands.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from nlpctl.errors import UserError
from nlpctl.files import STAGING_PREFIX, remove_dir, remove_leftovers
from nlpctl.outputs import refuse_inputs
from nlpctl.runtime.lock import Lock, take_lock


class WorkFolder:
    """The lock of one folder, and what all kinds of such folders do in it. `path` need not exist."""

    def __init__(self, path: Path, pieces: Sequence[str] = ()):
        """`pieces`: the folders in it into which pieces are published."""
        self.path, self._pieces = path, tuple(pieces)
        self._lock: Lock | None = None

    @property
    def is_held(self) -> bool:
        """Whether this object holds the lock."""
        return self._lock is not None

    def take(self) -> bool:
        """Lock the folder, which must exist, for this process; False if another process holds it. OSError."""
        if self._lock is None:
            self._lock = take_lock(self.path)
        return self._lock is not None

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    @contextlib.contextmanager
    def held(self, in_use: UserError) -> Iterator[None]:
        """Hold the lock in the context; `in_use` is raised if another process holds it."""
        if not self.take():
            raise in_use
        try:
            yield
        finally:
            self.release()

    def remove_leftovers(self) -> None:
        """Remove what a killed command left, or put back what it was replacing; only the holder of the lock may do so,
        since a working process has such files too."""
        for folder in (self.path, *(self.path / name for name in self._pieces)):
            remove_leftovers(folder)

    def holds_more(self, *names: str) -> bool:
        """Whether there is anything but `names`, and what killed commands left."""
        return any(path.name not in names and not path.name.startswith(STAGING_PREFIX) for path in self.path.iterdir())

    def remove(self, paths: Iterable[Path]) -> None:
        """Remove folders and files for --overwrite, as far as they exist.

        UserError, before any is gone: one is an input of the command.
        """
        paths = list(paths)
        refuse_inputs(*paths)
        for path in paths:
            if path.is_dir() and not path.is_symlink():
                remove_dir(path)
            else:
                path.unlink(missing_ok=True)
