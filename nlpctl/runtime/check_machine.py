"""Doctor's checks of the machine: processor, threads, memory, disk, cache folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from nlpctl.errors import UserError
from nlpctl.runtime.cache import cache_folder, usable_cache_folder
from nlpctl.runtime.check import Check
from nlpctl.runtime.cpu import CpuInfo, cpu_info, physical_cores
from nlpctl.runtime.process import amd_variables

GIB = 2**30
LITTLE_DISK, NO_DISK = 5 * GIB, GIB  # bytes; a base model with its optimizer state takes about 1.5 GB
LITTLE_MEMORY = 2 * GIB  # bytes; importing Paddle and PaddleNLP takes 530 MB


def processor(cpu: CpuInfo) -> Check:
    """Model and instruction sets; without AVX2 Paddle is very slow or does not start."""
    detail = f"{cpu.model or 'unknown'}, {' '.join(cpu.instruction_sets) or 'no known instruction set'}"
    if cpu.vendor and "avx2" not in cpu.instruction_sets:
        return Check("processor", "warning", detail, "Paddle's packages want AVX2: use another machine")
    return Check("processor", "ok", detail)


def threads(cores: int, environ: Mapping[str, str]) -> Check:
    """Physical cores against what OMP_NUM_THREADS already says."""
    wanted = environ.get("OMP_NUM_THREADS")
    if wanted is None:
        return Check("threads", "ok", f"{cores} physical cores, all used")
    detail = f"{cores} physical cores, OMP_NUM_THREADS={wanted}"
    if wanted == str(cores):
        return Check("threads", "ok", detail)
    return Check("threads", "warning", detail, "unset OMP_NUM_THREADS to use all cores, or give --threads")


def amd_setting(cpu: CpuInfo, environ: Mapping[str, str]) -> Check:
    """The MKL setting that AMD processors need to be fast."""
    name, variable = "AMD setting", "MKL_DEBUG_CPU_TYPE"
    if not cpu.is_amd:
        return Check(name, "ok", "not needed: not an AMD processor")
    best = amd_variables(cpu)
    if not best:
        return Check(name, "ok", "not available: no AVX2")
    if variable in environ and environ[variable] != best[variable]:
        remedy = f"unset {variable}; nlpctl sets {best[variable]}"
        return Check(name, "warning", f"{variable}={environ[variable]} from the environment", remedy)
    return Check(name, "ok", f"{variable}={best[variable]} will be set")


def memory(root: Path = Path("/")) -> Check:
    """Memory that is free for use."""
    try:
        lines = (root / "proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return Check("memory", "ok", "unknown")
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
    free = sizes["MemAvailable"]
    detail = f"{free / GIB:.1f} GiB available of {sizes['MemTotal'] / GIB:.1f}"
    if free < LITTLE_MEMORY:
        return Check("memory", "warning", detail, "close other programs, or use a smaller model and batch")
    return Check("memory", "ok", detail)


def disk(name: str, folder: Path, free: int | None = None) -> Check:
    """Free space where `folder` is or will be."""
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    free = shutil.disk_usage(existing).free if free is None else free
    detail = f"{free / GIB:.1f} GiB free in {folder}"
    remedy = "free some space, or work in another folder"
    if free < NO_DISK:
        return Check(name, "failure", detail, remedy)
    return Check(name, "warning", detail, remedy) if free < LITTLE_DISK else Check(name, "ok", detail)


def cache(environ: Mapping[str, str]) -> Check:
    """The folder for downloads can be written to and has a plain name."""
    folder = cache_folder(environ)
    try:
        return Check("cache folder", "ok", str(usable_cache_folder(folder, "PPNLP_HOME")))
    except UserError as error:
        return Check("cache folder", "failure", error.problems[0].message, "set runtime.cache_dir or PPNLP_HOME")


def machine_checks(environ: Mapping[str, str] | None = None) -> list[Check]:
    """All of the above for this machine."""
    environ = os.environ if environ is None else environ
    cpu = cpu_info()
    return [
        processor(cpu),
        threads(physical_cores(), environ),
        amd_setting(cpu, environ),
        memory(),
        disk("disk", Path.cwd()),
        cache(environ),
        disk("cache disk", cache_folder(environ)),
    ]
