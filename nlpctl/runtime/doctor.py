"""The checks of `nlpctl doctor`. Imports no Paddle; checks that need it run in other processes."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nlpctl.errors import UserError
from nlpctl.extras import install
from nlpctl.paddle_version import WHEELS
from nlpctl.runtime.cache import cache_folder, usable_cache_folder
from nlpctl.runtime.cuda import SEARCH_PATH, CudaLibraries
from nlpctl.runtime.device import (
    CPU_WHEEL,
    ORT_GPU_WHEEL,
    REPLACE_ORT,
    GpuReport,
    Probes,
    needed_libraries,
    onnx_runtime_gpu,
    paddle_wheel,
    usable_gpu,
)
from nlpctl.runtime.machine import NATIVE, CpuInfo, cpu_info, memory_sizes, physical_cores
from nlpctl.runtime.process import amd_variables
from nlpctl.runtime.versions import installed_version, known_paddles, pins, require_known_paddle
from nlpctl.runtime.worker import Answer, run_python
from nlpctl.spelling import option

Status = Literal["ok", "warning", "failure"]
IMPORT_SECONDS = 180  # a cold start from a network disk
TESTED_PYTHON = (3, 11)
IMPORTED = ("paddle", "paddlenlp", "paddleslim", "paddle2onnx", "onnxruntime")
GIB = 2**30
LITTLE_DISK, NO_DISK = 5 * GIB, GIB  # bytes; a base model with its optimizer state takes about 1.5 GB
LITTLE_MEMORY = 2 * GIB  # bytes; importing Paddle and PaddleNLP takes 530 MB

# If Paddle was imported first, compressing and decompressing with zlib fails or crashes.
_ZLIB_CODE = """
import nlpctl, os, paddle, zlib
data = os.urandom(1 << 16) * 4
assert zlib.decompress(zlib.compress(data)) == data
"""

_CUDA_CODE = """
import json, nlpctl, paddle
paddle.set_device("gpu:0")
product = paddle.matmul(paddle.ones([64, 64]), paddle.ones([64, 64]))
assert float(product.sum()) == 64.0 ** 3
paddle.nn.Conv2D(3, 8, 3)(paddle.ones([1, 3, 16, 16])).numpy()
print(json.dumps([paddle.version.cuda(), paddle.device.get_cudnn_version()]))
"""

# The graph, an ONNX file, is y = MatMul(x, x).
_ONNX_CODE = """
import nlpctl, numpy
from nlpctl.engines.onnx_runtime import CUDA_PROVIDER, open_session
from nlpctl.runtime.process import ProcessSetup
graph = bytes.fromhex(
    "08083a440a110a01780a017812017922064d61744d756c1201675a150a017812100a0e0801120a0a0312016e0a0312016e62"
    "150a017912100a0e0801120a0a0312016e0a0312016e42040a00100d"
)
session = open_session(graph, 1, ProcessSetup("gpu:0", 1, 0, 1))
assert session.get_providers()[0] == CUDA_PROVIDER, "its CUDA provider could not be loaded"
assert float(session.run(None, {"x": numpy.ones((64, 64), "float32")})[0].sum()) == 64.0**3
"""

# Runs nlpctl's own launch, which training uses too.
_ALL_REDUCE_CODE = """
import sys, tempfile
from pathlib import Path
from nlpctl.launch.launch import launch
with tempfile.TemporaryDirectory() as logs:
    sys.exit(launch([], {count}, {cards}, Path(logs), ("-m", "nlpctl.launch.all_reduce")))
"""


@dataclass(frozen=True)
class Check:
    """A check: its name, status and detail, and the remedy ("" if none is needed)."""

    name: str
    status: Status
    detail: str
    remedy: str = ""


def run_checks() -> Iterator[Check]:
    """Yield every check in a fixed order, as soon as it and those before it are done; slow ones run in parallel."""
    # Each importing process takes half a gigabyte: no more of them than cores, and no more than four.
    with ThreadPoolExecutor(min(4, physical_cores())) as pool:
        trained = trains(installed_version)
        imports = [pool.submit(import_health, each) for each in IMPORTED if trained or each == "onnxruntime"]
        imports += [pool.submit(zlib_order)] if trained else []
        yield python_version()
        yield paddle_package()
        yield from pinned_packages()
        yield from machine_checks()
        for each in imports:
            yield each.result()
    yield from device_checks()


def _run_code(code: str, environ: dict[str, str] | None = None) -> Answer:
    """Output or failure of `code` in a new Python process, by default on one thread and without a GPU."""
    environ = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""} if environ is None else environ
    return run_python("-c", code, environ=environ, seconds=IMPORT_SECONDS)


# -- Python and its packages -------------------------------------------------------------------


def python_version(running: tuple[int, int] | None = None) -> Check:
    """The Python version; any but the tested one gives a warning."""
    running = running or (sys.version_info.major, sys.version_info.minor)
    tested = ".".join(map(str, TESTED_PYTHON))
    detail = f"{platform.python_version()} ({sys.executable})"
    if running == TESTED_PYTHON:
        return Check("python", "ok", detail)
    return Check("python", "warning", detail, f"nlpctl is tested with Python {tested}: make the environment with it")


def paddle_package(probes: Probes | None = None) -> Check:
    """Exactly one of the two Paddle packages, to train; none where exports are answered."""
    if not trains((probes or Probes()).installed):
        detail = f"none, so exports are answered and nothing is trained; {install('paddle')} brings it"
        return Check("paddle package", "ok", detail)
    try:
        return Check("paddle package", "ok", paddle_wheel(probes))
    except UserError as error:
        problem = error.problems[0]
        return Check("paddle package", "failure", problem.message, problem.hint)


def pinned_packages(installed: Callable[[str], str | None] = installed_version) -> list[Check]:
    """One line per declared package of the core, and of what trains, where anything of that is installed."""
    checks = [paddle_version(name, version) for name in WHEELS if (version := installed(name))]
    wanted = {pin.package: pin for pin in pins() if pin.extra in ("", *(("train",) if trains(installed) else ()))}
    for pin in wanted.values():
        version = installed(pin.package)
        if version is None and pin.package == "onnxruntime" and (on_cards := installed(ORT_GPU_WHEEL)) is not None:
            checks.append(Check(ORT_GPU_WHEEL, "ok", f"{on_cards}, in place of onnxruntime"))
        elif version is None:
            checks.append(Check(pin.package, "failure", f"not installed (needed: {pin})", f"pip install '{pin}'"))
        elif not pin.allows(version):
            checks.append(Check(pin.package, "failure", f"{version}, but {pin} is needed", f"pip install '{pin}'"))
        else:
            checks.append(Check(pin.package, "ok", f"{version} ({pin.bounds or 'any version'})"))
    return checks


def trains(installed: Callable[[str], str | None]) -> bool:
    """Whether Paddle or PaddleNLP is installed, so that the rest of what trains should be."""
    return any(installed(package) is not None for package in (*WHEELS, "paddlenlp"))


def paddle_version(wheel: str, version: str) -> Check:
    """The version of the installed Paddle: that of an extra, another of a known release, or one never tried."""
    try:
        require_known_paddle(version)
    except UserError as error:
        problem = error.problems[0]
        return Check(wheel, "failure", problem.message, problem.hint)
    exact = [each for each in pins() if each.package == wheel and each.allows(version)]
    if exact:
        return Check(wheel, "ok", f"{version} ({exact[0].bounds}, extra {exact[0].extra})")
    return Check(wheel, "warning", f"{version}, close to a tested version", f"tested: {known_paddles()}")


def import_health(module: str) -> Check:
    """Whether `module` can be imported after nlpctl, in a separate process."""
    name = f"import {module}"
    answer = _run_code(f"import nlpctl, {module}")
    if not answer.failure:
        return Check(name, "ok", "works")
    remedy = "fix the versions above; else reinstall: pip install --force-reinstall nlpctl with its extra cpu or gpu"
    return Check(name, "failure", answer.failure, remedy)


def zlib_order() -> Check:
    """Whether zlib still works once Paddle is loaded (see nlpctl/__init__.py)."""
    answer = _run_code(_ZLIB_CODE)
    if not answer.failure:
        return Check("zlib with paddle", "ok", "works")
    return Check("zlib with paddle", "failure", answer.failure, "in your own scripts, import nlpctl before paddle")


# -- the machine -------------------------------------------------------------------------------


def processor(cpu: CpuInfo) -> Check:
    """Model and instruction sets; without AVX2 Paddle is very slow or does not start."""
    if cpu.vendor and "avx2" not in cpu.instruction_sets:
        return Check("processor", "warning", str(cpu), "Paddle's packages need AVX2: use another machine")
    native = ", ".join(["fp32", *(each for each in NATIVE if cpu.computes(each))])
    return Check("processor", "ok", f"{cpu}: Paddle Inference computes {native}")


def threads(cores: int, environ: Mapping[str, str]) -> Check:
    """Physical cores against what OMP_NUM_THREADS already says."""
    wanted = environ.get("OMP_NUM_THREADS")
    if wanted is None:
        return Check("threads", "ok", f"{cores} physical cores, all used")
    detail = f"{cores} physical cores, OMP_NUM_THREADS={wanted}"
    if wanted == str(cores):
        return Check("threads", "ok", detail)
    remedy = f"unset OMP_NUM_THREADS to use all cores, or give {option('runtime.threads')}"
    return Check("threads", "warning", detail, remedy)


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
    """Available memory."""
    sizes = memory_sizes(root)
    if sizes is None:
        return Check("memory", "ok", "unknown")
    free = sizes["MemAvailable"]
    detail = f"{free / GIB:.1f} GiB available of {sizes['MemTotal'] / GIB:.1f}"
    if free < LITTLE_MEMORY:
        return Check("memory", "warning", detail, "close other programs, or use a smaller model and batch")
    return Check("memory", "ok", detail)


def disk(name: str, folder: Path, free: int | None = None) -> Check:
    """Free space where `folder` is or will be."""
    existing = next(each for each in (folder, *folder.parents) if os.path.exists(each))
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


def machine_checks() -> list[Check]:
    """Processor, threads, memory, disk, cache folder."""
    cpu, environ = cpu_info(), os.environ
    return [
        processor(cpu),
        threads(physical_cores(), environ),
        amd_setting(cpu, environ),
        memory(),
        disk("disk", Path.cwd()),
        cache(environ),
        disk("cache disk", cache_folder(environ)),
    ]


# -- graphics cards: driver, CUDA libraries, and all of them computing together ----------------


def device_checks(probes: Probes | None = None) -> list[Check]:
    """Device and driver, and the CUDA libraries of a GPU build; with a usable GPU they are tried out, with NCCL."""
    probes = probes or Probes()
    exports, on_cards = onnx_runtime_gpu(probes), probes.installed(ORT_GPU_WHEEL) is not None
    checks = _paddle_device_checks(probes) if trains(probes.installed) else [device(exports, expected=on_cards)]
    if on_cards and not exports.usable and trains(probes.installed):
        checks.append(Check("ONNX Runtime on the card", "warning", exports.reason, exports.remedy))
    return [*checks, onnx_runtime_works()] if exports.usable else checks


def _paddle_device_checks(probes: Probes) -> list[Check]:
    try:
        wheel, report = paddle_wheel(probes), usable_gpu(probes)
        libraries = CudaLibraries({}, {}) if wheel == CPU_WHEEL else needed_libraries(probes)
    except UserError:  # two Paddles, which another check reports
        return []
    checks = [device(report, expected=wheel != CPU_WHEEL)]
    if libraries.loaded:
        checks.append(cuda_libraries(libraries))
    if report.usable:
        checks += [cuda_works(report.variables), nccl(report.count, report.variables)]
    return checks


def device(report: GpuReport, *, expected: bool) -> Check:
    """What `--device auto` would take. `expected`: a package for cards is installed; then none is worth a warning."""
    if report.usable:
        detail = f"gpu, {report.count} visible: {', '.join(report.names)}; driver for CUDA {report.cuda_version}"
        if report.unserved:
            detail = "; ".join((detail, *report.unserved.values()))
            return Check("device", "warning", detail, f"name the others: {option('runtime.devices')}")
        return Check("device", "ok", detail)
    if not expected:
        return Check("device", "ok", f"cpu: {report.reason}")
    return Check("device", "warning", f"cpu: {report.reason}", report.remedy)


def onnx_runtime_works() -> Check:
    """A matrix product on the first card by ONNX Runtime, with which exports are answered there."""
    name, answer = "ONNX Runtime on the card", _run_code(_ONNX_CODE, {})
    if not answer.failure:
        return Check(name, "ok", "works")
    return Check(name, "failure", answer.failure, f"install the CUDA that it was built for: {REPLACE_ORT}")


def cuda_libraries(libraries: CudaLibraries) -> Check:
    """Version and place of the CUDA libraries that `--device gpu` gets. They can be read without a card."""
    folders: dict[str, list[str]] = {}
    for name, library in libraries.loaded.items():
        if library.version:
            # pip's packages have a folder each, nvidia/cudnn/lib and so on: the folder of all of them is shown.
            before, packages, _ = library.folder.partition("/site-packages/nvidia/")
            stem = name.removeprefix("lib").removesuffix(".so")
            folders.setdefault(before + packages.rstrip("/"), []).append(f"{stem} {library.version}")
    listed = [f"{', '.join(names)} from {folder}" for folder, names in folders.items()]
    detail = "; ".join(filter(None, [libraries.lacking, *listed, libraries.passed_over]))
    return Check("CUDA libraries", "warning" if libraries.lacking else "ok", detail, libraries.remedy)


def cuda_works(variables: Mapping[str, str]) -> Check:
    """A matrix product and a convolution on the first card: CUDA, cuBLAS and cuDNN are there and fit."""
    answer = _run_code(_CUDA_CODE, dict(variables))
    if answer.failure:
        remedy = f"install CUDA 11.8 and cuDNN 8.6: pip install '.[gpu]', or name their lib folders in {SEARCH_PATH}"
        return Check("CUDA and cuDNN", "failure", answer.failure, remedy)
    cuda, cudnn = json.loads(answer.output.splitlines()[-1])
    return Check("CUDA and cuDNN", "ok", f"CUDA {cuda}, cuDNN {cudnn}")


def nccl(cards: int, variables: Mapping[str, str]) -> Check:
    """All GPUs compute a common sum, so NCCL works."""
    if cards < 2:
        return Check("NCCL all-reduce", "ok", "skipped: one card only")
    return all_reduce("NCCL all-reduce", cards, tuple(range(cards)), variables)


def all_reduce(name: str, count: int, cards: tuple[int, ...], variables: Mapping[str, str] | None = None) -> Check:
    """Launch `count` processes, on `cards` or on CPU, that add up their ranks."""
    answer = _run_code(_ALL_REDUCE_CODE.format(count=count, cards=cards), dict(variables or {}))
    if answer.failure or answer.output != "done":
        remedy = "install NCCL 2 for your CUDA; NCCL_DEBUG=INFO shows details; otherwise train on one GPU"
        return Check(name, "failure", answer.failure or f"wrong answer: {answer.output!r}", remedy)
    return Check(name, "ok", f"{count} processes agree")
