"""The device that Paddle can use, determined without importing Paddle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nlpctl.errors import UserError
from nlpctl.runtime.versions import installed_version, pin

CPU_WHEEL, GPU_WHEEL = "paddlepaddle", "paddlepaddle-gpu"
DRIVER_SECONDS = 60  # the first cuInit on a host with many GPUs takes several seconds


@dataclass(frozen=True)
class Driver:
    """The answer of the NVIDIA driver: its CUDA version ("" without a driver, with the reason) and the visible GPUs."""

    cuda_version: str
    error: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Probes:
    """The function that queries the machine; tests replace it."""

    installed: Callable[[str], str | None] = field(default_factory=lambda: installed_version)
    driver: Callable[[Mapping[str, str]], Driver] = field(default_factory=lambda: ask_driver)


@dataclass(frozen=True)
class GpuReport:
    """Whether a GPU can be used; if not, `reason` and `remedy` say why and what to do.

    `cuda_version`: the newest CUDA that the driver supports, "" where no GPU can be used.
    """

    usable: bool
    reason: str
    remedy: str
    count: int
    names: tuple[str, ...]
    cuda_version: str


def ask_driver(environ: Mapping[str, str]) -> Driver:
    """Run cuda_probe.py under `environ` (it decides by CUDA_VISIBLE_DEVICES)."""
    script = Path(__file__).with_name("cuda_probe.py")
    try:
        done = subprocess.run(
            # Isolated: neither the user's site-packages nor PYTHONPATH can slow it down or import CUDA.
            [sys.executable, "-I", "-S", str(script)],
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
    return Driver(answer["driver"], answer["error"], tuple(answer["names"]))


def paddle_wheel(probes: Probes | None = None) -> str:
    """The installed Paddle package, `paddlepaddle` or `paddlepaddle-gpu`. Raises UserError unless exactly one is."""
    probes = probes or Probes()
    found = [name for name in (CPU_WHEEL, GPU_WHEEL) if probes.installed(name) is not None]
    if len(found) == 1:
        return found[0]
    if found:
        raise UserError(
            f"both {CPU_WHEEL} and {GPU_WHEEL} are installed; they overwrite each other's files",
            hint=f"for NVIDIA cards: {replace_paddle(GPU_WHEEL)}; without: {replace_paddle(CPU_WHEEL)}",
        )
    hint = f"pip install '{pin(CPU_WHEEL)}', or for NVIDIA cards pip install '{pin(GPU_WHEEL)}'"
    raise UserError("Paddle is not installed", hint=hint)


def replace_paddle(wheel: str) -> str:
    """The command that leaves `wheel` as the only Paddle."""
    return f"pip uninstall -y {CPU_WHEEL} {GPU_WHEEL} && pip install '{pin(wheel)}'"


def usable_gpu(probes: Probes | None = None, environ: Mapping[str, str] | None = None) -> GpuReport:
    """Whether Paddle can use a GPU here, with the reason and the remedy where it cannot.

    Only cards that CUDA_VISIBLE_DEVICES lets through count. Raises UserError when Paddle is not installed.
    """
    probes = probes or Probes()
    environ = os.environ if environ is None else environ
    if paddle_wheel(probes) == CPU_WHEEL:
        return _unusable(f"the installed Paddle is the CPU build ({CPU_WHEEL})", replace_paddle(GPU_WHEEL))
    driver = probes.driver(environ)
    if driver.error:
        return _unusable(
            f"no NVIDIA driver is usable ({driver.error})",
            "install the NVIDIA driver (nvidia-smi must list the card); in a container, start it with --gpus all",
        )
    if not driver.names:
        visible = environ.get("CUDA_VISIBLE_DEVICES")
        if visible is not None:
            return _unusable(
                f"no card is visible: CUDA_VISIBLE_DEVICES is {visible!r}", "unset CUDA_VISIBLE_DEVICES, or name a card"
            )
        return _unusable("the driver finds no card", "check nvidia-smi; in a container, start it with --gpus all")
    return GpuReport(True, "", "", len(driver.names), driver.names, driver.cuda_version)


def choose_device(wanted: str, cards: tuple[int, ...], probes: Probes | None = None) -> str:
    """ "gpu" or "cpu" for `runtime.device` ("auto", "gpu" or "cpu") and `runtime.devices` (card numbers).

    Raises UserError, saying why and what to do, when a GPU is asked for and none is usable, or when a card
    number does not exist.
    """
    if wanted == "cpu":
        if cards:
            raise UserError(
                "cards are listed, but the device is cpu", "runtime.devices", "drop --devices, or use --device gpu"
            )
        return "cpu"
    report = usable_gpu(probes)
    if not report.usable:
        if wanted == "gpu" or cards:
            where = "runtime.device" if wanted == "gpu" else "runtime.devices"
            raise UserError(f"no usable GPU: {report.reason}", where, f"{report.remedy}; or use --device cpu")
        return "cpu"
    missing = [card for card in cards if not 0 <= card < report.count]
    if missing:
        listed = ", ".join(f"{number}: {name}" for number, name in enumerate(report.names))
        raise UserError(f"there is no card {missing[0]}", "runtime.devices", f"the visible cards are {listed}")
    return "gpu"


def visible_devices(cards: tuple[int, ...], environ: Mapping[str, str]) -> str | None:
    """CUDA_VISIBLE_DEVICES for only `cards`, numbered among the GPUs visible now; None: no change."""
    if not cards:
        return None
    current = environ.get("CUDA_VISIBLE_DEVICES")
    if current is None:
        return ",".join(map(str, cards))
    names = [name.strip() for name in current.split(",")]
    return ",".join(names[card] for card in cards)


def _unusable(reason: str, remedy: str) -> GpuReport:
    return GpuReport(False, reason, remedy, 0, (), "")
