"""NVML's energy, clocks, power and reasons to throttle, at rest and under a load.

    python benchmarks/on_gpu/energy.py --out FOLDER [--small]

Reads the GPU every 50 ms for some seconds at rest, then while a large product is multiplied
again and again, and compares the energy that NVML's counter adds up with the power that it
reads. Nothing is set. What NVML does not tell stands in ``energy.json`` with its reason.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any
from typing import Final


READ_EVERY_S: Final = 0.05
SECONDS: Final = 6.0
SMALL_SECONDS: Final = 0.5

Reading = dict[str, float]
Asked = dict[str, Callable[[], float]]


def readers(nvml: Any, handle: Any) -> Asked:
    """What is read of the GPU, by the name with its unit."""
    return {
        "energy_mj": lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle),
        "power_mw": lambda: nvml.nvmlDeviceGetPowerUsage(handle),
        "sm_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        "memory_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
        "celsius": lambda: nvml.nvmlDeviceGetTemperature(
            handle, nvml.NVML_TEMPERATURE_GPU
        ),
        "throttle_reasons": lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(
            handle
        ),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    import torch

    seconds = SMALL_SECONDS if options.small else SECONDS
    size = 256 if options.small else 8192
    told: dict[str, object] = {}
    try:
        import pynvml

        pynvml.nvmlInit()
        uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except Exception as error:  # noqa: BLE001, without NVML that is the answer
        told = {"unread": f"{type(error).__name__}: {error}"}
    else:
        ask = readers(pynvml, handle)
        told["at_rest"] = summed_up(list(readings(ask, seconds)))
        told["under_load"] = under_load(torch, ask, seconds, size)
    text = json.dumps(told, indent=1)
    print(text)
    (options.out / "energy.json").write_text(text, encoding="utf-8")
    return 0


def under_load(torch: Any, ask: Asked, seconds: float, size: int) -> dict[str, object]:
    """Read while this thread keeps the GPU busy."""
    found: list[Reading] = []
    reader = threading.Thread(target=lambda: found.extend(readings(ask, seconds)))
    a = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
    reader.start()
    while reader.is_alive():
        for _ in range(8):
            a @ a
        torch.cuda.synchronize()
    reader.join()
    return summed_up(found)


def readings(ask: Asked, seconds: float) -> Iterator[Reading]:
    """Read for so long; what NVML refuses is left out of a reading."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        start_s = time.monotonic()
        told = {name: answer(value) for name, value in ask.items()}
        read = {name: value for name, value in told.items() if value is not None}
        yield read | {"s": start_s, "reading_s": time.monotonic() - start_s}
        time.sleep(READ_EVERY_S)


def answer(value: Callable[[], float]) -> float | None:
    try:
        return float(value())
    except Exception:  # noqa: BLE001, NVML has an exception for each way to say no
        return None


def summed_up(found: list[Reading]) -> dict[str, object]:
    """Return medians, the energy by the counter and by the power, and how often it moved."""
    names = sorted({name for read in found for name in read} - {"s", "energy_mj"})
    summed: dict[str, object] = {
        name: median(read[name] for read in found if name in read) for name in names
    }
    reasons = {
        int(read["throttle_reasons"]) for read in found if "throttle_reasons" in read
    }
    summed["all_throttle_reasons"] = sorted(reasons)
    counter = [(read["s"], read["energy_mj"]) for read in found if "energy_mj" in read]
    if len(counter) > 1:
        (first_s, first_mj), (last_s, last_mj) = counter[0], counter[-1]
        summed["energy_by_counter_mj"] = last_mj - first_mj
        summed["energy_by_power_mj"] = summed.get("power_mw", 0) * (last_s - first_s)
        summed["counter_moves"] = len({mj for _, mj in counter}) - 1
        summed["seconds"] = last_s - first_s
    return summed


if __name__ == "__main__":
    sys.exit(main())
