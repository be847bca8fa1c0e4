from __future__ import annotations

import sys
from collections import Counter, defaultdict
from types import SimpleNamespace

import pytest

from pytest_gpuperf.devices.compile import compile_counters


DYNAMO = "torch._dynamo.utils"


def dynamo(*, metrics: int, graphs: int, frames: int) -> SimpleNamespace:
    counters = defaultdict(Counter, stats=Counter(unique_graphs=graphs))
    counters["frames"]["total"] = frames
    return SimpleNamespace(
        counters=counters, get_compilation_metrics=lambda: [object()] * metrics
    )


def test_a_process_that_never_loaded_dynamo_never_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, DYNAMO, raising=False)

    assert compile_counters() == (0, 0, 0)
    assert DYNAMO not in sys.modules


def test_the_counters_are_compilations_graphs_and_frames(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, DYNAMO, dynamo(metrics=2, graphs=3, frames=4))

    assert compile_counters() == (2, 3, 4)


def test_a_recompile_after_the_ring_of_metrics_is_full_is_still_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, DYNAMO, dynamo(metrics=64, graphs=9, frames=64))
    before = compile_counters()

    monkeypatch.setitem(sys.modules, DYNAMO, dynamo(metrics=64, graphs=9, frames=65))

    assert compile_counters() != before


def test_compiling_with_torch_moves_the_counters_and_calling_again_does_not() -> None:
    torch = pytest.importorskip("torch")
    step = torch.compile(lambda x: x + 1, backend="eager")
    before = compile_counters()

    step(torch.ones(2))
    compiled = compile_counters()
    step(torch.ones(2))

    assert all(now > then for now, then in zip(compiled, before, strict=True))
    assert compile_counters() == compiled
