"""What Prometheus' clients tell of every process, under their names: memory, processor time, open files, start."""

from __future__ import annotations

import os
import time
from pathlib import Path

from nlpctl.serving.metrics import Counter, Gauge, Metric

_STARTED = time.time()


def process_metrics() -> list[Metric]:
    """The process as it is now."""
    processor = Counter("process_cpu_seconds_total", "Processor time, user and system.")
    processor.add(time.process_time())
    return [
        processor,
        Gauge("process_resident_memory_bytes", "Resident memory.", _resident_bytes),
        Gauge("process_open_fds", "Open files and connections.", lambda: len(os.listdir("/proc/self/fd"))),
        Gauge("process_start_time_seconds", "When the process started, in Unix time.", lambda: _STARTED),
    ]


def _resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
