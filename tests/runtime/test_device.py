"""Every way of having no GPU is told apart, with its remedy; the machine is faked through the probes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from nlpctl.errors import UserError
from nlpctl.runtime import device
from nlpctl.runtime.device import Driver, Probes, choose_device, paddle_wheel, usable_gpu, visible_devices

TWO_CARDS = Driver("12.2", "", ("Tesla V100", "Tesla V100"))
NO_DRIVER = Driver("", "libcuda.so.1: cannot open shared object file", ())
NO_CARD = Driver("12.2", "", ())


def machine(*wheels: str, driver: Driver = NO_DRIVER) -> Probes:
    return Probes(lambda name: "2.6.2" if name in wheels else None, lambda environ: driver)


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


def test_paddle_missing_or_twice():
    with pytest.raises(UserError, match=r"Paddle is not installed\n  -> pip install 'paddlepaddle==2.6.2'"):
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
    assert device.ask_driver(fake_driver) == Driver("12.2", "", ("Fake card", "Fake card"))
    assert device.ask_driver({**fake_driver, "CUDA_VISIBLE_DEVICES": "0"}).names == ("Fake card",)
    assert device.ask_driver({**fake_driver, "FAKE_CUINIT": "100"}) == Driver("12.2", "", ())
    assert device.ask_driver({**fake_driver, "FAKE_CUINIT": "999"}).error == "cuInit failed with CUDA error 999"


def test_a_missing_driver_is_told(tmp_path):
    if sys.platform == "linux" and device.ask_driver(os.environ).names:
        pytest.skip("this machine has a driver and a card")
    driver = device.ask_driver(os.environ)
    assert driver.names == () and ("libcuda" in driver.error or driver.cuda_version)
