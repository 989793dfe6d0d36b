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
    """While it lasts, what a hub says of a file and would lead out of the cache is refused. ValueError says which.

    huggingface_hub 1.33.0, file_download.py:1200: the ETag of an answer is the name of the file in the cache, and not
    checked. With "../" in it a hostile mirror writes any file of the user's. X-Repo-Commit is the name of a folder,
    also where the file is said to be absent (:1774). Of a file kept in Xet no headers are asked for: its ETag is
    the checksum in the listing of the repository (:1926). Test: tests/upstream/test_downloaded_names.py.
    """
    from huggingface_hub import file_download

    of_headers = file_download.get_hf_file_metadata
    of_listing: Any = getattr(file_download, "_xet_file_metadata_from_tree_cache", None)  # not in every release

    def checked_headers(*args: Any, **kwargs: Any) -> Any:
        try:
            metadata = of_headers(*args, **kwargs)
        except Exception as error:
            headers = getattr(getattr(error, "response", None), "headers", {})
            _refuse_commit(headers.get("X-Repo-Commit"))
            raise
        _refuse_etag(metadata.etag)
        _refuse_commit(metadata.commit_hash)
        return metadata

    def checked_listing(*args: Any, **kwargs: Any) -> Any:
        found = of_listing(*args, **kwargs)
        if found is not None:
            _refuse_etag(found[1])
        return found

    file_download.get_hf_file_metadata = checked_headers
    if of_listing is not None:
        file_download._xet_file_metadata_from_tree_cache = checked_listing
    try:
        yield
    finally:
        file_download.get_hf_file_metadata = of_headers
        if of_listing is not None:
            file_download._xet_file_metadata_from_tree_cache = of_listing


def _refuse_etag(etag: Any) -> None:
    if etag is not None and not (isinstance(etag, str) and _NAME.fullmatch(etag)):
        raise ValueError(f"its ETag can be no name of a file: {str(etag)[:60]!r}")


def _refuse_commit(commit: str | None) -> None:
    if commit is not None and not _COMMIT.fullmatch(commit):
        raise ValueError(f"its X-Repo-Commit is no commit: {commit[:60]!r}")
