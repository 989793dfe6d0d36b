"""Names of models on hubs and in packages. Asking a hub, or a library that knows it, is slow, and a mistyped name must
be told at once.

    ernie-3.0-medium-zh       a text encoder that is built into PaddleNLP; scripts/update_hub_names.py writes the list.
                              Models that others put on its hub (somebody/model) are not in it: a recipe names them, as
                              model.name_or_path.
    hf:ORG/NAME@REVISION      a repository of the Hugging Face hub (models/hugging_face_hub.py)
    python:PACKAGE/PATH       a folder inside an installed package (models/source.py)
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nlpctl.errors import UserError

FILE = Path(__file__).parent / "data" / "hub_names.json"
HF_PREFIX = "hf:"
PYTHON_PREFIX = "python:"
PREFIXES = (HF_PREFIX, PYTHON_PREFIX)  # of names that have no folder before their files are looked for

# What huggingface_hub takes: it raises errors of its own for other names, before it asks the hub.
_PART = r"[A-Za-z0-9]([\w.\-]{0,94}\w)?"
_REPOSITORY = re.compile(rf"(?!.*(--|\.\.|\.git$)){_PART}(/{_PART})?", re.ASCII)
_REVISION = re.compile(r"[A-Za-z0-9][\w.\-]*(/[A-Za-z0-9][\w.\-]*)*", re.ASCII)
_COMMIT = re.compile("[0-9a-f]{40}")


@functools.cache
def hub_names() -> frozenset[str]:
    """Every built-in name of a family with a classifier."""
    return frozenset(json.loads(FILE.read_text(encoding="utf-8"))["names"])


def is_repository(text: str) -> bool:
    """Whether `text` can be ORG/NAME, or NAME, of the Hugging Face hub."""
    return _REPOSITORY.fullmatch(text) is not None


@dataclass(frozen=True)
class HuggingFaceName:
    """`revision`: a branch, tag or commit; None: the branch main."""

    repository: str
    revision: str | None

    def __str__(self) -> str:
        return f"{HF_PREFIX}{self.repository}" + ("" if self.revision is None else f"@{self.revision}")

    @property
    def is_commit(self) -> bool:
        """Whether the name stands for the same files for ever."""
        return self.revision is not None and _COMMIT.fullmatch(self.revision) is not None

    @classmethod
    def of(cls, text: str) -> HuggingFaceName:
        """`text`: begins with HF_PREFIX. UserError: it cannot be such a name."""
        repository, at, revision = text.removeprefix(HF_PREFIX).partition("@")
        if not is_repository(repository) or (at and not _REVISION.fullmatch(revision)):
            hint = "such as hf:BAAI/bge-small-zh-v1.5 or hf:BAAI/bge-small-zh-v1.5@main"
            raise UserError("must be hf:ORG/NAME or hf:ORG/NAME@REVISION", where=text, hint=hint)
        return cls(repository, revision if at else None)


def cached_on_disk() -> Iterator[HuggingFaceName]:
    """The repositories in the cache of huggingface_hub, which is not imported."""
    home = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or Path(os.environ.get("HF_HOME") or home, "hub")).expanduser()
    for folder in sorted(cache.glob("models--*")):
        yield HuggingFaceName(folder.name.removeprefix("models--").replace("--", "/"), None)
