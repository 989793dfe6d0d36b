"""The answers of a divided prediction: a folder of parts while it runs, then one file or a folder that is kept.

    OUTPUT.shards/plan.json            what the answers depend on, and how the input was cut
    OUTPUT.shards/input-0              a copy of a large packed file, which can be read from its middle
    OUTPUT.shards/part-000000.jsonl    the answers of a shard
    OUTPUT.shards/part-000000.json     its rows and its SHA-256: written last, so a part without it does not count
    OUTPUT.shards/worker-0.log         what a worker wrote to standard error
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Literal

from nlpctl import outputs
from nlpctl.checksums import sha256_of
from nlpctl.data.predict_shards import Shard
from nlpctl.documents import Count, Document
from nlpctl.errors import RunFailed, UserError
from nlpctl.files import STAGING_PREFIX, remove_dir, remove_leftovers, staged_file, writing
from nlpctl.inference.predict import shards_of
from nlpctl.layout import MANIFEST, PARTS, PLAN

if TYPE_CHECKING:
    import numpy as np

_ENOUGH = "free disk space, then continue with @[resume=true]"
_BLOCK = 1 << 20
VECTORS = ".f32"  # the ending of a part of vectors
_OWN = re.compile(rf"{re.escape(STAGING_PREFIX)}.*|worker-\d+\.log|input-\d+")  # what a folder holds before its plan


@dataclass(frozen=True)
class ShardPlan(Document):
    """plan.json of OUTPUT.shards: what a divided prediction depends on, written before the first part by `nlpctl
    predict`, `embed` and `index build` with --workers, and read by --resume.

    `identity`: the model, the input, the settings; `engine`: name and precision; `shard_rows`: how many a shard has;
    `ranges`: those that the input was cut into, as in data/predict_shards.py (file, begin, end, line), and what is in
    each, `scanned`: rows, bad rows, and the line at which some of its rows begin.
    """

    LARGEST: ClassVar[int] = 256 << 20  # some 60 bytes for every 1,024 rows

    identity: Mapping[str, Any]
    engine: tuple[str, str]
    shard_rows: Count
    ranges: tuple[tuple[Count, Count, Count | None, Count | None], ...]
    scanned: tuple[tuple[Count, Count, tuple[tuple[Count, Count], ...]], ...]


@dataclass(frozen=True)
class PartNote(Document):
    """part-N.json: what is known of a part, written after it, so that a part without it does not count.

    `file`: its name; `first`: the number of its first row; `rows`, and `bad_rows` and `truncated` ones among them;
    `bytes` and `sha256` of the file.
    """

    file: str
    first: Count
    rows: Count
    bad_rows: Count
    truncated: Count
    bytes: Count
    sha256: str

    def __post_init__(self) -> None:
        if Path(self.file).name != self.file:
            raise ValueError(f"names {self.file[:40]}, which is not in the folder")


@dataclass(frozen=True)
class PartsManifest(Document):
    """manifest.json of a folder of parts (`nlpctl predict --parts`): what the answers came from, and each part."""

    content: Literal["nlpctl predict --parts"]
    rows: Count
    bad_rows: Count
    truncated: Count
    engine: tuple[str, str]
    model: Any
    settings: Any
    keep: Any
    parts: tuple[PartNote, ...]


class ShardFolder:
    """The folder of one output. One process at a time may use it, and its workers."""

    def __init__(self, output: Path):
        self.output = output
        self.folder = shards_of(output)
        self._told: dict[int, PartNote] = {}  # by those who wrote the parts

    def plan(self) -> ShardPlan | None:
        """The plan of an interrupted prediction; None if there is none, or it is damaged."""
        return ShardPlan.load_if_valid(self.folder / PLAN)

    def refuse_foreign(self) -> None:
        """UserError if what has the name of the folder is not of a divided prediction: it would be removed."""
        if not os.path.lexists(self.folder):
            return
        if self.folder.is_dir() and not self.folder.is_symlink():
            if self.plan() is not None or all(_OWN.fullmatch(path.name) for path in self.folder.iterdir()):
                return
        hint = f"move {self.folder.name} away, or name another place: @[output]"
        message = "a divided prediction keeps its parts under this name, and what is there is not of one"
        raise UserError(message, where=str(self.folder), hint=hint)

    def log(self, number: int) -> Path:
        """Where a worker writes to, once there is a folder."""
        return self.folder / f"worker-{number}.log"

    def copy(self, number: int) -> Path:
        """Where the unpacked copy of a file of the input is."""
        return self.folder / f"input-{number}"

    def keep_copy(self, number: int, pieces: Iterable[bytes]) -> None:
        """Write such a copy."""
        with writing(self.folder, _ENOUGH), staged_file(self.copy(number)) as stream:
            stream.writelines(pieces)

    @contextlib.contextmanager
    def begun(self) -> Iterator[None]:
        """Start over. If the body fails before it keeps a plan, nothing is left.

        UserError if nothing can be written there.
        """
        with writing(self.output, "name another place: @[output]"):
            remove_dir(self.folder)
            self.folder.mkdir(parents=True)
        try:
            yield
        except BaseException:
            if not (self.folder / PLAN).exists():
                remove_dir(self.folder)
            raise

    def keep_plan(self, plan: ShardPlan) -> None:
        """From now on the prediction can be resumed."""
        with writing(self.output, "name another place: @[output]"):
            plan.save(self.folder / PLAN)

    def kept(self, shards: Iterable[Shard]) -> dict[int, PartNote]:
        """The finished ones of `shards`, by number. What is left of unfinished ones is removed."""
        remove_leftovers(self.folder)
        complete = {}
        for shard in shards:
            sums = self._kept_note(shard.number)
            if sums is not None and (sums.first, sums.rows) == (shard.first, shard.rows) and self._is_whole(sums):
                complete[shard.number] = sums
        return complete

    def note(self, number: int, sums: PartNote) -> None:
        """What the worker that wrote a part knows of it counts from now on, whatever the folder holds."""
        self._told[number] = sums

    def _kept_note(self, number: int) -> PartNote | None:
        if number in self._told:
            return self._told[number]
        return PartNote.load_if_valid(self._note(number))

    def _part_note(self, number: int) -> PartNote:
        """What is known of a part that was written. RunFailed if its note is damaged or gone."""
        note = self._kept_note(number)
        if note is None:
            raise _damaged(self._note(number))
        return note

    def _is_whole(self, sums: PartNote) -> bool:
        part = self.folder / sums.file
        return part.is_file() and part.stat().st_size == sums.bytes

    def write(self, shard: Shard, pieces: Iterable[tuple[bytes, int, int]], suffix: str = ".jsonl") -> PartNote:
        """Write the answers of a shard, given as pieces of the part, each with the numbers of bad rows and of truncated
        rows in it."""
        digest, size, bad, truncated = hashlib.sha256(), 0, 0, 0
        name = f"part-{shard.number:06}{suffix}"
        with writing(self.folder, _ENOUGH), staged_file(self.folder / name) as stream:
            for raw, bad_rows, truncated_rows in pieces:
                stream.write(raw)
                digest.update(raw)
                size += len(raw)
                bad += bad_rows
                truncated += truncated_rows
        sums = PartNote(name, shard.first, shard.rows, bad, truncated, size, digest.hexdigest())
        with writing(self.folder, _ENOUGH):
            sums.save(self._note(shard.number))
        return sums

    def finish_file(self, count: int) -> None:
        """Write the `count` parts one after the other to the output, and remove the folder."""
        with writing(self.output, _ENOUGH), staged_file(self.output) as stream:
            for number in range(count):
                for block in self._checked(number):
                    stream.write(block)
        remove_dir(self.folder)

    def finish_array(self, count: int) -> None:
        """Write the vectors in all parts to the output, a .npy file, and remove the folder."""
        from nlpctl.inference.embed import ArrayFile

        file = None
        with writing(self.output, _ENOUGH), staged_file(self.output) as stream:
            for vectors in self.vectors(count):
                file = ArrayFile(stream, vectors.shape[1:], vectors.dtype) if file is None else file
                file.append(vectors)
            assert file is not None, "there is at least one part"
            file.finish()
        remove_dir(self.folder)

    def vectors(self, count: int) -> Iterator[np.ndarray]:
        """The vectors of each part, float32 [rows, dim]. RunFailed if it is damaged."""
        import numpy as np

        for number in range(count):
            raw = b"".join(self._checked(number))
            yield np.frombuffer(raw, np.float32).reshape(self._part_note(number).rows, -1)

    def answers(self, number: int) -> list[dict[str, Any]]:
        """The answers of a part. RunFailed if it is damaged."""
        return [json.loads(line) for line in b"".join(self._checked(number)).decode().split("\n")[:-1]]

    def rewritten(self, number: int, suffix: str, write: Callable[[BinaryIO], None]) -> PartNote:
        """A part in another format, written by `write`, and what is known of it."""
        path = self.folder / f"part-{number:06}{suffix}"
        with writing(self.folder, _ENOUGH), staged_file(path) as stream:
            write(stream)
        note = self._part_note(number)
        return replace(note, file=path.name, bytes=path.stat().st_size, sha256=sha256_of(path))

    def checked_sums(self, count: int) -> list[PartNote]:
        """What is known of all parts, each of which has been read. RunFailed if one is damaged."""
        for number in range(count):
            for _ in self._checked(number):
                pass
        return [self._part_note(number) for number in range(count)]

    def finish_folder(self, sums: Sequence[PartNote], plan: ShardPlan) -> None:
        """Give the folder of parts its name, with a manifest in place of what was needed while it was made."""
        manifest = PartsManifest(
            content=PARTS,
            rows=sum(part.rows for part in sums),
            bad_rows=sum(part.bad_rows for part in sums),
            truncated=sum(part.truncated for part in sums),
            engine=plan.engine,
            model=plan.identity["model"],
            settings=plan.identity["settings"],
            keep=plan.identity["keep"],
            parts=tuple(sums),
        )
        with writing(self.output, _ENOUGH):
            manifest.save(self.folder / MANIFEST)
            remove_dir(self.output)
            os.replace(self.folder, self.output)
            for path in _passing(self.output, {MANIFEST, *(part.file for part in sums)}):
                path.unlink()  # last: until the folder has its name, a killed command can be resumed

    def _checked(self, number: int) -> Iterator[bytes]:
        """The bytes of a part. RunFailed, after the last, if they are not those that were written."""
        sums, digest = self._part_note(number), hashlib.sha256()
        part = self.folder / sums.file
        with part.open("rb") as stream:
            while block := stream.read(_BLOCK):
                digest.update(block)
                yield block
        if digest.hexdigest() != sums.sha256:
            self._note(number).unlink(missing_ok=True)
            raise _damaged(part)

    def _note(self, number: int) -> Path:
        return self.folder / f"part-{number:06}.json"


def _damaged(path: Path) -> RunFailed:
    hint = "continue with @[resume=true], which answers these rows again"
    return RunFailed("the answers are not those that were written: the disk has damaged them", str(path), hint)


def _passing(folder: Path, kept: Collection[str]) -> list[Path]:
    """The files of a prediction that are needed only while it is made."""
    patterns = (PLAN, "part-*", "worker-*.log", "input-*")
    return [path for name in patterns for path in folder.glob(name) if path.name not in kept]


def refuse_parts(output: Path, overwrite: bool) -> None:
    """UserError if `output` cannot become a folder of parts, or is one and must not be replaced."""
    manifest = PartsManifest.load_if_valid(output / MANIFEST)
    outputs.refuse_folder(output, overwrite, "a folder of parts", lambda _: manifest is not None)
    if manifest is not None:
        own = {MANIFEST, *(part.file for part in manifest.parts)}
        outputs.refuse_foreign(output, own | {path.name for path in _passing(output, own)})
