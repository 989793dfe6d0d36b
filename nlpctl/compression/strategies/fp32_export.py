"""The fp32 graphs of a network, of which all others are made. No word of --strategy: every chain has them.

They are written as `nlpctl export` writes them, by runners/compress/workbench.py.
"""

from __future__ import annotations

from nlpctl.compression.strategies.base import EXPORTS, Kind, Step, Strategy


class Fp32Export(Strategy):
    name = "export"
    kind = Kind.PRECISION
    help = "the fp32 graphs of a network"

    def export(self, name: str, needs: tuple[str, ...]) -> Step:
        """Of the network in the folder that is needed, of the source where none is."""
        return Step(EXPORTS, name, self, needs)
