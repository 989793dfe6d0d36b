"""The folder that models and data sets are downloaded to: PaddleNLP's PPNLP_HOME."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from nlpctl.errors import UserError
from nlpctl.names import whole_number

_SECONDS = ("HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT")  # which huggingface_hub reads when it is imported
_MOST_SECONDS = 10**6


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Where PaddleNLP will look: PPNLP_HOME, else ~/.paddlenlp."""
    home = environ.get("PPNLP_HOME")
    return Path(home).absolute() if home else Path.home() / ".paddlenlp"


def usable_cache_folder(folder: Path, where: str) -> Path:
    """Make `folder` if need be and return it absolute. Raises UserError, blaming `where`, if it cannot serve.

    Names outside ASCII are refused: in a job whose locale is not UTF-8 (cron, plain containers) Python and
    Paddle's C++ readers cannot open them, and the failure comes only after the download.
    """
    folder = folder.expanduser().absolute()
    if not str(folder).isascii():
        raise UserError(
            f"the cache folder {folder} has characters outside ASCII, which jobs without a UTF-8 locale cannot open",
            where,
            "choose a folder whose whole path is plain ASCII",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = "it is a file" if os.path.isfile(folder) else error.strerror or str(error)
        hint = "choose a writable folder"
        raise UserError(f"cannot write to the cache folder {folder}: {reason}", where, hint) from error
    return folder


def refuse_unreadable_variables(environ: Mapping[str, str]) -> None:
    """UserError for a variable with which PaddleNLP or huggingface_hub cannot even be imported.

    A folder that cannot be written to is taken: all that is needed may lie there.
    """
    home = cache_folder(environ)
    if home.exists() and not home.is_dir():
        raise UserError(f"the cache folder {home} is none: it is a file", "PPNLP_HOME", "choose a folder, or unset it")
    for name in _SECONDS:
        if name in environ and whole_number(environ[name], _MOST_SECONDS) is None:
            message = f"{environ[name][:40]!r} is no number of seconds"
            raise UserError(message, name, f"write a whole number up to {_MOST_SECONDS}, or unset it")
