"""Doctor's checks of the graphics cards: driver, CUDA libraries, and all of them computing together."""

from __future__ import annotations

import json
import os

from nlpctl.errors import UserError
from nlpctl.runtime.check import Check, ask_python
from nlpctl.runtime.device import CPU_WHEEL, GpuReport, Probes, paddle_wheel, usable_gpu

_CUDA_CODE = """
import json, nlpctl, paddle
paddle.set_device("gpu:0")
product = paddle.matmul(paddle.ones([64, 64]), paddle.ones([64, 64]))
assert float(product.sum()) == 64.0 ** 3
paddle.nn.Conv2D(3, 8, 3)(paddle.ones([1, 3, 16, 16])).numpy()
print(json.dumps([paddle.version.cuda(), paddle.device.get_cudnn_version()]))
"""

# Runs nlpctl's own launch, so that what is tested is what training does.
_ALL_REDUCE_CODE = """
import sys, tempfile
from pathlib import Path
from nlpctl.runtime.launch import launch
with tempfile.TemporaryDirectory() as logs:
    sys.exit(launch([], {count}, {cards}, Path(logs), ("-m", "nlpctl.runtime.all_reduce")))
"""


def device_checks(probes: Probes | None = None) -> list[Check]:
    """Device and driver, and with a usable card what lies on top of it."""
    try:
        wheel, report = paddle_wheel(probes), usable_gpu(probes)
    except UserError:  # no Paddle or two: told by another check
        return []
    checks = [device(wheel, report)]
    if report.usable:
        checks += [cuda_libraries(), nccl(report.count)]
    return checks


def device(wheel: str, report: GpuReport) -> Check:
    """What `--device auto` would take. The GPU build without a usable card is worth a warning."""
    if report.usable:
        detail = f"gpu, {report.count} visible: {', '.join(report.names)}; driver for CUDA {report.cuda_version}"
        return Check("device", "ok", detail)
    if wheel == CPU_WHEEL:
        return Check("device", "ok", f"cpu: {report.reason}")
    return Check("device", "warning", f"cpu: {report.reason}", report.remedy)


def cuda_libraries() -> Check:
    """A matrix product and a convolution on the first card: CUDA, cuBLAS and cuDNN are there and fit."""
    answer = ask_python(_CUDA_CODE)
    if answer.error:
        remedy = "install CUDA 11.8 and cuDNN 8.6, and name their lib folders in LD_LIBRARY_PATH"
        return Check("CUDA and cuDNN", "failure", answer.error, remedy)
    cuda, cudnn = json.loads(answer.output.splitlines()[-1])
    return Check("CUDA and cuDNN", "ok", f"CUDA {cuda}, cuDNN {cudnn}")


def nccl(cards: int) -> Check:
    """Every card adds to a sum: NCCL works between them."""
    if cards < 2:
        return Check("NCCL all-reduce", "ok", "skipped: one card only")
    return all_reduce("NCCL all-reduce", cards, tuple(range(cards)))


def all_reduce(name: str, count: int, cards: tuple[int, ...]) -> Check:
    """Launch `count` processes, on `cards` or on CPU, that add up their ranks."""
    answer = ask_python(_ALL_REDUCE_CODE.format(count=count, cards=cards), dict(os.environ))
    if answer.error or answer.output != "done":
        remedy = "install NCCL 2 for your CUDA; NCCL_DEBUG=INFO tells more; else train on one card"
        return Check(name, "failure", answer.error or f"wrong answer: {answer.output!r}", remedy)
    return Check(name, "ok", f"{count} processes agree")
