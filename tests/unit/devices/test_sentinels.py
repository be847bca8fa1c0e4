"""Fixed kernels that show the machine's speed: lent by a device, timed around a step."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from math import inf, log
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders import a_measurement, a_run
from scripted_device import ScriptedDevice

from pytest_gpuperf.devices import open_device, sentinels
from pytest_gpuperf.devices.base import Kernel
from pytest_gpuperf.devices.sentinels import ON_CUDA, Sizes, torch_sentinels
from pytest_gpuperf.judge.context import (
    SENTINEL_NOISE,
    Discount,
    Sentinels,
    SuiteContext,
    discounts,
)
from pytest_gpuperf.measure.phases import measure
from pytest_gpuperf.measure.plan import MeasurePlan
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.measure.timing import REPEATS, time_sentinels
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.measurement import Distribution, Measurement
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

    STREAM = 77

    def __init__(self, torch: Any) -> None:
        self.log: list[str] = []
        self._torch = torch
        self.__file__ = str(Path(__file__).parent / "no such torch" / "__init__.py")
        self.cuda = SimpleNamespace(
            synchronize=lambda: self.log.append("synchronize"),
            empty_cache=lambda: self.log.append("empty_cache"),
            current_device=lambda: 0,
            cudart=lambda: SimpleNamespace(cudaStreamCreate=self._stream),
            check_error=lambda error: self.log.append(f"created {error}"),
            ExternalStream=lambda handle: SimpleNamespace(cuda_stream=handle),
            stream=self._on,
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)

    def ones(self, shape: tuple[int, ...], *, dtype: Any, device: str) -> Any:
        assert device == "cuda"
        return self._torch.ones(shape, dtype=dtype)

    def _stream(self, address: int) -> int:
        ctypes.c_void_p.from_address(address).value = self.STREAM
        return 0

    @contextmanager
    def _on(self, stream: Any) -> Iterator[None]:
        self.log.append(f"on {stream.cuda_stream}")
        yield
        self.log.append(f"off {stream.cuda_stream}")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    monkeypatch.setattr(sentinels, "_streams", {})
    return FakeTorch(pytest.importorskip("torch"))


@contextmanager
def changed(torch: Any) -> Iterator[None]:
    """Change all that a step's code may change about torch, and change it back."""
    matmul, dtype = torch.backends.cuda.matmul, torch.get_default_dtype()
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    matmul.allow_bf16_reduced_precision_reduction = False
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"), torch.autocast("cpu", dtype=torch.bfloat16):
            yield
    finally:
        torch.set_default_dtype(dtype)
        matmul.allow_bf16_reduced_precision_reduction = True
        torch.use_deterministic_algorithms(mode=False)


def settings(torch: Any) -> tuple[object, ...]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        torch.get_default_device().type,
    )


def test_each_sentinel_is_timed_several_times() -> None:
    device = ScriptedDevice({"step": {"sentinel_ms": 1.5}}, run=0)
    device.prepare(int, "step")

    assert time_sentinels(device) == dict.fromkeys(NAMES, (1.5,) * REPEATS)


def test_a_script_may_play_each_sentinel_by_its_name() -> None:
    script = dict(zip(NAMES, (1.0, 2.0, 3.0), strict=True))
    device = ScriptedDevice({"step": {"sentinel_ms": script}}, run=0)
    device.prepare(int, "step")

    assert time_sentinels(device) == {
        name: (ms,) * REPEATS for name, ms in script.items()
    }


def test_a_sentinel_that_cannot_run_fails_no_test() -> None:
    assert time_sentinels(Broken({}, run=0)) == {}


def test_sentinels_are_timed_before_and_after_the_step() -> None:
    device = ScriptedDevice({"step": {"sentinel_ms": 1.5}}, run=0)

    times = measure(
        device, Subject(step=int), MeasurePlan(test="step", seconds=60)
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


def test_what_a_gpu_lent_is_handed_back(fake: FakeTorch) -> None:
    with torch_sentinels(fake, "cuda", SMALL) as kernels:
        assert fake.log == ["created 0", "on 77"]

    assert kernels == {}
    assert fake.log[2:] == ["synchronize", "empty_cache", "off 77"]


def test_the_stream_of_the_sentinels_is_made_once(fake: FakeTorch) -> None:
    for _ in range(2):
        with torch_sentinels(fake, "cuda", SMALL):
            pass

    assert fake.log.count("created 0") == 1
    assert fake.log.count("on 77") == 2


def test_only_the_workspaces_of_their_own_stream_are_freed(
    fake: FakeTorch, monkeypatch: pytest.MonkeyPatch
) -> None:
    freed: list[int] = []
    monkeypatch.setattr(sentinels, "_clear_workspaces", lambda _: freed.append)

    with torch_sentinels(fake, "cuda", SMALL):
        pass

    assert freed == [FakeTorch.STREAM]


def test_a_torch_that_exports_no_such_function_frees_no_workspace() -> None:
    torch = pytest.importorskip("torch")
    if torch.version.cuda is not None:
        pytest.skip("this torch is built with CUDA")

    assert sentinels._clear_workspaces(torch) is None


def test_a_gpu_multiplies_in_bfloat16_whatever_the_code_has_set(
    fake: FakeTorch,
) -> None:
    torch = pytest.importorskip("torch")
    wanted = (False, False, True, "cpu")

    with (
        changed(torch),
        torch_sentinels(fake, "cuda", replace(SMALL, dtype="bfloat16")) as k,
    ):
        inside = settings(torch)
        product = k["sentinel_gemm_ms"]()

    assert inside == wanted
    assert (product.dtype, product.device.type) == (torch.bfloat16, "cpu")
    assert ON_CUDA.dtype == "bfloat16"


def test_what_the_code_has_set_is_set_again_afterwards(fake: FakeTorch) -> None:
    torch = pytest.importorskip("torch")
    with changed(torch):
        before = settings(torch)

        with torch_sentinels(fake, "cuda", SMALL):
            pass

        assert settings(torch) == before == (True, True, False, "meta")


def test_on_the_host_they_have_the_threads_of_the_device() -> None:
    torch = pytest.importorskip("torch")
    device = open_device(DeviceKind.CPU)
    assert device.measuring is not None
    torch.set_num_threads(3)
    try:
        with device.measuring.sentinels():
            inside = torch.get_num_threads()

        assert (inside, torch.get_num_threads()) == (1, 3)
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_no_mode_of_the_code_sees_the_kernels(fake: FakeTorch, device: str) -> None:
    real = pytest.importorskip("torch")
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[object] = []

    class Functions(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    class Operations(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    torch_like = fake if device == "cuda" else real
    with (
        Functions(),
        Operations(),
        torch_sentinels(torch_like, device, SMALL) as kernels,
    ):
        for kernel in kernels.values():
            kernel()

    assert seen == []


def test_each_copied_buffer_exceeds_the_cache_of_a_b200() -> None:
    assert 4 * ON_CUDA.elements > 126_000_000


def times(*ms: float) -> dict[str, Distribution]:
    return {
        name: Distribution(q10=one, q25=2 * one, q50=one, mean=one, samples=8)
        for name, one in zip(NAMES, ms, strict=False)
    }


def measured(kind: DeviceKind, *ms: float) -> Measurement:
    return a_measurement(on=kind, times=times(*ms))


@pytest.mark.parametrize("kind", [DeviceKind.CPU, DeviceKind.CUDA])
def test_a_run_counts_with_the_median_change_of_its_sentinels_if_it_has_all(
    kind: DeviceKind,
) -> None:
    fresh = [measured(kind, *ms) for ms in [(2, 9, 40), (6, 9, 40), (2, 9), (2, 9, 0)]]
    stored = [a_run(times=times(*ms)) for ms in [(1, 9, 20), (), (1, 9), (1, 9, 20)]]

    seen = Sentinels.of(fresh, stored)

    doubled = pytest.approx(log(2))
    assert seen.fresh == (doubled, doubled, None, None)
    assert seen.stored == (0.0, 0.0)


@pytest.mark.parametrize(
    ("kind", "most"),
    [
        (DeviceKind.CPU, inf),
        (DeviceKind.CUDA, log(1.05)),
        (DeviceKind.SCRIPTED, log(1.05)),
    ],
)
def test_on_a_gpu_sentinels_excuse_five_percent_at_most(
    kind: DeviceKind, most: float
) -> None:
    """Slower by 72 %: a product of three that takes five times as long, averaged."""
    stored = [a_run(times=times(1, 1, 1))]
    seen = Sentinels.of([measured(kind, 1.723, 1.723, 1.723)], stored)

    (found,) = discounts(1, seen, SuiteContext())

    assert seen.most == pytest.approx(most)
    assert found.slower == pytest.approx(min(log(1.723) - SENTINEL_NOISE, most))


def test_one_sentinel_that_follows_the_code_excuses_nothing() -> None:
    """A product that no longer uses TF32, by the numbers of the kernels."""
    stored = [a_run(times=times(0.07, 0.4, 2.0))]
    seen = Sentinels.of([measured(DeviceKind.CUDA, 0.36, 0.4, 2.0)], stored)

    assert discounts(1, seen, SuiteContext()) == (Discount(),)
