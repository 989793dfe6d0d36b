"""`nlpctl report`: a run as one HTML page. Needs neither Paddle nor the data."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from nlpctl import console
from nlpctl.errors import UserError
from nlpctl.files import json_of, regular, write_text_atomic, writing
from nlpctl.layout import COMPRESS
from nlpctl.outputs import refuse_output
from nlpctl.report.html import Html
from nlpctl.report.page import Section, refuse_other_page
from nlpctl.runners.compress.report import JSON
from nlpctl.runners.pages.compress import compression_of_run
from nlpctl.runners.pages.report import run_page
from nlpctl.runners.run_files import sound_mistakes, sound_slices
from nlpctl.runners.runs import RunRecord, open_run, tell_missing_slices

_OUTPUT = "-o REPORT.html"


def write_report(run: Path, output: Path | None = None, *, overwrite: bool = False) -> Path:
    """Write the page of a run to `output`, by default report.html in the run directory; returns the file.

    Only the run's own report is replaced without --overwrite. UserError if there is no run or the file cannot be
    written.
    """
    record = open_run(run)
    file = record.run.report_file if output is None else output
    if output is None:
        refuse_other_page(file, f"move it away, or name another file: {_OUTPUT}")
    else:
        refuse_output(file, overwrite)
    tell_missing_slices(record)
    page = page_of(record)
    with writing(file, f"name another file: {_OUTPUT}"):
        write_text_atomic(file, page)
    return file


def renew_report(run: Path) -> None:
    """`write_report` after a command that changed the run. If it fails, that is done all the same, so only warn."""
    try:
        write_report(run)
    except UserError as error:
        console.warn(f"no report: {error}")


def page_of(record: RunRecord, first: Sequence[Section] = (), refresh: int | None = None) -> str:
    """The page of a run; what cannot be read is left out with a warning. `first` and `refresh`: as of `run_page`."""
    damage = list(record.damage)
    mistakes = sound_mistakes(record.run.mistakes_file, damage)
    slices = sound_slices(record.run.slices_file, damage)
    record = dataclasses.replace(record, damage=damage)
    for problem in damage:
        console.warn(str(problem))
    recipe = regular(record.run.recipe_file).read_text(encoding="utf-8")
    return run_page(record, recipe, mistakes, slices, read_compression(record), first, refresh)


def read_compression(record: RunRecord) -> list[Html]:
    """The section on the run's compressed models; empty if there are none."""
    file = record.run.path / COMPRESS / JSON
    try:
        return compression_of_run(json_of(file)) if file.exists() else []
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        hint = "delete the file to see the rest, or call `nlpctl compress` again, which writes it anew"
        told = f"{type(error).__name__}: {error}"
        raise UserError(f"the compression cannot be read ({told})", where=str(file), hint=hint) from None
