"""The fp32 graphs of a network, the input of all other graphs. Not a name for --strategy: every chain has this step.

runners/compress/workbench.py writes them like `nlpctl export`.
"""

from __future__ import annotations

from nlpctl.compression.strategies.base import EXPORTS, Kind, Step, Strategy


class Fp32Export(Strategy):
    name = "export"
    kind = Kind.PRECISION
    help = "the fp32 graphs of a network"

    def export(self, name: str, needs: tuple[str, ...]) -> Step:
        """The graphs of the network in the needed folder; of the source if no folder is needed."""
        return Step(EXPORTS, name, self, needs)
