"""The device that Paddle or ONNX Runtime can use, determined without importing either."""

from __future__ import annotations

import functools
import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nlpctl import console
from nlpctl.errors import NeedsRestart, UserError
from nlpctl.extras import not_installed
from nlpctl.paddle_version import release_of
from nlpctl.parent import python_until_parent_ends
from nlpctl.runtime.cuda import SEARCH_PATH, Capability, CudaCode, CudaLibraries, cuda_libraries, installed_code
from nlpctl.runtime.versions import installed_version, pin

CPU_WHEEL, GPU_WHEEL = "paddlepaddle", "paddlepaddle-gpu"
ORT_WHEEL, ORT_GPU_WHEEL = "onnxruntime", "onnxruntime-gpu"
# The extras are NVIDIA's packages.
REPLACE_ORT = f"pip uninstall -y {ORT_WHEEL} {ORT_GPU_WHEEL} && pip install '{ORT_GPU_WHEEL}[cuda,cudnn]'"
DRIVER_SECONDS = 60  # the first cuInit on a host with many GPUs takes several seconds


@dataclass(frozen=True)
class Driver:
    """The answer of the NVIDIA driver: its CUDA version ("" without a driver, with the reason) and the visible GPUs.

    `capabilities`: their compute capabilities in the same order; empty or (0, 0) where nobody knows.
    """

    cuda_version: str
    error: str
    names: tuple[str, ...]
    capabilities: tuple[Capability, ...] = ()


@dataclass(frozen=True)
class Probes:
    """The functions that query the machine; tests replace them."""

    installed: Callable[[str], str | None] = field(default_factory=lambda: installed_version)
    driver: Callable[[Mapping[str, str]], Driver] = field(default_factory=lambda: known_driver)
    code: Callable[[], CudaCode | None] = field(default_factory=lambda: installed_code)
    libraries: Callable[[Mapping[str, str]], CudaLibraries] = field(default_factory=lambda: cuda_libraries)


@dataclass(frozen=True)
class GpuReport:
    """Whether a GPU can be used; if not, `reason` and `remedy` say why and what to do.

    `names`: of the visible cards, also if none of them can be used. `unserved`: the numbers of those that the installed
    Paddle has no code for, with the reason. `cuda_version`: the newest CUDA that the driver supports, "" where no GPU
    can be used. `variables`: the environment that a process must be started with to find the CUDA libraries.
    """

    usable: bool
    reason: str
    remedy: str
    count: int
    names: tuple[str, ...]
    cuda_version: str
    unserved: Mapping[int, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)


# -- what is installed, and what the driver sees ---------------------------------------------


def ask_driver(environ: Mapping[str, str]) -> Driver:
    """The driver and the cards that a process under `environ` sees (cuda_probe.py); CUDA_VISIBLE_DEVICES decides."""
    script = Path(__file__).with_name("cuda_probe.py")
    try:
        done = subprocess.run(
            # Isolated: neither the user's site-packages nor PYTHONPATH can slow it down or import CUDA.
            python_until_parent_ends("-I", "-S", str(script), "driver"),
            capture_output=True,
            text=True,
            env=dict(environ),
            timeout=DRIVER_SECONDS,
        )
        answer = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return Driver("", f"the driver did not answer within {DRIVER_SECONDS} s", ())
    except ValueError:  # the probe crashed: a broken driver may kill its process
        return Driver("", f"asking the driver ended with exit code {done.returncode}", ())
    capabilities = tuple((major, minor) for major, minor in answer["capabilities"])
    return Driver(answer["driver"], answer["error"], tuple(answer["names"]), capabilities)


def known_driver(environ: Mapping[str, str]) -> Driver:
    """`ask_driver`, once for each set of cards that is visible: cuInit can take seconds."""
    key = tuple(environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", SEARCH_PATH))
    if key not in _DRIVERS:
        _DRIVERS[key] = ask_driver(environ)
    return _DRIVERS[key]


_DRIVERS: dict[tuple[str | None, ...], Driver] = {}


def paddle_wheel(probes: Probes | None = None) -> str:
    """The installed Paddle package, `paddlepaddle` or `paddlepaddle-gpu`. Raises UserError unless exactly one is."""
    probes = probes or Probes()
    installed = [name for name in (CPU_WHEEL, GPU_WHEEL) if probes.installed(name) is not None]
    if len(installed) == 1:
        return installed[0]
    if installed:
        raise UserError(
            f"both {CPU_WHEEL} and {GPU_WHEEL} are installed; they overwrite each other's files",
            hint=f"for NVIDIA cards: {replace_paddle(GPU_WHEEL)}; without: {replace_paddle(CPU_WHEEL)}",
        )
    raise not_installed("paddle")


def replace_paddle(wheel: str) -> str:
    """The command that leaves `wheel` as the only Paddle."""
    return f"pip uninstall -y {CPU_WHEEL} {GPU_WHEEL} && pip install '{pin(wheel)}'"


# -- whether a GPU can be used ---------------------------------------------------------------


def usable_gpu(probes: Probes | None = None, environ: Mapping[str, str] | None = None) -> GpuReport:
    """Whether Paddle can use a GPU here, with the reason and the remedy where it cannot.

    Only cards that CUDA_VISIBLE_DEVICES lets through count. Raises UserError when Paddle is not installed.
    """
    probes = probes or Probes()
    environ = os.environ if environ is None else environ
    if paddle_wheel(probes) == CPU_WHEEL:
        return _unusable(f"the installed Paddle is the CPU build ({CPU_WHEEL})", replace_paddle(GPU_WHEEL))
    driver = probes.driver(environ)
    if (lacking := _no_card(driver, environ)) is not None:
        return lacking
    unserved = _unserved(driver, wheel_version(probes), probes.code())
    if len(unserved) == len(driver.names):
        return _unusable(unserved[0], _other_paddle(driver.capabilities[0], probes.code()), driver.names)
    libraries = needed_libraries(probes, environ)
    if libraries.lacking:
        reason = f"a CUDA library that Paddle needs is missing: {libraries.lacking}"
        return _unusable(reason, f"{libraries.remedy}; or name its folder in {SEARCH_PATH}", driver.names)
    count, names = len(driver.names), driver.names
    return GpuReport(True, "", "", count, names, driver.cuda_version, unserved, libraries.variables)


def gpu_for_exports(probes: Probes | None = None) -> GpuReport:
    """Whether Paddle or, where it cannot, ONNX Runtime can use a GPU here; neither has to be installed."""
    probes = probes or Probes()
    by_onnx = onnx_runtime_gpu(probes)
    if not any(probes.installed(name) is not None for name in (CPU_WHEEL, GPU_WHEEL)):
        return by_onnx
    by_paddle = usable_gpu(probes)
    return by_onnx if by_onnx.usable and not by_paddle.usable else by_paddle


def onnx_runtime_gpu(probes: Probes | None = None, environ: Mapping[str, str] | None = None) -> GpuReport:
    """Whether ONNX Runtime can use a GPU here, as far as packages and the driver tell, with the reason and the remedy
    where it cannot."""
    probes = probes or Probes()
    environ = os.environ if environ is None else environ
    if probes.installed(ORT_GPU_WHEEL) is None:
        return _unusable(f"the installed ONNX Runtime is the CPU build ({ORT_WHEEL})", REPLACE_ORT)
    if probes.installed(ORT_WHEEL) is not None:
        both = f"both {ORT_WHEEL} and {ORT_GPU_WHEEL} are installed; they overwrite each other's files"
        return _unusable(both, REPLACE_ORT)
    driver = probes.driver(environ)
    lacking = _no_card(driver, environ)
    return lacking or GpuReport(True, "", "", len(driver.names), driver.names, driver.cuda_version)


def paddle_has_card() -> bool:
    """Whether Paddle is installed and can use a GPU."""
    probes = Probes()
    return probes.installed(GPU_WHEEL) is not None and usable_gpu(probes).usable


def _no_card(driver: Driver, environ: Mapping[str, str]) -> GpuReport | None:
    """Why there is no card at all; None if there is one."""
    if driver.error:
        return _unusable(
            f"no NVIDIA driver is usable ({driver.error})",
            "install the NVIDIA driver (nvidia-smi must list the card); in a container, start it with --gpus all",
        )
    if driver.names:
        return None
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return _unusable(
            f"no card is visible: CUDA_VISIBLE_DEVICES is {visible!r}", "unset CUDA_VISIBLE_DEVICES, or name a card"
        )
    return _unusable("the driver finds no card", "check nvidia-smi; in a container, start it with --gpus all")


def needed_libraries(probes: Probes | None = None, environ: Mapping[str, str] | None = None) -> CudaLibraries:
    """The CUDA libraries of the installed GPU build, if it is one that has to be helped to find them."""
    probes = probes or Probes()
    release = release_of(wheel_version(probes))
    if release is None or release >= (3, 0):
        return CudaLibraries({}, {})
    return probes.libraries(os.environ if environ is None else environ)


def wheel_version(probes: Probes) -> str:
    """The version of the installed GPU build, "" if there is none."""
    return probes.installed(GPU_WHEEL) or ""


def _unusable(reason: str, remedy: str, names: tuple[str, ...] = ()) -> GpuReport:
    return GpuReport(False, reason, remedy, 0, names, "")


def _unserved(driver: Driver, version: str, code: CudaCode | None) -> dict[int, str]:
    """Why the installed Paddle cannot compute on a card, by the number of the card; empty if that is not known."""
    if code is None:
        return {}
    serves = f"paddlepaddle-gpu {version} has code for {', '.join(map(_format_capability, (*code.machine, *code.ptx)))}"
    return {
        number: f"{driver.names[number]} is of compute capability {_format_capability(card)}, and {serves}"
        for number, card in enumerate(driver.capabilities)
        if card != (0, 0) and not code.runs_on(card)
    }


def _other_paddle(card: Capability, code: CudaCode | None) -> str:
    """What to do about a card that the installed Paddle has no code for."""
    if code is not None and card > code.newest:
        return "install a newer GPU build of Paddle 3.1 by hand: docs/gpu.md, Newer cards"
    return "no Paddle that nlpctl knows serves this card: use another one"


# -- the device of this process --------------------------------------------------------------


def choose_device(
    wanted: str, cards: tuple[int, ...], probes: Probes | None = None, *, needs_paddle: bool = True
) -> str:
    """ "gpu" or "cpu" for `runtime.device` ("auto", "gpu" or "cpu") and `runtime.devices` (card numbers).

    Raises UserError, saying why and what to do, when a GPU is asked for and none is usable, or when a card
    number does not exist; NeedsRestart if Paddle would not find the CUDA libraries from here. If "auto" takes the CPU
    of a machine with cards, a warning says why. `needs_paddle`: False for an export, which ONNX Runtime answers where
    Paddle cannot or is not installed.
    """
    if wanted == "cpu":
        if cards:
            hint = "drop @[runtime.devices], or use @[runtime.device=gpu]"
            raise UserError("cards are listed, but the device is cpu", "runtime.devices", hint)
        return "cpu"
    report = usable_gpu(probes) if needs_paddle else gpu_for_exports(probes)
    if not report.usable:
        if wanted == "gpu" or cards:
            where, other = "runtime.devices", "leave @[runtime.devices] out"
            if wanted == "gpu":
                where, other = "runtime.device", "use @[runtime.device=cpu]"
            raise UserError(f"no usable GPU: {report.reason}", where, f"{report.remedy}; or {other}")
        if report.names:
            warn_once(f"the CPU is used, since {report.reason}\n  -> {report.remedy}")
        return "cpu"
    missing = [card for card in cards if not 0 <= card < report.count]
    if missing:
        listed = ", ".join(f"{number}: {name}" for number, name in enumerate(report.names))
        raise UserError(f"there is no card {missing[0]}", "runtime.devices", f"the visible cards are {listed}")
    unserved = [card for card in cards or (0,) if card in report.unserved]
    if unserved:
        served = ",".join(str(card) for card in range(report.count) if card not in report.unserved)
        reason, hint = report.unserved[unserved[0]], f"use @[runtime.devices={served}]"
        if wanted == "gpu" or cards:
            raise UserError(reason, "runtime.devices", f"{hint}, or @[runtime.device=cpu]")
        warn_once(f"the CPU is used, since {reason}\n  -> {hint}")
        return "cpu"
    if report.variables:
        raise _restart(report.variables)
    return "gpu"


def restart_if_needed() -> None:
    """Raise NeedsRestart if Paddle would not find the CUDA libraries from here, whatever the device will be."""
    try:
        report = usable_gpu()
    except UserError:  # there is no Paddle; what needs it says so
        return
    if report.variables:
        raise _restart(report.variables)


def visible_devices(cards: tuple[int, ...], environ: Mapping[str, str]) -> str | None:
    """CUDA_VISIBLE_DEVICES for only `cards`, numbered among the GPUs visible now; None: no change."""
    if not cards:
        return None
    current = environ.get("CUDA_VISIBLE_DEVICES")
    if current is None:
        return ",".join(map(str, cards))
    names = [name.strip() for name in current.split(",")]
    return ",".join(names[card] for card in cards)


def _restart(variables: Mapping[str, str]) -> NeedsRestart:
    """What the command line answers by starting itself again. The message is for Python code that uses nlpctl."""
    message = "Paddle would not find the CUDA libraries: this process was started without their folder"
    hint = f"start Python with {SEARCH_PATH}={variables[SEARCH_PATH]}; the command line does so itself"
    return NeedsRestart(message, "runtime.device", hint, variables)


@functools.cache
def warn_once(message: str) -> None:
    """Warn; of the same message only once, since a command may choose its device in several places."""
    console.warn(message)


def _format_capability(capability: Capability) -> str:
    return ".".join(map(str, capability))
