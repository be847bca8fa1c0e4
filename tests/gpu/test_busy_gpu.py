"""Steps with one planted cause of waiting: on a real GPU it must come out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from pytest_gpuperf.devices.base import Step
from pytest_gpuperf.devices.cuda.device import CudaDevice
from pytest_gpuperf.measure.gpu_activity import find_busy
from pytest_gpuperf.measure.phases import measure
from pytest_gpuperf.measure.plan import MeasurePlan
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.model.finding import FindingKind


pytestmark = pytest.mark.gpu


class Rows(Dataset[torch.Tensor]):
    """Batches of one, each of which takes *seconds* to read."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, row: int) -> torch.Tensor:
        time.sleep(self.seconds)
        return torch.zeros(16)


def products(count: int = 20, side: int = 4096) -> Step:
    """Kernels of several hundred microseconds, which a host launches ahead."""
    matrix = torch.rand(side, side, device="cuda")
    out = torch.empty_like(matrix)

    def step() -> None:
        for _ in range(count):
            torch.mm(matrix, matrix, out=out)

    return step


def small_kernels() -> Step:
    rows = torch.zeros(8, device="cuda")

    def step() -> None:
        for _ in range(500):
            rows.add_(1)

    return step


def loading() -> Step:
    batches: Iterator[torch.Tensor] = iter(DataLoader(Rows(0.05), batch_size=1))
    compute = products(2)

    def step() -> None:
        next(batches).pin_memory().to("cuda", non_blocking=True)
        compute()

    return step


def copying() -> Step:
    batch = torch.rand(64 * 2**20)
    compute = products(2)

    def step() -> None:
        batch.to("cuda")
        compute()

    return step


def reading() -> Step:
    compute = products()
    total = torch.zeros((), device="cuda")

    def step() -> None:
        time.sleep(0.01)
        compute()
        total.add_(1).item()

    return step


@pytest.mark.parametrize(
    "made", [small_kernels, loading, copying, reading], ids=lambda made: made.__name__
)
def test_the_planted_cause_is_the_longest_gap(made: Callable[[], Step]) -> None:
    step = made()
    plan = MeasurePlan(test="t", seconds=60)

    found = measure(CudaDevice.open(), Subject(step=step), plan).measurement.findings

    gap = next(f for f in found if f.kind is FindingKind.IDLE)
    assert gap.location is not None
    # The profiler's own stack leaves out folders of the search path.
    assert Path(gap.location.file).name == Path(__file__).name


@pytest.mark.parametrize(
    ("made", "least", "most"), [(products, 95, 100), (small_kernels, 1, 80)]
)
def test_a_gpu_is_as_busy_as_it_is_kept(
    made: Callable[[], Step], least: float, most: float
) -> None:
    run = made()
    run()
    busy = find_busy(CudaDevice.open().profile(run, [()] * 3))

    assert busy is not None
    assert least <= 100 * busy[0] <= most


SLOW_LINE = """
import torch
import pytest_gpuperf as gpuperf

@gpuperf.budget(ms=0.0001)
def test_step(gpuperf):
    matrix = torch.rand(4096, 4096, device=gpuperf.device)

    def step():
        more = matrix + 1
        return more @ more

    gpuperf(step)
"""


def test_a_time_that_fails_names_the_line_that_launches_what_takes_it(
    tmp_path: Path,
) -> None:
    """The CPU launches the product in no time and works at no line while it runs."""
    (tmp_path / "test_it.py").write_text(SLOW_LINE, encoding="utf-8")
    # Lines are looked at by a clock, and on a virtual one nobody waits.
    environment = {**os.environ, "GPUPERF_STUB_CLOCK": "real", "COLUMNS": "80"}

    shown = subprocess.run(
        [sys.executable, "-m", "pytest", "--gpuperf", "--gpuperf-device=cuda"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    ).stdout

    percent = re.search(
        r"--> test_it.py:11 in step\n +11 \| return more @ more\n .*?(\d+) % of the step",
        shown,
        re.DOTALL,
    )
    assert percent is not None, shown
    assert int(percent[1]) >= 80
