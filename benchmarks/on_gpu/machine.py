"""What the GPU of this machine says of itself, as JSON; exit 4 without a GPU.

python benchmarks/on_gpu/machine.py [--key] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path
from statistics import median

from pytest_gpuperf.devices.cuda.device import CudaDevice
from pytest_gpuperf.errors import UsageError
from pytest_gpuperf.model.codec import encode


READINGS = 50


def reading_ms(device: CudaDevice) -> float:
    """Return the median cost of asking for throttling and other processes."""
    device.disturbance()
    costs = []
    for _ in range(READINGS):
        start_ns = device.now_ns()
        device.disturbance()
        costs.append((device.now_ns() - start_ns) / 1e6)
    return median(costs)


def machine(device: CudaDevice) -> dict[str, object]:
    environment = device.environment()
    device.measure_memory(lambda: device.torch.ones(1, device="cuda"), ())
    return {
        "environment": encode(environment),
        "unmeasurable": dict(device.unmeasurable),
        "disturbance": device.disturbance(),
        "sees_its_own_process": "driver_bytes"
        in device.measure_memory(lambda: None, ()).exact,
        "disturbance_reading_ms": round(reading_ms(device), 4),
        "cpu_count": os.cpu_count(),
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--key", action="store_true", help="print the hardware key")
    parser.add_argument("--out", type=Path, help="folder to write machine.json into")
    options = parser.parse_args()
    try:
        device = CudaDevice.open()
    except UsageError as error:
        print(error, file=sys.stderr)
        return 4
    if options.key:
        print(device.environment().hardware.key)
        return 0
    told = json.dumps(machine(device), indent=1, sort_keys=True)
    print(told)
    if options.out:
        (options.out / "machine.json").write_text(told, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
