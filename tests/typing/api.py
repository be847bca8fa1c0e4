"""Every public name as a user would write it. mypy checks this file, nothing runs it.

An ``ignore`` marks what mypy must refuse; were it accepted, the comment would be unused
and mypy would say so.
"""

from __future__ import annotations

import pytest

import pytest_gpuperf as gpuperf
from pytest_gpuperf import Compared, Gpuperf, budget, ranks, tolerance


pytestmark = [budget(syncs=0), tolerance(ms="5%", detect="10%")]

mark: pytest.MarkDecorator = gpuperf.budget(ms=12, mem_mb=900.5, syncs=0)
elsewhere: pytest.MarkDecorator = gpuperf.budget(ms=3, on="*H200*")
several: pytest.MarkDecorator = gpuperf.budget(latency_ms=3, on=["cuda", "cpu"])
lifted: pytest.MarkDecorator = gpuperf.budget(mem_mb=None)
together: pytest.MarkDecorator = gpuperf.ranks(2, timeout_s=30)
version: str = gpuperf.__version__


@gpuperf.budget(ms=12, mem_mb=900, syncs=0)
@gpuperf.tolerance(ms="2.5%", mem_mb="1%")
def test_marks_keep_the_signature(gpuperf: Gpuperf) -> None:
    result: float = gpuperf(lambda: 3.5, setup=lambda: (1, "x"))
    device: str = gpuperf.device
    assert result < 10
    assert device


@ranks(2)
@gpuperf.budget(collectives=1, skew_pct=10.5, rank_mem_mb=900)
def test_ranks(gpuperf: Gpuperf) -> None:
    gpuperf(step, collectives=2)
    by_rank = None if gpuperf.measurement is None else gpuperf.measurement.by_rank
    if by_rank is not None:
        slowest_ms: float = by_rank.step_ms[by_rank.slowest]
        moved_bytes: int = by_rank.collectives[0].size_bytes
        assert slowest_ms > moved_bytes


@pytest.mark.parametrize(
    "rows", [8, pytest.param(64, marks=gpuperf.budget(mem_mb=None))]
)
def test_calls(gpuperf: Gpuperf, rows: int) -> None:
    gpuperf(step, setup=lambda: (rows, "x"), name="first", mem_mb=rows, syncs=0)
    gpuperf(step, None, "second")
    gpuperf(step, mss=12)  # type: ignore[call-arg]
    gpuperf(step, syncs="0")  # type: ignore[arg-type]
    gpuperf(step())  # type: ignore[func-returns-value, arg-type]
    measurement = gpuperf.measurement
    if measurement is not None:
        median_ms: float = measurement.times["step_ms"].q50
        syncs: int = measurement.exact["syncs"]
        assert median_ms > syncs


@gpuperf.budget(loader_wait_pct=35, on=["cuda", "cpu"])
def test_loop(gpuperf: Gpuperf) -> None:
    result: int = gpuperf.loader([1, 2], abs, name="loop", syncs=0, on="cpu")
    measurement = gpuperf.measurement
    if measurement is not None:
        share: float = measurement.times["loader_wait_pct"].mean
        assert share > 0, result
    gpuperf.loader([1, 2])  # type: ignore[call-arg]
    gpuperf.loader(3, print)  # type: ignore[arg-type]
    gpuperf.loader([1, 2], print, sync=0)  # type: ignore[call-arg]


def test_own_loop(gpuperf: Gpuperf) -> None:
    with gpuperf.steps(name="loop", tokens=512, syncs=0) as step:
        while True:
            nothing: None = step()
    gpuperf.steps("loop")  # type: ignore[call-arg]
    gpuperf.steps(mem=1)  # type: ignore[call-arg]
    assert nothing is None


def test_trainer(gpuperf: Gpuperf) -> None:
    gpuperf.trainer(step, name="loop", tokens=512, syncs=0)
    gpuperf.trainer(object(), step, [1, 2], samples=8, loader_wait_pct=35, on="cpu")
    gpuperf.trainer()  # type: ignore[call-arg]
    gpuperf.trainer(step, tokens="512")  # type: ignore[arg-type]
    gpuperf.trainer(step, launch=1)  # type: ignore[call-arg]


@gpuperf.budget(speedup=1.3)
def test_comparison(gpuperf: Gpuperf) -> None:
    compared: Compared = gpuperf.compare(step, step, name="first", speedup=1.2)
    again = gpuperf.compare(step, step, setup=lambda: (3, "x"), same_training=0.02)
    speedup: float = compared.time.speedup
    saved_bytes: int = compared.memory.before - compared.memory.after
    assert compared.time.low > 1.2 > speedup
    assert again.syncs.difference + again.copies.difference + again.ops.difference == 0
    assert again.time.verdict == "faster"
    assert saved_bytes > 0, str(compared)


def test_comparison_refused(gpuperf: Gpuperf) -> None:
    gpuperf.compare(step)  # type: ignore[call-arg]
    gpuperf.compare(step, step, None)  # type: ignore[call-arg]
    gpuperf.compare(step, step, speed=1.2)  # type: ignore[call-arg]
    gpuperf.compare(step, step, same_training="1%")  # type: ignore[arg-type]
    gpuperf.compare(step, step).time.low = 3  # type: ignore[misc]


@pytest.fixture(scope="session")
def model(gpuperf_device: str) -> str:
    return gpuperf_device


def step() -> None: ...


test_marks_keep_the_signature(gpuperf)  # type: ignore[arg-type]
gpuperf.budget(12)  # type: ignore[call-arg]
gpuperf.budget(ms="12")  # type: ignore[arg-type]
gpuperf.budget(mss=12)  # type: ignore[call-arg]
gpuperf.budget(ms=1, on=3)  # type: ignore[arg-type]
gpuperf.tolerance(ms=0.05)  # type: ignore[arg-type]
gpuperf.tolerance(mem="5%")  # type: ignore[call-arg]
gpuperf.tolerance(speedup="5%")  # type: ignore[call-arg]
gpuperf.tolerance(detect=2)  # type: ignore[arg-type]
gpuperf.ranks()  # type: ignore[call-arg]
gpuperf.ranks("2")  # type: ignore[arg-type]
gpuperf.ranks(2, 30)  # type: ignore[call-arg]
