"""manifest.json of a model folder: size and SHA-256 of its files, by which altered ones are detected.

It is written after everything else. Files that it does not list do not matter. Imports neither Paddle nor NumPy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from nlpctl.checksums import AlteredFiles, altered, check_sums, sums_in
from nlpctl.documents import Count, DamagedDocument, Document
from nlpctl.errors import UserError
from nlpctl.files import STAGING_PREFIX, json_of
from nlpctl.layout import CALIBRATION, CARD, CONVERSION, EXPORT_MANIFEST, LABELS, MANIFEST, REPORTS, TASK, config_file
from nlpctl.models.source import WEIGHTS
from nlpctl.outputs import refuse_folder, refuse_foreign

VOCABULARY = "vocab.txt"
POOLING = "1_Pooling"
CHANGING = (WEIGHTS, LABELS, CALIBRATION)  # what `changing` is for; one that was killed left them unlisted
_LARGEST = 1 << 28  # bytes of a vocabulary
_MEANT = "copy the model folder again; if the change is meant: @[runtime.trust_edits=true], or delete manifest.json"
_AGAIN = "copy the model folder again, or delete manifest.json to load it unchecked"


@dataclass(frozen=True)
class ModelManifest(Document):
    """manifest.json of a model folder: written last by whatever writes or changes such a folder, and read by whatever
    opens it. `kind` tells it from the manifests of a run and of an index.

    `vocabulary`: entries of vocab.txt, None without one; `size`, in bytes, and `sha256` by name of the file.
    """

    FORMAT: ClassVar[int | None] = 1
    REPAIR: ClassVar[str] = _AGAIN

    kind: Literal["model"]
    vocabulary: Count | None
    size: Mapping[str, Count]
    sha256: Mapping[str, str]

    def __post_init__(self) -> None:
        if self.size.keys() != self.sha256.keys():
            raise ValueError("lists sizes and checksums of different files")


@dataclass(frozen=True)
class _AnyManifest(Document):
    """A manifest.json of which only the kind is of interest."""

    kind: Any = None


def write_model_sums(folder: Path, copied_from: Path | None = None) -> None:
    """Write manifest.json with size and sum of every file of the model folder; write everything else first.

    Of a folder that was `copied_from` another one, what that one does not list (a README) is not listed either.
    """
    names = {path.name for path in folder.iterdir() if path.is_file() and not path.name.startswith(STAGING_PREFIX)}
    origin = None if copied_from is None else _read(copied_from)
    if origin is not None:
        names &= {*origin.sha256, WEIGHTS}
    _write(folder, sums_in(folder, names - {MANIFEST}))


def sentence_modules(folder: Path) -> list[Path]:
    """The folders of what sentence-transformers does after the encoder: 1_Pooling, and those of modules.json."""
    names = {POOLING}
    with suppress(OSError, ValueError, TypeError, AttributeError):
        names |= {str(module.get("path")) for module in json_of(folder / "modules.json")}
    return [folder / name for name in sorted(names) if name and Path(name).name == name and (folder / name).is_dir()]


def listed_files(folder: Path) -> set[str] | None:
    """The files that the manifest.json of a model folder lists; None if it has none. UserError if it is damaged."""
    manifest = _read(folder)
    return None if manifest is None else set(manifest.sha256)


def parts_of(folder: Path) -> list[Path]:
    """The files at the top of a model folder or an export but its card and what is for people."""
    return [path for path in sorted(folder.iterdir()) if path.is_file() and is_part(path.name)]


def is_part(name: str) -> bool:
    """Whether a file of this name is one of `parts_of`."""
    return name not in (MANIFEST, CARD, *CONVERSION, *REPORTS)


def refuse_model_folder(folder: Path, overwrite: bool, reads: Iterable[Path]) -> None:
    """UserError if `folder` cannot become a model folder that is made of `reads`, or is one and must not be replaced:
    it holds files that its manifest.json does not list.

    All is well without a manifest.json, or with a damaged one: nobody knows then which files belong to the model.
    """
    refuse_folder(folder, overwrite, "a model folder", _is_model_folder, reads)
    try:
        manifest = _read(folder)
    except UserError:
        return
    if manifest is not None:
        modules = [path.name for path in sentence_modules(folder)]
        refuse_foreign(folder, (*manifest.sha256, MANIFEST, *CHANGING, *CONVERSION, *modules))


def _is_model_folder(folder: Path) -> bool:
    return config_file(folder) is not None and not (folder / EXPORT_MANIFEST).exists()


@contextmanager
def changing(folder: Path, *names: str) -> Iterator[None]:
    """Change these files of a whole model folder inside the context; their sums in manifest.json follow.

    Meanwhile manifest.json does not list them: a killed command must leave neither one that calls them altered nor
    none, and the same command puts them back. Without a manifest.json nothing is written.
    """
    manifest = _read(folder)
    if manifest is not None:
        _write(folder, {name: value for name, value in manifest.sha256.items() if name not in names})
    yield
    if manifest is not None:
        _write(folder, {**manifest.sha256, **sums_in(folder, names)})


def weights_sum(folder: Path) -> str | None:
    """The SHA-256 of the weights of a model folder, as its manifest.json lists it; None if it does not."""
    try:
        manifest = _read(folder)
    except UserError:  # damaged; what loads the model says so
        return None
    return None if manifest is None else manifest.sha256.get(WEIGHTS)


def check_model_sums(folder: Path, *, trust_edits: bool = False) -> None:
    """UserError if a file is not the one that was written, as manifest.json tells; all is well where there is none.

    `trust_edits`: files may have been edited, but a vocabulary still has as many entries as before.
    """
    manifest = _read(folder)
    if manifest is None:
        return
    entries = _entries(folder)
    if manifest.vocabulary is not None and entries != manifest.vocabulary:
        had = f"has {entries or 0:,} entries, but had {manifest.vocabulary:,} when the model was written"
        raise AlteredFiles(had, where=str(folder / VOCABULARY), hint=_AGAIN)
    if trust_edits:
        return
    for name, size in manifest.size.items():  # what was cut is told before anything is read
        path = folder / name
        if path.is_file() and path.stat().st_size != size:
            message = f"it has {path.stat().st_size:,} bytes, not the {size:,} of {MANIFEST}"
            raise altered(path, "model", message, _MEANT)
    check_sums(folder, manifest.sha256, "model", MANIFEST, _MEANT)


def _write(folder: Path, sums: Mapping[str, str]) -> None:
    sizes = {name: (folder / name).stat().st_size for name in sums}
    ModelManifest("model", _entries(folder), sizes, sums).save(folder / MANIFEST)


def _read(folder: Path) -> ModelManifest | None:
    """manifest.json; None if there is none, or one of something else. AlteredFiles if it is damaged."""
    file = folder / MANIFEST
    if not file.is_file():
        return None
    try:
        return ModelManifest.load(file)
    except DamagedDocument as error:
        other = _AnyManifest.load_if_valid(file)
        if other is not None and other.kind != "model" and not (folder / TASK).is_file():
            return None
        raise AlteredFiles(problems=error.problems) from None


def _entries(folder: Path) -> int | None:
    """The number of lines of the vocabulary file; None if the tokenizer has none, 0 if it is far too large for one."""
    file = folder / VOCABULARY
    if not file.is_file():
        return None
    return len(file.read_bytes().splitlines()) if file.stat().st_size <= _LARGEST else 0
