"""The memory of this machine."""

from __future__ import annotations

from pathlib import Path


def memory_sizes(root: Path = Path("/")) -> dict[str, int] | None:
    """The entries of /proc/meminfo in bytes, such as MemTotal and MemAvailable; None if there is no such file."""
    try:
        lines = (root / "proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
