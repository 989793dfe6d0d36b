"""How probable an answer really is: the numbers of calibration.json, kept with a model and copied into its exports.

They were fitted on labelled rows after training (tasks/calibration.py) and change no decision, only the
probabilities that answers give (tasks/confidence.py). Imports neither Paddle nor NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nlpctl.errors import UserError
from nlpctl.files import read_json, write_json_atomic
from nlpctl.layout import CALIBRATION

FORMAT = 1
TEMPERATURE, LOGISTIC = "temperature", "logistic"
LARGEST = 4.0  # of the logarithm of a scale that is fitted; shifts and powers may be three times as large
_FURTHEST = 3 * LARGEST + 1e-6
_AGAIN = "copy the model folder again"


@dataclass(frozen=True)
class Calibration:
    """How the scores of a network become probabilities that hold.

    `method`: temperature, logits times `scales` before the softmax (1 / T of Guo et al., 2017), and times (1 + margin)
    ** `power` for a row in which the highest logit is so far ahead; logistic, log odds times `scales` plus `shifts`
    (Platt, 1999). `names`: the labels or entity types that have numbers of their own, in order; () where one number
    serves all. `rows`: how many of `split` it was fitted to, and `ece` there before and after.
    `ways`: by engine and precision (engines/choice.py) what an export needs in place of it.
    """

    method: str
    scales: tuple[float, ...]
    shifts: tuple[float, ...]
    names: tuple[str, ...] = ()
    power: float = 0.0
    split: str = "dev"
    rows: int = 0
    ece: tuple[float, float] = (0.0, 0.0)
    ways: Mapping[str, Calibration] = field(default_factory=dict)

    def of(self, way: str) -> Calibration:
        """What holds for an export that is run this way."""
        return self.ways.get(way, self)

    def to_json(self) -> dict[str, Any]:
        keys = ("method", "names", "scales", "shifts", "power", "split", "rows", "ece")
        own = {key: getattr(self, key) for key in keys}
        lists = {name: list(value) if isinstance(value, tuple) else value for name, value in own.items()}
        return {**lists, **({"ways": {way: each.to_json() for way, each in self.ways.items()}} if self.ways else {})}

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> Calibration:
        """ValueError, KeyError or TypeError: it is damaged."""
        scales, shifts = (tuple(float(each) for each in content[name]) for name in ("scales", "shifts"))
        names = tuple(str(each) for each in content["names"])
        power = float(content["power"])
        before, after = (float(each) for each in content["ece"])
        # Further out the exponential function overflows, and answers have no probability.
        sound = all(scale > 0 and abs(math.log(scale)) <= _FURTHEST for scale in scales)
        sound = sound and all(abs(each) <= _FURTHEST for each in (*shifts, power))  # NaN is not
        if content["method"] not in (TEMPERATURE, LOGISTIC) or not sound:
            raise ValueError("numbers that no fit gives")
        if len(scales) != max(1, len(names)) or len(shifts) != len(scales):
            raise ValueError(f"{len(scales)} scales and {len(shifts)} shifts for {len(names)} names")
        if not (0 <= before <= 1 and 0 <= after <= 1):
            raise ValueError("an ECE that is none")
        ways = {str(way): Calibration.from_json(each) for way, each in content.get("ways", {}).items()}
        if any(each.ways for each in ways.values()):
            raise ValueError("ways inside of a way")
        told = str(content["split"]), int(content["rows"]), (before, after)
        return Calibration(content["method"], scales, shifts, names, power, *told, ways)


def read_calibration(folder: Path) -> Calibration | None:
    """That of a model folder or an export; None if it has none. UserError if it is damaged."""
    file = folder / CALIBRATION
    if not file.is_file():
        return None
    content = read_json(file)
    if content.get("format") != FORMAT:
        message = f"has format {content.get('format')!r}; this version of nlpctl reads format {FORMAT}"
        raise UserError(message, str(file), "update nlpctl, or fit it again: nlpctl calibrate MODEL")
    try:
        return Calibration.from_json(content)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UserError(f"is incomplete or damaged ({type(error).__name__}: {error})", str(file), _AGAIN) from None


def write_calibration(folder: Path, calibration: Calibration) -> None:
    """Write calibration.json; the sums of the folder are the caller's."""
    write_json_atomic(folder / CALIBRATION, {"format": FORMAT, **calibration.to_json()})
