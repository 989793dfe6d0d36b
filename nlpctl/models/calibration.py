"""How probable an answer really is: the numbers of calibration.json, kept with a model and copied into its exports.

They were fitted on labelled rows after training (tasks/calibration.py) and change no decision, only the
probabilities that answers give (tasks/confidence.py). Imports neither Paddle nor NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from nlpctl.documents import Document
from nlpctl.layout import CALIBRATION

TEMPERATURE: Literal["temperature"] = "temperature"
LOGISTIC: Literal["logistic"] = "logistic"
LARGEST = 4.0  # of the logarithm of a scale that is fitted; shifts and powers may be three times as large
_FURTHEST = 3 * LARGEST + 1e-6


@dataclass(frozen=True)
class Calibration(Document):
    """How the scores of a network become probabilities that hold.

    `method`: temperature, logits times `scales` before the softmax (1 / T of Guo et al., 2017), and times (1 + margin)
    ** `power` for a row in which the highest logit is so far ahead; of answers in texts, `shifts` lower the log odds of
    the first. Logistic, log odds times `scales` plus `shifts` (Platt, 1999). `names`: the labels or entity types that
    have numbers of their own, in order; () where one number serves all. `rows`: how many of `split` it was fitted to,
    and `ece` there before and after.
    `ways`: by engine and precision (engines/choice.py) what an export needs in place of it.

    calibration.json: written by `nlpctl train` and `nlpctl calibrate`, copied by `nlpctl export`, read wherever a model
    or an export is opened. ValueError: numbers that no fit gives.
    """

    FORMAT: ClassVar[int | None] = 1
    REPAIR: ClassVar[str] = "copy the model folder again"
    UPDATE: ClassVar[str] = "fit it again: nlpctl calibrate MODEL"

    method: Literal["temperature", "logistic"]
    scales: tuple[float, ...]
    shifts: tuple[float, ...]
    names: tuple[str, ...] = ()
    power: float = 0.0
    split: str = "dev"
    rows: int = 0
    ece: tuple[float, float] = (0.0, 0.0)
    ways: Mapping[str, Calibration] = field(default_factory=dict)

    def for_engine(self, way: str) -> Calibration:
        """What holds for an export that is run by this engine and precision, such as "paddle fp32"."""
        return self.ways.get(way, self)

    def to_json(self) -> dict[str, Any]:
        keys = ("method", "names", "scales", "shifts", "power", "split", "rows", "ece")
        values = {key: getattr(self, key) for key in keys}
        content = {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
        if self.ways:
            content["ways"] = {way: calibration.to_json() for way, calibration in self.ways.items()}
        return content

    def __post_init__(self) -> None:
        # Further out the exponential function overflows, and answers have no probability.
        sound = all(scale > 0 and abs(math.log(scale)) <= _FURTHEST for scale in self.scales)
        if not sound or not all(abs(each) <= _FURTHEST for each in (*self.shifts, self.power)):  # NaN is not
            raise ValueError("holds numbers that no fit gives")
        if len(self.scales) != max(1, len(self.names)) or len(self.shifts) != len(self.scales):
            counts = f"{len(self.scales)} scales and {len(self.shifts)} shifts for {len(self.names)} names"
            raise ValueError(f"holds {counts}")
        if not all(0 <= each <= 1 for each in self.ece):
            raise ValueError("holds an ECE that is none")
        if any(each.ways for each in self.ways.values()):
            raise ValueError("holds ways inside of a way")


def read_calibration(folder: Path) -> Calibration | None:
    """That of a model folder or an export; None if it has none. UserError if it is damaged."""
    return Calibration.load_if_exists(folder / CALIBRATION)


def write_calibration(folder: Path, calibration: Calibration) -> None:
    """Write calibration.json; the sums of the folder are the caller's."""
    calibration.save(folder / CALIBRATION)
