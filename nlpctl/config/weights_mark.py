"""What nlpctl writes under "nlpctl" into the config.json of weights for other programs, and reads there again.

These programs have no place for it, and keep it: Transformers also where it saves the model trained further.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nlpctl.checksums import sha256_of
from nlpctl.config.task_file import COPIED, kept_of_section
from nlpctl.documents import Document, Mismatch, left_out

MARK = "nlpctl"


@dataclass(frozen=True)
class WeightsMark(Document):
    """`network`: the class that config.json names. `sha256`: of the weights. `labels` and `thresholds`: by id of the
    task's labels, the latter for the probabilities that the weights give. `calibration`: calibration.json, of what the
    weights do not hold. `data` and `decode`: sections of a recipe."""

    version: str
    task: str
    layout: str
    sha256: str
    network: str
    labels: tuple[str, ...] = ()
    thresholds: tuple[float, ...] | None = left_out()
    calibration: Mapping[str, Any] | None = left_out()
    data: Mapping[str, Any] = left_out(dict)
    decode: Mapping[str, Any] = left_out(dict)

    def __post_init__(self) -> None:
        told = self.thresholds
        if told is not None and not (len(told) == len(self.labels) and all(0 <= each <= 1 for each in told)):
            raise ValueError("thresholds must be one per label, between 0 and 1")

    def is_of(self, weights: Path) -> bool:
        """Whether `weights` are those that it was written for, which nobody trained further."""
        return sha256_of(weights) == self.sha256

    def sections(self) -> dict[str, dict[str, Any]]:
        """Of a recipe, what a trained model keeps."""
        return without_files({name: kept_of_section(name, getattr(self, name)) for name in ("data", "decode")})


def without_files(sections: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """`sections` of a recipe without the names of files, which are not beside the weights."""
    files = {(section, key) for section, key, _ in COPIED}
    return {
        section: {key: value for key, value in values.items() if (section, key) not in files}
        for section, values in sections.items()
    }


def read_mark(config: Mapping[str, Any]) -> WeightsMark | None:
    """The mark in a config; None where there is none, or another program wrote something of this name."""
    try:
        return WeightsMark.from_json(config.get(MARK))
    except Mismatch:
        return None
