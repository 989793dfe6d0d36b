"""The model folder: weights, config, tokenizer, and what nlpctl adds so that the folder explains itself.

    model_state.pdparams config.json     as PaddleNLP writes them
    vocab.txt tokenizer_config.json ...  the tokenizer
    labels.json                          {"labels": ["neg", "pos"]}, index = id
    task.json                            the task, and how text was turned into input

Checkpoints are model folders too. config/ reads task.json by itself, since it may not import this.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from nlpctl.config.schema import ColumnsSection, DataSection
from nlpctl.errors import UserError
from nlpctl.models.source import read_config, read_json
from nlpctl.runtime.files import write_json_atomic
from nlpctl.runtime.layout import LABELS, TASK

FORMAT = 1


@dataclass(frozen=True)
class ModelCard:
    """labels.json and task.json: what the model answers, and how its input was made."""

    task: str
    labels: tuple[str, ...]
    columns: ColumnsSection
    max_seq_length: int
    tokenizer: str
    header: bool
    trained: bool = True


def make_card(task: str, labels: tuple[str, ...], data: DataSection) -> ModelCard:
    """The card of a model trained on `data`."""
    return ModelCard(task, tuple(labels), data.columns, data.max_seq_length, data.tokenizer, data.header)


def save_model_folder(folder: Path, network: Any, tokenizer: Any, card: ModelCard) -> None:
    """Write everything into `folder`. Call it inside `staged_dir`, so that the folder is whole or absent."""
    folder.mkdir(parents=True, exist_ok=True)
    network.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    write_json_atomic(folder / LABELS, {"labels": list(card.labels)})
    data = {
        "columns": asdict(card.columns),
        "max_seq_length": card.max_seq_length,
        "tokenizer": card.tokenizer,
        "header": card.header,
    }
    write_json_atomic(
        folder / TASK, {"format": FORMAT, "task": card.task, "trained": card.trained, "data": data}
    )


def read_card(folder: Path) -> ModelCard:
    """Read labels.json and task.json. Raises UserError when one is missing, damaged or from a newer nlpctl."""
    task_file = folder / TASK
    task = _read(task_file)
    if task.get("format") != FORMAT:
        raise UserError(
            f"has format {task.get('format')!r}; this nlpctl reads format {FORMAT}",
            where=str(task_file),
            hint="update nlpctl, or train the model again",
        )
    try:
        return ModelCard(labels=read_labels(folder), **_card_fields(task))
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"is incomplete or damaged ({error})", where=str(task_file), hint=_AGAIN) from error


def read_trained_card(folder: Path) -> ModelCard:
    """`read_card` of a model that can answer. Raises UserError when its task head was never trained."""
    card = read_card(folder)
    if not card.trained:
        raise untrained(str(folder))
    count = _label_count(read_config(folder))
    if count not in (None, len(card.labels)):
        message = f"names {len(card.labels)} labels, but the network was trained on {count}"
        raise UserError(message, where=str(folder / LABELS), hint=_AGAIN)
    return card


def untrained(where: str) -> UserError:
    """The error for an encoder where a trained classifier is needed."""
    return UserError(
        "the task head was never trained: this is an encoder without labels",
        where=where,
        hint="train it first (nlpctl train), then give the run directory or its model folder",
    )


def _label_count(config: Mapping[str, Any]) -> int | None:
    """How many labels the network's config names; None where it names none."""
    names = config.get("id2label")
    return len(names) if isinstance(names, dict) else None


def read_labels(folder: Path) -> tuple[str, ...]:
    """The labels in order of their ids. Raises UserError when there are none or a label appears twice."""
    file = folder / LABELS
    labels = _read(file).get("labels")
    if not isinstance(labels, list) or not labels or not all(isinstance(label, str) for label in labels):
        raise UserError('must hold {"labels": ["...", ...]}', where=str(file), hint=_AGAIN)
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        label = json.dumps(twice[0], ensure_ascii=False)
        raise UserError(f"names the label {label} twice", where=str(file), hint=_AGAIN)
    return tuple(labels)


_AGAIN = "copy the model folder again"


def _read(file: Path) -> dict[str, Any]:
    if not file.is_file():
        hint = "give a folder that nlpctl train wrote"
        raise UserError(f"no {file.name} in this folder", where=str(file.parent), hint=hint)
    return read_json(file)


def _card_fields(task: Mapping[str, Any]) -> dict[str, Any]:
    data = task["data"]
    known = {field.name for field in fields(ColumnsSection)}
    values = {
        "task": task["task"],
        "trained": task["trained"],
        "columns": ColumnsSection(**{name: data["columns"][name] for name in known}),
        "max_seq_length": data["max_seq_length"],
        "tokenizer": data["tokenizer"],
        "header": data["header"],
    }
    wanted = {"task": str, "trained": bool, "max_seq_length": int, "tokenizer": str, "header": bool}
    for name, kind in wanted.items():
        if not isinstance(values[name], kind):
            raise TypeError(f"{name} must be {kind.__name__}")
    return values
