"""What `nlpctl export --layout` wrote into a folder, in .nlpctl.json: when it is replaced, nothing else is lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nlpctl.checksums import sha256_of
from nlpctl.documents import Document
from nlpctl.files import write_json_atomic
from nlpctl.layout import CARD
from nlpctl.outputs import is_signed

LISTING = ".nlpctl.json"


@dataclass(frozen=True)
class Listing(Document):
    """`files`: their names in the folder, with checksums."""

    layout: str
    files: Mapping[str, str]


def write_listing(folder: Path, layout: str) -> None:
    """List the files of a folder that is complete."""
    files = {str(path.relative_to(folder)): sha256_of(path) for path in _files(folder)}
    write_json_atomic(folder / LISTING, Listing(layout, files).to_json())


def is_listed(folder: Path, layout: str) -> bool:
    """Whether an export to `layout` is, or was, in the folder."""
    listing = Listing.load_if_valid(folder / LISTING)
    return listing is not None and listing.layout == layout


def changed_since(folder: Path) -> str | None:
    """The first file, by its name in the folder, that was added or changed since it was listed; None: there is none. A
    card that nlpctl wrote anew is none."""
    listing = Listing.load_if_valid(folder / LISTING)
    listed = {} if listing is None else {**listing.files}
    for path in sorted(_files(folder)):
        name = str(path.relative_to(folder))
        is_own = name == LISTING or (name == CARD and is_signed(path))
        if not is_own and (name not in listed or path.is_symlink() or sha256_of(path) != listed[name]):
            return name
    return None


def _files(folder: Path) -> list[Path]:
    """All but folders, wherever they lie in the folder; a link is one, whatever it leads to."""
    return [path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
