"""Dividing this machine among processes that work side by side."""

from __future__ import annotations

import dataclasses
import os

from nlpctl.config.schema import RuntimeSection
from nlpctl.runtime.cpu import physical_cores
from nlpctl.runtime.device import choose_device, usable_gpu


def shares(runtime: RuntimeSection, workers: int) -> list[RuntimeSection]:
    """The runtime section of each of `workers` processes: its share of the cores, or its card, in turns."""
    if choose_device(runtime.device, runtime.devices) == "gpu":
        cards = runtime.devices or tuple(range(usable_gpu().count))
        own_cards = [cards[number % len(cards)] for number in range(workers)]
        return [dataclasses.replace(runtime, device="gpu", devices=(card,)) for card in own_cards]
    threads = runtime.threads
    if threads is None and "OMP_NUM_THREADS" not in os.environ:
        threads = max(1, physical_cores() // workers)
    return [dataclasses.replace(runtime, device="cpu", threads=threads)] * workers
