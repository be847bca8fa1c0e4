"""What only real GPUs can answer about several of them and about two sides."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch

from pytest_gpuperf.devices.cuda.device import CudaDevice
from pytest_gpuperf.devices.machine import (
    VISIBLE_DEVICES,
    cuda_slots,
    visible_gpu_count,
)


pytestmark = pytest.mark.gpu

ALONE = (
    "import torch; from pytest_gpuperf.devices.cuda.device import CudaDevice; "
    "print(torch.cuda.device_count(), CudaDevice.open().fingerprint())"
)

RANKS = """
import pytest_gpuperf as gpuperf
import torch
from torch import distributed

@gpuperf.ranks({count})
@gpuperf.budget(collectives=1)
def test_all_reduce(gpuperf):
    gradient = torch.ones(1 << 20, device=gpuperf.device)
    gpuperf(lambda: distributed.all_reduce(gradient))
    assert distributed.get_backend() == "nccl"
    assert torch.cuda.device_count() == 1
"""


SIDES = """
import torch

def test_sides(gpuperf):
    large = torch.zeros(64 << 20, dtype=torch.uint8, device="cuda")
    small = torch.zeros(8 << 20, dtype=torch.uint8, device="cuda")
    found = gpuperf.compare(lambda: large.add_(1), lambda: small.add_(1))
    assert (found.memory.before, found.memory.after) == (64 << 20, 8 << 20)
"""


@pytest.fixture
def on_cuda(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], pytest.RunResult]:
    """Run a test file with the plugin alone, whether the package is installed or not."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "pytest_gpuperf.plugin")

    def run(source: str) -> pytest.RunResult:
        pytester.makepyfile(source)
        return pytester.runpytest_subprocess("--gpuperf", "--gpuperf-device=cuda")

    return run


def test_the_first_slot_is_the_gpu_that_is_measured_on() -> None:
    slots = cuda_slots(torch.cuda, os.environ.get(VISIBLE_DEVICES))

    assert slots[0].board == CudaDevice.open().fingerprint()


def test_a_process_at_a_slot_sees_that_gpu_alone() -> None:
    for slot in cuda_slots(torch.cuda, os.environ.get(VISIBLE_DEVICES)):
        visible = {} if slot.visible is None else {VISIBLE_DEVICES: slot.visible}
        told = subprocess.run(
            [sys.executable, "-c", ALONE],
            env={**os.environ, **visible},
            capture_output=True,
            text=True,
            check=True,
        ).stdout

        assert told == f"1 {slot.board}\n"


TWO_SLOTS = """
import os, torch
from pytest_gpuperf.devices.machine import cuda_slots

for slot in cuda_slots(torch.cuda, os.environ["CUDA_VISIBLE_DEVICES"]):
    print(slot.visible, slot.board)
"""


@pytest.mark.stub
def test_slots_are_the_gpus_that_are_visible_in_their_order() -> None:
    """Of three GPUs the last and the first may be seen."""

    def printed(program: str, visible: str) -> str:
        settings = {"GPUPERF_STUB_DEVICES": "3", VISIBLE_DEVICES: visible}
        return subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    slots = [line.split() for line in printed(TWO_SLOTS, "2,0").splitlines()]

    assert [visible for visible, _ in slots] == ["2", "0"]
    assert [printed(ALONE, visible) for visible, _ in slots] == [
        f"1 {board}\n" for _, board in slots
    ]


def test_the_gpus_are_counted_without_cuda_as_cuda_counts_them() -> None:
    assert (
        visible_gpu_count(os.environ.get(VISIBLE_DEVICES)) == torch.cuda.device_count()
    )


def test_ranks_have_a_gpu_each_and_talk_by_nccl(
    on_cuda: Callable[[str], pytest.RunResult],
) -> None:
    ran = on_cuda(RANKS.format(count=torch.cuda.device_count()))

    ran.assert_outcomes(passed=1)


TWO_RANKS = """
from pathlib import Path
import pytest_gpuperf as gpuperf
import torch
from torch import distributed

@gpuperf.ranks(2)
def test_all_reduce(gpuperf):
    gradient = torch.ones(1 << 20, device=gpuperf.device)
    gpuperf(lambda: distributed.all_reduce(gradient))
    own = Path(__file__).with_name(f"rank{distributed.get_rank()}.txt")
    own.write_text(str(torch.cuda.get_device_properties(0).uuid))
"""


@pytest.mark.stub
@pytest.mark.usefixtures("on_virtual_clock")
def test_no_two_ranks_have_the_same_gpu(
    on_cuda: Callable[[str], pytest.RunResult],
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GPUPERF_STUB_DEVICES", "2")

    on_cuda(TWO_RANKS).assert_outcomes(passed=1)

    used = {path.read_text("utf-8") for path in pytester.path.glob("rank*.txt")}
    assert len(used) == 2


@pytest.mark.usefixtures("on_virtual_clock")
def test_a_side_of_a_comparison_needs_what_it_reaches_itself(
    on_cuda: Callable[[str], pytest.RunResult],
) -> None:
    on_cuda(SIDES).assert_outcomes(passed=1)


COUNTED_THEN_FORKED = """
import os, torch
from pytest_gpuperf.distributed.group import visible_gpus

torch.cuda._device_count_nvml = lambda: -1
seen = visible_gpus()
child = os.fork()
if child == 0:
    torch.ones(1, device="cuda")
    os._exit(40 + seen)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
"""As without NVML, or for an instance of a MIG board: torch asks the driver."""


def test_ranks_can_be_forked_where_only_the_driver_counts_gpus() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COUNTED_THEN_FORKED],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout.strip() == str(40 + torch.cuda.device_count()), done.stderr
