"""Downloads of huggingface_hub that stay in its cache, whatever a hub says."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

_COMMIT = re.compile("[0-9a-f]{40}")
_NAME = re.compile(r"(?!\.+$)[^/\\\0]{1,200}")  # of one file in a folder


@contextlib.contextmanager
def names_in_the_cache() -> Iterator[None]:
    """While it lasts, the headers of a file that would lead out of the cache are refused. ValueError says which.

    huggingface_hub 1.33.0, file_download.py:1200: the ETag of an answer is the name of the file in the cache, and not
    checked. With "../" in it a hostile mirror writes any file of the user's. X-Repo-Commit is the name of a folder.
    Test: tests/upstream/test_downloaded_names.py.
    """
    from huggingface_hub import file_download

    stock = file_download.get_hf_file_metadata

    def checked(*args: Any, **kwargs: Any) -> Any:
        metadata = stock(*args, **kwargs)
        if metadata.etag is not None and not _NAME.fullmatch(metadata.etag):
            raise ValueError(f"its ETag can be no name of a file: {metadata.etag[:60]!r}")
        if metadata.commit_hash is not None and not _COMMIT.fullmatch(metadata.commit_hash):
            raise ValueError(f"its X-Repo-Commit is no commit: {metadata.commit_hash[:60]!r}")
        return metadata

    file_download.get_hf_file_metadata = checked
    try:
        yield
    finally:
        file_download.get_hf_file_metadata = stock
