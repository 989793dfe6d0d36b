"""The memory of this machine, and what cannot fit into it."""

from __future__ import annotations

from pathlib import Path

from nlpctl.errors import UserError

PROCESS = 200 << 20  # the least that a process with Paddle takes, in bytes


def memory_sizes(root: Path = Path("/")) -> dict[str, int] | None:
    """The entries of /proc/meminfo in bytes, such as MemTotal and MemAvailable; None if there is no such file."""
    try:
        lines = (root / "proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}


def refuse_processes(count: int, where: str, root: Path = Path("/")) -> None:
    """UserError if the memory of this machine cannot hold `count` processes with Paddle."""
    sizes = memory_sizes(root)
    if sizes is not None and count * PROCESS > sizes["MemTotal"]:
        message = f"{count:,} processes need more than {count * PROCESS / 1e9:,.0f} GB of memory"
        total = sizes["MemTotal"]
        hint = f"this machine has {total / 1e9:,.0f} GB: ask for fewer, at most {total // PROCESS:,}"
        raise UserError(message, where, hint)
