"""Ask the NVIDIA driver which GPUs this process would see, and what they can compute. Prints one line of JSON.

Run as a script in a separate process. cuInit reads CUDA_VISIBLE_DEVICES only once, so a call in the process that later
trains would fix the GPUs before the recipe can choose them. Standard library only; it runs with -I -S.
"""

import ctypes
import json

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR


def probe() -> dict[str, object]:
    """{"driver": version such as "12.4" or "", "error": why there is none or it fails, "names": of the cards,
    "capabilities": of the same, [8, 6] or [0, 0] if the driver does not tell}."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return {"driver": "", "error": str(error), "names": [], "capabilities": []}
    version = ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(version))  # allowed before cuInit
    driver = f"{version.value // 1000}.{version.value % 1000 // 10}" if version.value else ""
    status = cuda.cuInit(0)
    if status == 100:  # CUDA_ERROR_NO_DEVICE
        return {"driver": driver, "error": "", "names": [], "capabilities": []}
    if status != 0:
        return {"driver": "", "error": f"cuInit failed with CUDA error {status}", "names": [], "capabilities": []}
    count = ctypes.c_int()
    cuda.cuDeviceGetCount(ctypes.byref(count))
    cards = range(count.value)
    names, capabilities = [_name(cuda, card) for card in cards], [_capability(cuda, card) for card in cards]
    return {"driver": driver, "error": "", "names": names, "capabilities": capabilities}


def _name(cuda: ctypes.CDLL, index: int) -> str:
    device = ctypes.c_int()
    name = ctypes.create_string_buffer(256)
    if cuda.cuDeviceGet(ctypes.byref(device), index) or cuda.cuDeviceGetName(name, 256, device):
        return "unknown card"
    return name.value.decode(errors="replace")


def _capability(cuda: ctypes.CDLL, index: int) -> tuple[int, int]:
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    if cuda.cuDeviceGet(ctypes.byref(device), index):
        return 0, 0
    for number, attribute in ((major, _MAJOR), (minor, _MINOR)):
        cuda.cuDeviceGetAttribute(ctypes.byref(number), attribute, device)
    return major.value, minor.value


if __name__ == "__main__":
    print(json.dumps(probe()))
