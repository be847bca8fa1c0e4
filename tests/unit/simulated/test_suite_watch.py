"""What keeps a tensor alive, by name; the cost of a read in a watched test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


torch = pytest.importorskip("torch")

from pytest_gpuperf.devices.simulated.suite_watch import keeper_of, watching_suite


class Kept:
    """Stands for a tensor: the collector knows it."""


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    kept = ModuleType("package")
    monkeypatch.setitem(sys.modules, "package", kept)
    yield kept
    vars(kept).clear()


@pytest.mark.parametrize(
    ("keep", "name"),
    [
        (lambda kept: kept, "package.CACHE"),
        (lambda kept: {"a": kept}, "package.CACHE['a']"),
        (lambda kept: {"a": [kept]}, "package.CACHE['a'][...]"),
        (lambda kept: SimpleNamespace(a=kept), "package.CACHE.a"),
    ],
)
def test_it_is_named_as_the_program_reaches_it(
    module: ModuleType, keep: Callable[[Kept], object], name: str
) -> None:
    thing = Kept()
    module.CACHE = keep(thing)

    assert keeper_of(thing) == name


@pytest.mark.parametrize("depth", [1, 200])
@pytest.mark.parametrize(
    "read",
    [
        lambda tensor: [each.item() for each in tensor],
        lambda tensor: [tensor[i].item() for i in range(len(tensor))],
        lambda tensor: [float(each) for each in tensor.flatten()],
    ],
    ids=["item", "index", "float"],
)
def test_a_read_costs_few_calls_however_deep_the_stack_and_is_counted_by_its_line(
    read: Callable[[Any], object], depth: int
) -> None:
    reads = 50
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    def below(depth: int) -> None:
        if depth:
            below(depth - 1)
        else:
            sys.setprofile(count)
            try:
                read(tensor)
            finally:
                sys.setprofile(before)

    before = sys.getprofile()
    with watching_suite(str(Path(__file__).parent), 1) as suite:
        tensor = torch.ones(reads, device="cuda")
        read(tensor)
        suite.begin_test()
        below(depth)
        (wait,) = suite.end_test(passed=True).lines

    # A call is two events: it begins and it ends.
    assert calls / 2 / reads < 160
    assert wait.per_step == reads
    assert wait.location is not None
    assert wait.location.file == __file__


MIB = 2**20


@pytest.mark.parametrize(
    ("mib", "own_mib", "kept_mib"),
    [
        # Most is in use before cuBLAS takes its workspace, and after it.
        ((300, 0), 300, 0),
        ((2, 300), 300 + 3 / 4, 32),
    ],
)
def test_a_peak_has_its_own_bytes_and_those_of_cublas(
    mib: tuple[int, int], own_mib: float, kept_mib: int
) -> None:
    with watching_suite(".", gib=16) as suite:
        suite.begin_test()
        first, last = mib
        torch.empty(first * MIB, dtype=torch.uint8, device="cuda")
        x = torch.ones(256, 256, device="cuda")
        y = x @ x  # noqa: F841  it is there when the last is taken
        z = x + 1 if last else x  # noqa: F841
        torch.empty(last * MIB, dtype=torch.uint8, device="cuda")
        torch.cuda.reset_peak_memory_stats()
        found = suite.end_test(passed=True)

        suite.begin_test()
        torch.ones(4 * MIB, dtype=torch.uint8, device="cuda")
        later = suite.end_test(passed=True)

    assert found.workspace_bytes == kept_mib * MIB
    assert found.peak_bytes - found.workspace_bytes == own_mib * MIB
    # It is there in all later tests of the process, and of none.
    assert later.workspace_bytes == 32 * MIB
    assert later.peak_bytes - later.workspace_bytes >= 4 * MIB
