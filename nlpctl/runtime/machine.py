"""The machine: its processor, the share of it that this process may use, its memory, and what other programs take.

All of it is read from Linux without other packages. psutil would not do: it counts the cores of the machine, not those
of this process and its container, knows no instruction sets, and takes a tenth of a second to import, in every command.

`root` is "/" except in tests.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nlpctl.errors import UserError

INSTRUCTION_SETS = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_int8", "amx_bf16")
NATIVE = {"bf16": ("avx512_bf16", "amx_bf16"), "int8": ("avx_vnni", "avx512_vnni", "amx_int8")}  # one is enough
AMD_VENDORS = ("AuthenticAMD", "HygonGenuine")  # Hygon builds AMD's Zen under licence


@dataclass(frozen=True)
class CpuInfo:
    """The processor: maker, model name, which of INSTRUCTION_SETS it has, and its maker's numbers for its design.

    Virtual machines may hide the model name; `family` and `number` (of the model) still tell the designs apart.
    """

    vendor: str
    model: str
    instruction_sets: tuple[str, ...]
    family: str = ""
    number: str = ""

    @property
    def is_amd(self) -> bool:
        return self.vendor in AMD_VENDORS

    def __str__(self) -> str:
        design = f" (family {self.family}, model {self.number})" if self.family else ""
        return f"{self.model or 'unknown'}{design}, {' '.join(self.instruction_sets) or 'no known instruction set'}"

    def computes(self, precision: str) -> bool:
        """Whether it multiplies matrices of "bf16" or "int8" without converting them first; fp32 always, fp16 never."""
        return precision == "fp32" or any(name in self.instruction_sets for name in NATIVE.get(precision, ()))

    @property
    def trains_in_bfloat16(self) -> bool:
        """Whether `train --bf16` can use it."""
        return self.computes("bf16")


@functools.cache
def cpu_info(root: Path = Path("/")) -> CpuInfo:
    """Read /proc/cpuinfo; empty strings if the system has no such information (not Linux, not x86)."""
    first: dict[str, str] = {}
    for line in _read(root / "proc/cpuinfo").splitlines():
        if not line.strip() and first:
            break  # one block per logical processor; all are alike
        name, _, value = line.partition(":")
        first[name.strip()] = value.strip()
    flags = set(first.get("flags", "").split())
    present = tuple(name for name in INSTRUCTION_SETS if name in flags)
    vendor, model, family, number = (first.get(key, "") for key in ("vendor_id", "model name", "cpu family", "model"))
    return CpuInfo(vendor, model, present, family, number)


# -- the share of the processors that this process may use -----------------------------------


def physical_cores(root: Path = Path("/")) -> int:
    """Cores this process may use: its affinity with hyper-threads counted once, cut to the container's quota."""
    cores, quota = allowed_cores(root), cpu_quota(root)
    return cores if quota is None else max(1, min(cores, int(quota)))


def allowed_cores(root: Path = Path("/")) -> int:
    """Cores by the affinity of this process, with hyper-threads counted once, whatever its quota."""
    return len({_core_of(processor, root) for processor in allowed_processors()})


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Processors' worth of time that the cgroup grants, None without a limit."""
    # The tightest limit of all ancestors counts.
    limits = [limit for folder in _cgroup_folders(root) if (limit := _folder_quota(folder)) is not None]
    return min(limits, default=None)


def allowed_processors() -> set[int]:
    """The numbers of the logical processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return set(os.sched_getaffinity(0))
    return set(range(os.cpu_count() or 1))


def _core_of(processor: int, root: Path) -> tuple[str, str]:
    """(package, core); a logical processor with unknown topology counts as a separate core."""
    topology = root / f"sys/devices/system/cpu/cpu{processor}/topology"
    core = _read(topology / "core_id").strip()
    return (_read(topology / "physical_package_id").strip(), core) if core else ("processor", str(processor))


def _cgroup_folders(root: Path) -> list[Path]:
    """This process's cpu cgroup and its ancestors; any of them may have a limit."""
    folders = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":  # version 2
            base = root / "sys/fs/cgroup"
        elif "cpu" in controllers.split(","):  # version 1
            base = root / "sys/fs/cgroup/cpu"
        else:
            continue
        inside = base / path.lstrip("/")
        folders += [inside, *[parent for parent in inside.parents if parent.is_relative_to(base)]]
    return folders


def _folder_quota(folder: Path) -> float | None:
    """The quota of one cgroup in processors, such as 2.5; None without a limit."""
    if line := _read(folder / "cpu.max"):  # version 2: "200000 100000" or "max 100000"
        quota, period = line.split()
    else:  # version 1: -1 is no limit
        quota, period = _read(folder / "cpu.cfs_quota_us").strip(), _read(folder / "cpu.cfs_period_us").strip()
    if quota in ("", "max", "-1"):
        return None
    return int(quota) / int(period)


def _read(path: Path) -> str:
    """The text of a file of /proc or /sys; "" if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


# -- memory ----------------------------------------------------------------------------------

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


# -- what other programs take while something is timed ---------------------------------------

# Not the load average, which tells of the last minute, and counts programs that wait for a disk. Not the time that the
# threads of this process waited for a processor: those of two engines, which spin after a batch, wait for each other.

_IDLE = (3, 4)  # columns of /proc/stat that are no work: idle, and waiting for a disk
_STOLEN = 7  # the last column before those of guests, which are part of others: what the machine's host gave to others


@dataclass(frozen=True)
class CpuTimes:
    """Seconds that the processors which this process may use have worked, for all programs and for this process.

    `at`: the clock (time.monotonic) when they were read.
    """

    at: float
    by_all: float
    by_this: float


def cpu_times(root: Path = Path("/")) -> CpuTimes | None:
    """The seconds since the machine started; None where the system does not tell (not Linux)."""
    names = {f"cpu{number}" for number in allowed_processors()}
    ticks = 0
    try:
        lines = [line.split() for line in (root / "proc/stat").read_text(encoding="ascii").splitlines()]
        for line in lines:
            if line and line[0] in names:
                ticks += sum(int(each) for i, each in enumerate(line[1 : _STOLEN + 2]) if i not in _IDLE)
    except (OSError, ValueError):
        return None
    return CpuTimes(time.monotonic(), ticks / os.sysconf("SC_CLK_TCK"), time.process_time()) if ticks else None


class Contention:
    """Measures, from its creation on, what other programs take of the processors while this process has work for
    `threads` threads."""

    def __init__(self, threads: int, measure: Callable[[], CpuTimes | None] = cpu_times, cores: int | None = None):
        self._measure, self._cores = measure, cores or allowed_cores()
        self._wanted = min(threads, self._cores)
        self._began = measure()

    def share(self) -> float:
        """The share of the processors that were wanted which others took, 0 to 1; 0 where the system does not tell."""
        began, ended = self._began, self._measure()
        if began is None or ended is None or ended.at <= began.at:
            return 0.0
        others = (ended.by_all - began.by_all) - (ended.by_this - began.by_this)
        free = self._cores - max(0.0, others) / (ended.at - began.at)
        return min(1.0, max(0.0, 1 - free / self._wanted))
