"""Ask the NVIDIA driver which GPUs this process would see. Prints one line of JSON.

Run as a script in a separate process. cuInit reads CUDA_VISIBLE_DEVICES only once, so a call in the process that later
trains would fix the GPUs before the recipe can choose them. Standard library only; it runs with -I -S.
"""

import ctypes
import json


def probe() -> dict[str, object]:
    """{"driver": version such as "12.4" or "", "error": why there is none or it fails, "names": of the cards}."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return {"driver": "", "error": str(error), "names": []}
    version = ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(version))  # allowed before cuInit
    driver = f"{version.value // 1000}.{version.value % 1000 // 10}" if version.value else ""
    status = cuda.cuInit(0)
    if status == 100:  # CUDA_ERROR_NO_DEVICE
        return {"driver": driver, "error": "", "names": []}
    if status != 0:
        return {"driver": "", "error": f"cuInit failed with CUDA error {status}", "names": []}
    count = ctypes.c_int()
    cuda.cuDeviceGetCount(ctypes.byref(count))
    return {"driver": driver, "error": "", "names": [_name(cuda, index) for index in range(count.value)]}


def _name(cuda: ctypes.CDLL, index: int) -> str:
    device = ctypes.c_int()
    name = ctypes.create_string_buffer(256)
    if cuda.cuDeviceGet(ctypes.byref(device), index) or cuda.cuDeviceGetName(name, 256, device):
        return "unknown card"
    return name.value.decode(errors="replace")


if __name__ == "__main__":
    print(json.dumps(probe()))
