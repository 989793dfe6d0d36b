"""dynabert: networks of a smaller width, distilled from the full one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from nlpctl.compression.strategies.base import NetworkStrategy, Step
from nlpctl.config.compression_keys import parse_width
from nlpctl.config.schema import Recipe

if TYPE_CHECKING:
    from nlpctl.runtime.process import ProcessSetup
    from nlpctl.runtime.run_directory import RunDirectory

WIDTHS = ("3/4",)


class DynaBert(NetworkStrategy):
    name = "dynabert"
    stem = "width"
    help = "narrower networks, distilled from the full one"
    trains = True
    reads = ("width_mult_list", "criterion")
    in_names = ("width_mult_list",)
    of_training = ("criterion",)

    def networks(self, section: Any, base: Step | None) -> Iterator[Step]:
        for text in section.width_mult_list or WIDTHS:
            width = parse_width(text)
            yield self.network(width_name(width), base, width)

    def check(self, recipe: Recipe, config: Mapping[str, Any]) -> None:
        from nlpctl.compression.networks.dynabert import check

        check(recipe, config)

    def make_network(self, recipe: Recipe, source: str, step: Step, run: RunDirectory, setup: ProcessSetup) -> None:
        from nlpctl.compression.networks.dynabert import train_width

        if step.width is None:
            raise ValueError(f"{step.folder} has no width")
        train_width(recipe, source, step.width, run, setup)


def width_name(width: Fraction) -> str:
    """3/4 is width-0.75."""
    return f"{DynaBert.stem}-{float(width):.4g}"
