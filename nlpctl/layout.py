"""Names of the files in run directories, model folders, exports and indexes."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Final

# A folder of answers
PARTS: Final = "nlpctl predict --parts"  # `content` of its manifest

# Data
JSON_LINES = (".jsonl", ".ndjson")  # endings of files with a JSON object per line

# A run directory
MANIFEST, RECIPE, EVENTS, METRICS = "manifest.json", "recipe.yaml", "events.jsonl", "metrics.json"
MISTAKES, REPORT = "mistakes.json", "report.html"
CARD = "README.md"  # the model card beside a run, a model or an export
TALLIES = "tallies"  # a folder: per split what each row adds to its scores, to compare runs
SLICES = "slices.json"  # in it: the scores of some rows, by label and by length
INTERVALS = "intervals"  # in the report of a split, the 95 % interval of each score
ECE, CONFIDENCE = "ece", "confidence"  # the same: the calibration error, and what stands behind it
TRUNCATED = "truncated"  # the same: how many rows were cut at data.max_seq_length; only where any was
USER_SCORES = "compute_metrics"  # in the report of a split, what the user's own function scored
CHECKPOINTS, MODEL, LOGS = "checkpoints", "model", "logs"

# The config of a network, as PaddleNLP and Transformers write it; model_config.json: PaddleNLP before 2.5
CONFIG_FILES = ("config.json", "model_config.json")
ADAPTER = "adapter_config.json"  # what PEFT has trained beside a network that stays as it is
MERGE_ADAPTER = "merge it with PyTorch: model.merge_and_unload().save_pretrained(FOLDER), and give that folder"

PLAN = "plan.json"  # in a folder of compressed models, or of what several workers answer: what is made there
SERIES = "series.json"  # in the folder of several trainings of one recipe: what is trained

# What nlpctl adds to a model folder
LABELS, TASK = "labels.json", "task.json"
CALIBRATION = "calibration.json"  # also in exports: how probable the answers really are
CONVERSION = ("conversion.json", "conversion.md")  # what a conversion tells of itself, for people

# What nlpctl adds to an export
EXPORT, EXPORT_MANIFEST, EXPORT_REPORT = "export", "export.json", "report.json"
REPORTS = (EXPORT_REPORT, "report.md")  # for people; not among the checksums

# What `nlpctl index build` writes, next to a recipe and a manifest
INDEX_VECTORS, INDEX_TEXTS = "index.faiss", "texts.jsonl"

# What `nlpctl compress` adds to a run directory: what the best was chosen from, and the best
COMPRESS = "compress"
NETWORKS: Final = "networks"
EXPORTS: Final = "exports"
CANDIDATES: Final = "candidates"
BEST_EXPORT, COMPRESS_REPORT = "best", "report.json"
UNMADE: Final = "not made yet: run the same command again, and it goes on"  # in the report of an interrupted command

# What `nlpctl sweep` writes: its trials, and what they gave
TRIALS, SWEEP_RESULT = "trials", "sweep.json"

_WEIGHTS = (".pdparams", ".pdopt", ".safetensors", ".bin", ".pdiparams", ".onnx")
_PROGRESS = (CHECKPOINTS, MODEL)
RUN_FILES = (MANIFEST, RECIPE, EVENTS, METRICS, MISTAKES)
_MARKS = {"export": (EXPORT_MANIFEST,), "model": (TASK, CONFIG_FILES[0]), "index": (INDEX_VECTORS, MANIFEST)}
_CHECKPOINT = "checkpoint-"
DAMAGED: Final = "damaged-"  # before the name of a checkpoint that was moved aside


def model_folder_name(folder: Path) -> str:
    """What tells a model folder from others: its name, or of the model or export of a run that of the run."""
    return folder.parent.name if folder.name in (MODEL, EXPORT) and folder.parent.name else folder.name


def is_series(folder: Path) -> bool:
    """Whether `folder` holds several trainings of one recipe."""
    return (folder / SERIES).is_file()


def checkpoint_path(checkpoints: Path, step: int) -> Path:
    """The path of the checkpoint after `step` optimizer updates; it need not exist."""
    return checkpoints / f"{_CHECKPOINT}{step}"


def checkpoint_step(checkpoint: Path) -> int:
    """The step in the name of a checkpoint."""
    return int(checkpoint.name.removeprefix(_CHECKPOINT))


def checkpoints_in(checkpoints: Path) -> list[Path]:
    """The checkpoints, oldest first. A checkpoint is complete or absent; other names are ignored."""
    found = [path for path in checkpoints.glob(f"{_CHECKPOINT}*") if path.is_dir()]
    return sorted((path for path in found if path.name.removeprefix(_CHECKPOINT).isdecimal()), key=checkpoint_step)


def moved_aside(checkpoints: Path) -> list[Path]:
    """The damaged checkpoints that a resumed training has moved aside."""
    return sorted(path for path in checkpoints.glob(f"{DAMAGED}*") if path.is_dir())


def holds(folder: Path, *patterns: str) -> bool:
    """Whether a file of one of the patterns is in `folder`."""
    return any(next(folder.glob(pattern), None) is not None for pattern in patterns)


def config_file(folder: Path) -> Path | None:
    """The config of the network in `folder`; None if there is none."""
    return next((folder / name for name in CONFIG_FILES if (folder / name).is_file()), None)


def real_path(path: Path) -> Path:
    """`path` without links, absolute. Path.resolve raises RuntimeError for a circle of links; this leaves it."""
    return Path(os.path.realpath(path))


def runs_around(folder: Path) -> list[Path]:
    """The run directories that `folder` is or lies in, real paths, innermost first."""
    folder = real_path(folder)
    return [place for place in (folder, *folder.parents) if is_run(place)]


def is_run(folder: Path) -> bool:
    """Whether `folder` is a run directory, finished or not. A manifest.json alone may be of another program."""
    return (folder / MANIFEST).is_file() and any((folder / name).exists() for name in (RECIPE, MODEL, CHECKPOINTS))


def part_of(path: Path) -> str | None:
    """What of nlpctl's own the file `path`, which need not exist, would be a part of; None if of nothing.

    Only what commands read again counts: other files beside a run belong to the user.
    """
    path = real_path(path)
    if path.name in RUN_FILES and is_run(path.parent) and any((path.parent / name).is_dir() for name in _PROGRESS):
        return f"the run {path.parent}"
    if path.parent.name == CHECKPOINTS and is_run(path.parent.parent):
        return f"the run {path.parent.parent}"
    for folder in path.parents:
        if folder.parent.name == CHECKPOINTS and is_run(folder.parent.parent):
            return f"the checkpoint {folder}"
        for kind, marks in _MARKS.items():
            if all((folder / name).is_file() for name in marks):
                return f"the {kind} {folder}"
    return None


def is_inside(path: str | Path, folder: Path) -> bool:
    """Whether `path`, absolute or below `folder`, lies in it, with links followed. Nothing lies anywhere under a name
    that no file can have: with NUL, or half of a surrogate pair, which JSON can spell."""
    try:
        possible = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return possible and real_path(folder / path).is_relative_to(real_path(folder))


def link_out(folder: Path, known: Collection[str] = ()) -> Path | None:
    """The first file in a model folder, an export or a checkpoint, or in a folder of it, that is a link to a file
    outside; None if there is none. `known`: files, by their paths in the folder, whose content is known.

    Weights may lie elsewhere, files of a run anywhere in it, and those of a snapshot of the Hugging Face hub in its
    cache.
    """
    homes = [real_path(folder), *runs_around(folder), *_hub_blobs(folder)]
    for path in sorted((*folder.glob("*"), *folder.glob("*/*"))):
        real = real_path(path)
        linked = real != real_path(path.parent) / path.name
        free = path.suffix in _WEIGHTS or path.relative_to(folder).as_posix() in known
        if linked and not free and not any(real.is_relative_to(home) for home in homes):
            return path
    return None


def _hub_blobs(folder: Path) -> list[Path]:
    """Where the files of a snapshot of the hub lie that `folder` is or is in. A link in its place may lead to any
    file, so none is followed."""
    repositories = (place.parent for place in real_path(folder).parents if place.name == "snapshots")
    return [place / "blobs" for place in repositories if place.name.startswith("models--")]
