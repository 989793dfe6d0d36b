"""`nlpctl card`: a model card from the files of a run, model folder or export; needs neither Paddle nor the data."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence
from pathlib import Path

from nlpctl import console
from nlpctl.config.recipe_of import recipe_of
from nlpctl.errors import Problem, UserError
from nlpctl.files import write_text_atomic, writing
from nlpctl.layout import CARD, EXPORT_MANIFEST, MODEL, TASK, real_path
from nlpctl.models.export_folder import ExportManifest, read_manifest
from nlpctl.models.folder import read_labels, read_trained_card
from nlpctl.models.sums import weights_sum
from nlpctl.names import nearest
from nlpctl.outputs import is_signed, is_stream, refuse_output
from nlpctl.runners.pages.card import CardFacts, card_page
from nlpctl.runners.pages.card_words import LANGUAGES
from nlpctl.runners.run_files import is_run, sound_slices
from nlpctl.runners.runs import RunRecord, open_run, tell_missing_slices

_OUTPUT = "-o CARD.md"
_LANGUAGE_CODE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*")
_LICENSE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


def write_card(
    source: Path,
    output: Path | None = None,
    *,
    language: str = LANGUAGES[0],
    license: str | None = None,
    text_languages: Sequence[str] = (),
    overwrite: bool = False,
) -> Path:
    """Write the card of a run, a model folder or an export to `output`, by default README.md in it; returns the file.

    `language`: of the card, one of LANGUAGES; `text_languages`: codes of the languages of the training texts. Only a
    card that nlpctl wrote, and nobody changed, is replaced without `overwrite`. UserError.
    """
    _refuse_wrong_words(language, license, text_languages)
    facts = dataclasses.replace(card_facts(source), license=license, languages=tuple(text_languages))
    file = real_path(source) / CARD if output is None else output
    _refuse_other_card(file, overwrite, beside=output is None)
    with writing(file, f"name another file: {_OUTPUT}"):
        write_text_atomic(file, card_page(facts, language))
    return file


def card_facts(source: Path) -> CardFacts:
    """What the files in `source` tell. UserError if it is no run that is finished, model folder or export."""
    name = real_path(source).name
    if is_run(source):
        return _of_run(source, name)
    if (source / EXPORT_MANIFEST).is_file():
        return _of_export(source, name)
    if (source / TASK).is_file():
        return _of_model(source, name)
    beside = sorted(path.name for path in source.parent.glob("*/")) if not source.exists() else []
    near = nearest(source.name, beside)
    hint = f"did you mean {source.parent / near}?" if near else "name a folder with a trained model"
    raise UserError("this is no run, model folder or export", where=str(source), hint=hint)


def _of_run(source: Path, name: str) -> CardFacts:
    record = open_run(source)
    if record.manifest["state"] != "finished":
        hint = f"`nlpctl report {source}` shows what there is"
        raise UserError(f"the run is {record.state}; a card is of a finished one", where=str(source), hint=hint)
    damage = list(record.damage)
    slices = sound_slices(record.run.slices_file, damage)
    _warn(damage)
    tell_missing_slices(record)
    has_model = (record.run.model / TASK).is_file()
    labels, thresholds = read_labels(record.run.model) if has_model else ((), None)
    return CardFacts(name, record.recipe, labels, thresholds, record, slices)


def _of_model(source: Path, name: str) -> CardFacts:
    folder = real_path(source)
    if folder.name == MODEL and is_run(folder.parent):
        return _of_run(folder.parent, folder.parent.name)
    card = read_trained_card(folder)
    return CardFacts(name, recipe_of(folder), card.labels, card.thresholds)


def _of_export(source: Path, name: str) -> CardFacts:
    folder = real_path(source)
    manifest = read_manifest(folder)
    labels, thresholds = read_labels(folder)
    record = _run_of_export(manifest)
    if record is None:
        return CardFacts(name, recipe_of(folder), labels, thresholds, export=manifest)
    found = _of_run(record.run.path, name)
    return dataclasses.replace(found, labels=labels, thresholds=thresholds, export=manifest)


def _run_of_export(manifest: ExportManifest) -> RunRecord | None:
    """The run whose model was exported, as long as it is still that one."""
    model = Path(manifest.source)
    if not (model.is_absolute() and model.name == MODEL and is_run(model.parent)):
        return None
    if manifest.weights is None or weights_sum(model) != manifest.weights:
        return None  # trained again since
    record = open_run(model.parent)
    return record if record.manifest["state"] == "finished" else None


def _refuse_wrong_words(language: str, license: str | None, text_languages: Sequence[str]) -> None:
    if language not in LANGUAGES:
        raise UserError(f"there are no cards in {language!r}", "--language", f"one of {', '.join(LANGUAGES)}")
    if license is not None and not _LICENSE.fullmatch(license):
        hint = "the short name of a license, such as apache-2.0, mit, cc-by-4.0 or other"
        raise UserError(f"{license!r} is no name of a license", "--license", hint)
    wrong = [each for each in text_languages if not _LANGUAGE_CODE.fullmatch(each)]
    if wrong:
        hint = "codes of ISO 639, such as zh or zh,en"
        raise UserError(f"{wrong[0]!r} is no code of a language", "--text-language", hint)


def _refuse_other_card(file: Path, overwrite: bool, *, beside: bool) -> None:
    """UserError if `file` must not be written. `beside`: it lies beside a model on purpose, and is no part of it."""
    if not beside:
        refuse_output(file, overwrite=True)
    if overwrite or is_stream(file) or not os.path.lexists(file) or is_signed(file):
        return
    message = "this file was not written by nlpctl, or was changed since, and is not replaced"
    raise UserError(message, where=str(file), hint=f"use --overwrite, or name another file: {_OUTPUT}")


def _warn(damage: Sequence[Problem]) -> None:
    for problem in damage:
        console.warn(str(problem))
