"""Everything `nlpctl doctor` looks at, slow checks in parallel. Nothing here imports Paddle."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from nlpctl.runtime.check import Check
from nlpctl.runtime.check_device import device_checks
from nlpctl.runtime.check_machine import machine_checks
from nlpctl.runtime.check_packages import (
    IMPORTED,
    import_health,
    paddle_package,
    pinned_packages,
    python_version,
    zlib_order,
)
from nlpctl.runtime.cpu import physical_cores


def run_checks() -> Iterator[Check]:
    """Yield every check, in a fixed order, as soon as it and those before it are known."""
    # Each importing process takes half a gigabyte: no more of them than cores, and no more than four.
    with ThreadPoolExecutor(min(4, physical_cores())) as pool:
        imports = [pool.submit(import_health, module) for module in IMPORTED]
        zlib = pool.submit(zlib_order)
        yield python_version()
        yield paddle_package()
        yield from pinned_packages()
        yield from machine_checks()
        for each in (*imports, zlib):
            yield each.result()
    yield from device_checks()
