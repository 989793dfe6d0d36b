"""Ask the NVIDIA driver for its cards, or the loader for CUDA libraries. Prints one line of JSON.

    cuda_probe.py driver            {"driver": "12.4", "error": "", "names": [...], "capabilities": [[8, 6], ...]}
    cuda_probe.py libraries NAME... {NAME: [version, folder], ...}, without those that the loader does not find

Run as a script in a separate process, under the environment that is asked about. cuInit reads CUDA_VISIBLE_DEVICES only
once, so a call in the process that later trains would fix the GPUs before the recipe can choose them. The loader reads
LD_LIBRARY_PATH only when a process starts, and what is opened stays open. Standard library only; it runs with -I -S.
"""

import ctypes
import json
import os
import sys

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE


# -- the driver and its cards ----------------------------------------------------------------


def driver_and_cards() -> dict[str, object]:
    """{"driver": CUDA version such as "12.4", "" without a driver, "error": why there is none or it fails,
    "names": of the visible cards, "capabilities": of the same, [8, 6], or [0, 0] if the driver does not say}."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return {"driver": "", "error": str(error), "names": [], "capabilities": []}
    version = ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(version))  # allowed before cuInit
    driver = f"{version.value // 1000}.{version.value % 1000 // 10}" if version.value else ""
    status = cuda.cuInit(0)
    if status == _NO_DEVICE:
        return {"driver": driver, "error": "", "names": [], "capabilities": []}
    if status != 0:
        return {"driver": "", "error": f"cuInit failed with CUDA error {status}", "names": [], "capabilities": []}
    count = ctypes.c_int()
    cuda.cuDeviceGetCount(ctypes.byref(count))
    cards = [name_and_capability(cuda, index) for index in range(count.value)]
    names, capabilities = [name for name, _ in cards], [capability for _, capability in cards]
    return {"driver": driver, "error": "", "names": names, "capabilities": capabilities}


def name_and_capability(cuda: ctypes.CDLL, index: int) -> tuple[str, tuple[int, int]]:
    """The name and the compute capability of a card; "unknown card" and (0, 0) where the driver does not say."""
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    if cuda.cuDeviceGet(ctypes.byref(device), index):
        return "unknown card", (0, 0)
    text = ctypes.create_string_buffer(256)
    name = "unknown card" if cuda.cuDeviceGetName(text, 256, device) else text.value.decode(errors="replace")
    for number, attribute in ((major, _MAJOR), (minor, _MINOR)):
        cuda.cuDeviceGetAttribute(ctypes.byref(number), attribute, device)
    return name, (major.value, minor.value)


# -- CUDA libraries ----------------------------------------------------------------------------


def version_and_folder(name: str) -> tuple[str, str] | None:
    """Version, such as "8.6.0", and folder of the library that the loader opens as `name`; None if it cannot."""
    try:
        library = ctypes.CDLL(name)
    except OSError:
        return None
    folder = ""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:  # has the path with links resolved
        for path in (line.split(maxsplit=5)[5].strip() for line in maps if "/" in line):
            if os.path.basename(path).startswith(name):
                folder = os.path.dirname(path)
                break
    return version_of(library, name.removeprefix("lib").removesuffix(".so")), folder


def version_of(library: ctypes.CDLL, stem: str) -> str:
    """The version as the library itself says it. `stem`: its name, such as "cudnn"."""
    if stem == "cudnn":
        library.cudnnGetVersion.restype = ctypes.c_size_t
        return split_number(library.cudnnGetVersion(), newer=90000)
    if stem == "nccl":
        number = ctypes.c_int()
        library.ncclGetVersion(ctypes.byref(number))
        return split_number(number.value, newer=10000)
    if stem == "nvrtc":
        major, minor = ctypes.c_int(), ctypes.c_int()
        library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"
    parts = [ctypes.c_int() for _ in range(3)]
    get_property = getattr(library, f"{stem}GetProperty")  # cublasGetProperty and so on: 0 major, 1 minor, 2 patch
    for kind, part in enumerate(parts):
        get_property(kind, ctypes.byref(part))
    return ".".join(str(part.value) for part in parts)


def split_number(number: int, newer: int) -> str:
    """8600 is 8.6.0; from `newer` on there are two digits for the second number."""
    width = 10000 if number >= newer else 1000
    return f"{number // width}.{number % width // 100}.{number % 100}"


if __name__ == "__main__":
    what, *libraries = sys.argv[1:]
    if what == "driver":
        print(json.dumps(driver_and_cards()))
    else:
        print(json.dumps({name: answer for name in libraries if (answer := version_and_folder(name)) is not None}))
