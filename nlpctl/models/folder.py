"""The model folder: weights, config, tokenizer, and the files that make it self-contained.

    model_state.pdparams config.json     as PaddleNLP writes them
    vocab.txt tokenizer_config.json ...  the tokenizer
    labels.json                          {"labels": ["neg", "pos"]}, index = id
    task.json                            the task, and how text was turned into input
    calibration.json                     how probable its answers really are, where known (models/calibration.py)
    manifest.json                        size and SHA-256 of all of these (models/model_manifest.py)

Checkpoints are model folders too. config/ reads task.json by itself, since it may not import this.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar

from nlpctl.config.schema import Recipe
from nlpctl.config.task_file import COPIED, TaskFile, kept_keys
from nlpctl.documents import Document, left_out
from nlpctl.errors import UserError
from nlpctl.layout import CALIBRATION, LABELS, TASK
from nlpctl.models.calibration import Calibration, read_calibration, write_calibration
from nlpctl.models.model_manifest import changing, write_model_sums
from nlpctl.models.source import CONFIG_FILES, read_config

# Sections that folders of older versions lack. Their defaults are what those versions did.
_ADDED = ("few_shot",)
_AGAIN = "copy the model folder again"


@dataclass(frozen=True)
class ModelDescription:
    """labels.json and task.json: the model's task and labels, and its text encoding.

    `recipe`: the values of `kept_keys` by section, JSON-ready. `thresholds`: one per label, where the task tunes some.
    `calibration`: how probable its answers are. `files`: what is copied into the folder next to the model, name to
    path.
    """

    task: str
    labels: tuple[str, ...]
    recipe: Mapping[str, Mapping[str, Any]]
    thresholds: tuple[float, ...] | None = None
    trained: bool = True
    files: Mapping[str, str] = field(default_factory=dict, compare=False)
    calibration: Calibration | None = None


@dataclass(frozen=True)
class LabelsFile(Document):
    """labels.json: the names of a network's outputs, in the order of their ids, and their thresholds where the task
    tunes some; written with the model and by commands that tune it, read by whatever answers.

    ValueError: a label appears twice, or the thresholds do not belong to the labels.
    """

    REPAIR: ClassVar[str] = _AGAIN

    labels: tuple[str, ...]
    thresholds: tuple[float, ...] | None = left_out()

    def __post_init__(self) -> None:
        if twice := sorted(label for label, count in Counter(self.labels).items() if count > 1):
            raise ValueError(f"names the label {json.dumps(twice[0], ensure_ascii=False)} twice")
        if self.thresholds is None:
            return
        if len(self.thresholds) != len(self.labels):
            raise ValueError("must hold one threshold per label")
        for label, number in zip(self.labels, self.thresholds, strict=True):
            if not 0 <= number <= 1:  # NaN too
                raise ValueError(f"the threshold of {json.dumps(label, ensure_ascii=False)} is not between 0 and 1")


def make_description(
    recipe: Recipe,
    labels: tuple[str, ...],
    thresholds: tuple[float, ...] | None = None,
    calibration: Calibration | None = None,
) -> ModelDescription:
    """The description of a model trained as `recipe` says."""
    kept = kept_values(recipe)
    files = {}
    for section, name, copied in COPIED:
        path = kept[section][name]
        if path is not None:
            # The description names the copy by its bare file name; config/ reads it relative to the folder.
            kept[section][name] = copied
            files[copied] = path
    return ModelDescription(recipe.task, tuple(labels), kept, thresholds, files=files, calibration=calibration)


def kept_values(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """The values of `kept_keys` by section, JSON-ready; files by their paths."""
    kept: dict[str, dict[str, Any]] = {}
    own = ("model.network",) if recipe.model.network is not None else ()  # folders of older versions do not have it
    for dotted in (*kept_keys(), *own):
        section, _, name = dotted.partition(".")
        values = asdict(attrgetter(section)(recipe))
        kept[section] = kept.get(section, {}) | ({name: values[name]} if name else values)
    return kept


def save_model_folder(folder: Path, network: Any, tokenizer: Any, description: ModelDescription) -> None:
    """Write everything into `folder`. Call it inside `staged_dir`, so that the folder is whole or absent."""
    folder.mkdir(parents=True, exist_ok=True)
    # Description and manifest after the network: a folder with a manifest is complete.
    network.save_pretrained(str(folder))
    save_description(folder, tokenizer, description)
    write_model_sums(folder)


def save_description(folder: Path, tokenizer: Any, description: ModelDescription) -> None:
    """Write what a model folder or an export holds next to its network and config: its tokenizer and description."""
    tokenizer.save_pretrained(str(folder))
    write_description(folder, description)


def write_description(folder: Path, description: ModelDescription) -> None:
    """labels.json, task.json, calibration.json where there is one, and copies of the files that the recipe names."""
    for name, path in description.files.items():
        shutil.copyfile(path, folder / name)
    write_labels(folder, description.labels, description.thresholds)
    if description.calibration is not None:
        write_calibration(folder, description.calibration)
    told = {"task": description.task, "trained": description.trained, **description.recipe}
    TaskFile.from_json(told).save(folder / TASK)


def write_labels(folder: Path, labels: tuple[str, ...], thresholds: tuple[float, ...] | None) -> None:
    """labels.json: the names in the order of their ids, and their thresholds where there are any."""
    LabelsFile(labels, thresholds).save(folder / LABELS)


def tune_labels(folder: Path, labels: tuple[str, ...], thresholds: tuple[float, ...] | None) -> None:
    """`write_labels` in a model folder that is whole already: its manifest goes with it."""
    with changing(folder, LABELS):
        write_labels(folder, labels, thresholds)


def calibrate_model(folder: Path, calibration: Calibration) -> None:
    """`write_calibration` in a model folder that is whole already: its manifest goes with it."""
    with changing(folder, CALIBRATION):
        write_calibration(folder, calibration)


def read_description(folder: Path) -> ModelDescription:
    """Read labels.json, task.json and, if there is one, calibration.json.

    Raises UserError when one is missing, damaged or from a newer nlpctl.
    """
    task = TaskFile.load(_existing(folder / TASK), _AGAIN)
    sections = task.sections
    wanted = [key for key in kept_keys() if key.split(".")[0] in sections or key.split(".")[0] not in _ADDED]
    missing = [dotted for dotted in wanted if not _holds(sections, *dotted.split("."))]
    if missing:
        message = f"is incomplete or damaged ({missing[0]} is missing)"
        raise UserError(message, where=str(folder / TASK), hint=_AGAIN)
    labels, thresholds = read_labels(folder)
    _compare_names(folder, labels)
    named = [name for section, key, name in COPIED if sections.get(section, {}).get(key) is not None]
    files = {name: str(folder / name) for name in named}
    return ModelDescription(task.task, labels, sections, thresholds, task.trained, files, read_calibration(folder))


def read_trained_description(folder: Path) -> ModelDescription:
    """`read_description` of a model that can answer. Raises UserError when its task head was never trained."""
    description = read_description(folder)
    if not description.trained:
        raise untrained(str(folder))
    count = _label_count(read_config(folder))
    if description.labels and count not in (None, len(description.labels)):
        message = f"names {len(description.labels)} labels, but the network was trained on {count}"
        raise UserError(message, where=str(folder / LABELS), hint=_AGAIN)
    return description


def _compare_names(folder: Path, labels: tuple[str, ...]) -> None:
    """UserError if labels.json gives the network's outputs other names than its config does."""
    if not labels or not any((folder / name).is_file() for name in CONFIG_FILES):
        return
    named = read_config(folder).get("id2label")
    if not isinstance(named, dict) or len(named) != len(labels):
        return  # how many there are is told where the model is to answer
    for number, label in enumerate(labels):
        name = named.get(str(number), label)
        if name not in (label, f"LABEL_{number}"):
            told, other = (json.dumps(each, ensure_ascii=False) for each in (label, name))
            message = f"calls output {number} {told}, but config.json calls it {other} (id2label)"
            raise UserError(message, where=str(folder / LABELS), hint=f"{_AGAIN}, or change both files alike")


def untrained(where: str) -> UserError:
    """The error for an encoder where a trained classifier is needed."""
    return UserError(
        "the task head was never trained: this is an encoder without labels",
        where=where,
        hint="train it first (nlpctl train), then give the run directory or its model folder",
    )


def _label_count(config: Mapping[str, Any]) -> int | None:
    """The number of labels in the network's config; None if it names none."""
    names = config.get("id2label")
    return len(names) if isinstance(names, dict) else None


def read_labels(folder: Path) -> tuple[tuple[str, ...], tuple[float, ...] | None]:
    """The labels in order of their ids, and their thresholds if there are any.

    UserError: the file is missing or damaged, or a label appears twice.
    """
    file = LabelsFile.load(_existing(folder / LABELS))
    return file.labels, file.thresholds


def _holds(sections: Mapping[str, Mapping[str, Any]], section: str, name: str | None = None) -> bool:
    return section in sections and (name is None or name in sections[section])


def _existing(file: Path) -> Path:
    """`file`. UserError: there is none, so the folder is no model of nlpctl's."""
    if not file.is_file():
        hint = "give a folder that nlpctl train wrote"
        raise UserError(f"no {file.name} in this folder", where=str(file.parent), hint=hint)
    return file
