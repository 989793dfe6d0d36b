"""Every way of having no GPU is told apart, with its remedy; the machine is faked through the probes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from nlpctl.errors import UserError
from nlpctl.runtime import device
from nlpctl.runtime.cuda import CudaCode, CudaLibraries
from nlpctl.runtime.device import (
    Driver,
    Probes,
    choose_device,
    gpu_for_exports,
    paddle_wheel,
    usable_gpu,
    visible_devices,
)

TWO_CARDS = Driver("12.2", "", ("Tesla V100", "Tesla V100"))
NO_DRIVER = Driver("", "libcuda.so.1: cannot open shared object file", ())
NO_CARD = Driver("12.2", "", ())


CODE = CudaCode(((6, 1), (7, 0), (7, 5), (8, 0), (8, 6)))  # of paddlepaddle-gpu 2.6.2
COMPLETE = CudaLibraries({}, {})


def machine(*wheels: str, driver: Driver = NO_DRIVER, libraries: CudaLibraries = COMPLETE) -> Probes:
    return Probes(lambda name: "2.6.2" if name in wheels else None, lambda _: driver, lambda: CODE, lambda _: libraries)


def cards(*capabilities: tuple[int, int]) -> Probes:
    """The GPU build on a machine with these cards."""
    names = tuple(f"Card {major}.{minor}" for major, minor in capabilities)
    return machine("paddlepaddle-gpu", driver=Driver("12.4", "", names, capabilities))


@pytest.mark.parametrize(
    ("probes", "environ", "reason", "remedy"),
    [
        (machine("paddlepaddle", driver=TWO_CARDS), {}, "CPU build", "pip install 'paddlepaddle-gpu==2.6.2'"),
        (machine("paddlepaddle-gpu"), {}, "no NVIDIA driver", "install the NVIDIA driver"),
        (machine("paddlepaddle-gpu", driver=NO_CARD), {}, "the driver finds no card", "nvidia-smi"),
        (
            machine("paddlepaddle-gpu", driver=NO_CARD),
            {"CUDA_VISIBLE_DEVICES": ""},
            "CUDA_VISIBLE_DEVICES is ''",
            "unset CUDA_VISIBLE_DEVICES",
        ),
    ],
    ids=["cpu build", "no driver", "no card", "cards hidden"],
)
def test_why_there_is_no_gpu(probes, environ, reason, remedy):
    report = usable_gpu(probes, environ)
    assert not report.usable and report.count == 0
    assert reason in report.reason and remedy in report.remedy


def test_gpu_asked_for_but_unusable_is_one_error_with_reason_and_remedy():
    with pytest.raises(UserError) as caught:
        choose_device("gpu", (), machine("paddlepaddle"))
    assert str(caught.value) == (
        "runtime.device: no usable GPU: the installed Paddle is the CPU build (paddlepaddle)\n  -> "
        "pip uninstall -y paddlepaddle paddlepaddle-gpu && pip install 'paddlepaddle-gpu==2.6.2'; or use --device cpu"
    )


def test_usable_cards():
    probes = machine("paddlepaddle-gpu", driver=TWO_CARDS)
    assert usable_gpu(probes).names == TWO_CARDS.names
    assert choose_device("auto", (), probes) == choose_device("gpu", (0, 1), probes) == "gpu"
    assert choose_device("cpu", (), probes) == "cpu"


def test_auto_without_gpu_is_cpu():
    assert choose_device("auto", (), machine("paddlepaddle")) == "cpu"


def test_listed_cards_must_exist_and_need_a_gpu():
    with pytest.raises(UserError, match="there is no card 2"):
        choose_device("gpu", (0, 2), machine("paddlepaddle-gpu", driver=TWO_CARDS))
    with pytest.raises(UserError, match="runtime.devices: no usable GPU"):
        choose_device("auto", (0,), machine("paddlepaddle"))
    with pytest.raises(UserError, match="the device is cpu"):
        choose_device("cpu", (0,), machine("paddlepaddle-gpu", driver=TWO_CARDS))


@pytest.mark.parametrize(
    ("card", "remedy"),
    [
        ((9, 0), "install a newer GPU build of Paddle 3.1 by hand: docs/gpu.md, Newer cards"),
        ((12, 0), "install a newer GPU build of Paddle 3.1 by hand: docs/gpu.md, Newer cards"),
        ((6, 0), "no Paddle that nlpctl knows serves this card: use another one"),
        ((5, 2), "no Paddle that nlpctl knows serves this card: use another one"),
    ],
)
def test_a_card_that_the_build_has_no_code_for_is_refused(card, remedy, capsys):
    with pytest.raises(UserError) as caught:
        choose_device("gpu", (), cards(card))
    capability = ".".join(map(str, card))
    assert str(caught.value) == (
        f"runtime.device: no usable GPU: Card {capability} is of compute capability {capability}, and "
        f"paddlepaddle-gpu 2.6.2 has code for 6.1, 7.0, 7.5, 8.0, 8.6\n  -> {remedy}; or use --device cpu"
    )
    assert choose_device("auto", (), cards(card)) == "cpu"
    assert f"the CPU is used, since Card {capability} is of compute" in capsys.readouterr().err


def test_code_for_8_6_runs_on_8_9_and_an_unknown_card_is_tried():
    assert choose_device("gpu", (), cards((8, 9))) == "gpu"
    assert choose_device("gpu", (), cards((0, 0))) == "gpu"


def test_of_several_cards_those_that_are_served_can_be_named():
    probes = cards((9, 0), (8, 6), (8, 0))
    assert choose_device("gpu", (1, 2), probes) == "gpu"
    for wanted in ((), (0, 1)):
        with pytest.raises(UserError, match=r"devices: Card 9.0 is .*\n  -> use --devices 1,2, or --device cpu"):
            choose_device("gpu", wanted, probes)
    assert choose_device("auto", (), probes) == "cpu"


def test_a_missing_cuda_library_is_named_with_its_package():
    remedy = "pip install 'nvidia-cudnn-cu11==8.6.0.163'"
    lacking = CudaLibraries({}, {}, lacking="libcudnn.so is not found", remedy=remedy)
    with pytest.raises(UserError) as caught:
        choose_device("gpu", (), machine("paddlepaddle-gpu", driver=TWO_CARDS, libraries=lacking))
    assert str(caught.value) == (
        "runtime.device: no usable GPU: a CUDA library that Paddle needs is missing: libcudnn.so is not found\n  -> "
        "pip install 'nvidia-cudnn-cu11==8.6.0.163'; or name its folder in LD_LIBRARY_PATH; or use --device cpu"
    )


def test_a_build_of_paddle_3_finds_its_libraries_itself():
    lacking = CudaLibraries({}, {}, lacking="libcudnn.so is not found")
    three = Probes(
        lambda name: "3.1.1" if name == "paddlepaddle-gpu" else None,
        lambda environ: TWO_CARDS,
        lambda: None,
        lambda environ: lacking,
    )
    assert choose_device("gpu", (), three) == "gpu"


@pytest.mark.parametrize("wheels", [(), ("paddlepaddle",)], ids=["no paddle", "cpu build"])
def test_onnx_runtime_answers_exports_on_a_card_where_paddle_cannot(wheels):
    probes = machine(*wheels, "onnxruntime-gpu", driver=TWO_CARDS)
    assert gpu_for_exports(probes).names == TWO_CARDS.names
    assert choose_device("auto", (), probes, needs_paddle=False) == "gpu"
    assert choose_device("gpu", (1,), probes, needs_paddle=False) == "gpu"
    assert choose_device("cpu", (), probes, needs_paddle=False) == "cpu"
    with pytest.raises(UserError, match="there is no card 2"):
        choose_device("gpu", (2,), probes, needs_paddle=False)
    with pytest.raises(UserError):  # who trains needs Paddle on the card
        choose_device("gpu", (), probes)


def test_a_card_that_paddle_has_no_code_for_answers_exports():
    hopper = Driver("13.0", "", ("NVIDIA H100",), ((9, 0),))
    probes = machine("paddlepaddle-gpu", "onnxruntime-gpu", driver=hopper)
    assert not usable_gpu(probes).usable and gpu_for_exports(probes).names == hopper.names
    without = machine("paddlepaddle-gpu", driver=hopper)
    assert "has code for" in gpu_for_exports(without).reason


@pytest.mark.parametrize(
    ("wheels", "driver", "reason", "remedy"),
    [
        ((), TWO_CARDS, "ONNX Runtime is the CPU build", "pip install 'onnxruntime-gpu[cuda,cudnn]'"),
        (("onnxruntime", "onnxruntime-gpu"), TWO_CARDS, "both onnxruntime and", "pip uninstall -y onnxruntime onnxru"),
        (("onnxruntime-gpu",), NO_DRIVER, "no NVIDIA driver", "install the NVIDIA driver"),
        (("onnxruntime-gpu",), NO_CARD, "the driver finds no card", "nvidia-smi"),
    ],
    ids=["cpu build", "both", "no driver", "no card"],
)
def test_why_no_card_answers_exports(wheels, driver, reason, remedy):
    probes = machine(*wheels, driver=driver)
    assert choose_device("auto", (), probes, needs_paddle=False) == "cpu"
    with pytest.raises(UserError, match=f"no usable GPU: .*{reason}") as caught:
        choose_device("gpu", (), probes, needs_paddle=False)
    assert remedy in str(caught.value)


def test_paddle_missing_or_twice():
    with pytest.raises(UserError, match=r"Paddle is not installed\n  -> pip install 'nlpctl\[cpu\]'"):
        paddle_wheel(machine())
    with pytest.raises(UserError, match="both paddlepaddle and paddlepaddle-gpu"):
        paddle_wheel(machine("paddlepaddle", "paddlepaddle-gpu"))


@pytest.mark.parametrize(
    ("cards", "current", "wanted"),
    [((), "2,3", None), ((0, 1), None, "0,1"), ((1,), "2, 3", "3"), ((0,), "GPU-abc", "GPU-abc")],
)
def test_cards_count_among_the_visible_ones(cards, current, wanted):
    assert visible_devices(cards, {} if current is None else {"CUDA_VISIBLE_DEVICES": current}) == wanted


FAKE_DRIVER = """
#include <stdlib.h>
#include <string.h>
int cuDriverGetVersion(int *version) { *version = 12020; return 0; }
int cuInit(unsigned flags) { const char *fail = getenv("FAKE_CUINIT"); return fail ? atoi(fail) : 0; }
int cuDeviceGetCount(int *count) {
  const char *seen = getenv("CUDA_VISIBLE_DEVICES");
  *count = seen ? strlen(seen) : 2;
  return 0;
}
int cuDeviceGet(int *device, int index) { *device = index; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  const char *capability = getenv("FAKE_CAPABILITY");
  if (!capability) capability = "86";
  *value = capability[attribute == 75 ? 0 : 1] - '0';
  return 0;
}
int cuDeviceGetName(char *name, int size, int device) { strncpy(name, "Fake card", size); return 0; }
"""


@pytest.fixture(scope="module")
def fake_driver(tmp_path_factory):
    """Environment in which libcuda.so.1 is ours: two cards, or one per letter of CUDA_VISIBLE_DEVICES."""
    folder = tmp_path_factory.mktemp("driver")
    source = folder / "cuda.c"
    source.write_text(FAKE_DRIVER)
    try:
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1"), str(source)], check=True)
    except FileNotFoundError:
        pytest.skip("no C compiler to build the stand-in driver with")
    return {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(folder)}


def test_the_probe_reads_the_driver(fake_driver):
    assert device.ask_driver(fake_driver) == Driver("12.2", "", ("Fake card", "Fake card"), ((8, 6), (8, 6)))
    assert device.ask_driver({**fake_driver, "FAKE_CAPABILITY": "90"}).capabilities == ((9, 0), (9, 0))
    assert device.ask_driver({**fake_driver, "CUDA_VISIBLE_DEVICES": "0"}).names == ("Fake card",)
    assert device.ask_driver({**fake_driver, "FAKE_CUINIT": "100"}) == Driver("12.2", "", ())
    assert device.ask_driver({**fake_driver, "FAKE_CUINIT": "999"}).error == "cuInit failed with CUDA error 999"


def test_a_missing_driver_is_told(tmp_path):
    if sys.platform == "linux" and device.ask_driver(os.environ).names:
        pytest.skip("this machine has a driver and a card")
    driver = device.ask_driver(os.environ)
    assert driver.names == () and ("libcuda" in driver.error or driver.cuda_version)
