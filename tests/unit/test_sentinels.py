"""Fixed kernels that witness the machine: lent by a device, timed around a step."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from contextlib import contextmanager
from math import log
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_gpuperf.devices.base import Kernel
from pytest_gpuperf.devices.scripted import ScriptedDevice
from pytest_gpuperf.devices.sentinels import Sizes
from pytest_gpuperf.devices.sentinels import torch_sentinels
from pytest_gpuperf.judge.context import Sentinels
from pytest_gpuperf.measure.phases import measure
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.measure.timing import REPEATS
from pytest_gpuperf.measure.timing import time_sentinels
from pytest_gpuperf.model.baseline import RunSummary
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.environment import Environment
from pytest_gpuperf.model.environment import Hardware
from pytest_gpuperf.model.measurement import Distribution
from pytest_gpuperf.model.measurement import Measurement
from pytest_gpuperf.model.metrics import SENTINELS


NAMES = [metric.name for metric in SENTINELS]
SMALL = Sizes(side=4, elements=8, copies=2)


class Broken(ScriptedDevice):
    """A device whose kernels do not run."""

    @contextmanager
    def sentinels(self) -> Iterator[Mapping[str, Kernel]]:
        def fail() -> None:
            msg = "CUDA out of memory"
            raise RuntimeError(msg)

        yield dict.fromkeys(NAMES, fail)


class FakeTorch:
    """torch on the CPU that takes itself for a GPU and logs how memory is freed."""

    def __init__(self, torch: Any) -> None:
        self.log: list[str] = []
        self.made: list[Any] = []
        self._torch = torch
        self.float32, self.mm, self.no_grad = torch.float32, torch.mm, torch.no_grad
        self.cuda = SimpleNamespace(
            synchronize=lambda: self.log.append("synchronize"),
            empty_cache=lambda: self.log.append("empty_cache"),
        )
        self._C = SimpleNamespace(
            _cuda_clearCublasWorkspaces=lambda: self.log.append("clear")
        )

    def ones(self, shape: tuple[int, ...], *, dtype: Any, device: str) -> Any:
        assert device == "cuda"
        return self._torch.ones(shape, dtype=dtype)


def test_each_sentinel_is_timed_several_times() -> None:
    device = ScriptedDevice({"step": {"sentinel_ms": 1.5}}, run=0)
    device.prepare(int, "step")

    assert time_sentinels(device) == dict.fromkeys(NAMES, (1.5,) * REPEATS)


def test_a_sentinel_that_cannot_run_fails_no_test() -> None:
    assert time_sentinels(Broken({}, run=0)) == {}


def test_sentinels_are_timed_before_and_after_the_step() -> None:
    device = ScriptedDevice({"step": {"sentinel_ms": 1.5}}, run=0)

    times = measure(
        device, Subject(step=int), test="step", seconds=60
    ).measurement.times

    assert [times[name].samples for name in NAMES] == [2 * REPEATS] * 3
    assert [times[name].q25 for name in NAMES] == [1.5] * 3


def test_the_kernels_run_on_torch_and_draw_no_random_numbers() -> None:
    torch = pytest.importorskip("torch")
    before = torch.get_rng_state()

    with torch_sentinels(torch, "cpu", SMALL) as kernels:
        names = list(kernels)
        product = kernels["sentinel_gemm_ms"]()
        for kernel in kernels.values():
            kernel()

    assert names == NAMES
    assert torch.equal(product, torch.full((4, 4), 4.0))
    assert torch.equal(torch.get_rng_state(), before)


def test_what_a_gpu_lent_is_handed_back() -> None:
    fake = FakeTorch(pytest.importorskip("torch"))

    with torch_sentinels(fake, "cuda", SMALL) as kernels:
        assert fake.log == []

    assert kernels == {}
    assert fake.log == ["synchronize", "clear", "empty_cache"]


def times(*ms: float) -> dict[str, Distribution]:
    return {
        name: Distribution(q10=one, q25=2 * one, q50=one, mean=one, samples=8)
        for name, one in zip(NAMES, ms, strict=False)
    }


@pytest.mark.parametrize(
    ("kind", "factor"), [(DeviceKind.CPU, 1), (DeviceKind.CUDA, 2)]
)
def test_a_run_counts_with_the_mean_of_its_sentinels_if_it_has_all(
    kind: DeviceKind, factor: int
) -> None:
    environment = Environment(hardware=Hardware(kind=kind, name="x"))
    fresh = [
        Measurement(test="t", environment=environment, times=times(*ms))
        for ms in [(1, 1, 8), (1, 1), (1, 1, 0)]
    ]
    stored = [RunSummary(times=times(*ms)) for ms in [(1, 1, 1), (), (1, 1)]]

    sentinels = Sentinels.of(fresh, stored)

    assert sentinels.fresh == (pytest.approx(log(2 * factor)), None, None)
    assert sentinels.stored == (pytest.approx(log(factor)),)
