"""Memory over several steps: peaks, leaks, and what happens once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from scripted_steps import Clockwork, deadline, subject

from pytest_gpuperf.devices.base import MemoryReading, Step
from pytest_gpuperf.devices.memory_picture import graphs_left
from pytest_gpuperf.measure.memory import MOST_MEMORY_STEPS, measure_memory, remarks_on
from pytest_gpuperf.measure.plan import MEMORY_STEPS


MIB = 2**20


class Ledger(Clockwork):
    """Steps take a second, end with *ends* bytes and show *counts* by metric name."""

    def __init__(self, ends: Sequence[int | None], **counts: Sequence[int]) -> None:
        super().__init__(lambda _: 1000.0)
        self._ends = ends
        self._counts = counts

    def measure_memory(self, step: Step, arguments: Sequence[object]) -> MemoryReading:
        at = self.steps
        step(*arguments)
        return MemoryReading(
            exact={name: values[at] for name, values in self._counts.items()},
            end_bytes=self._ends[at],
        )


def measured(ledger: Ledger, seconds: float = 60.0) -> dict[str, int]:
    memory, _ = measure_memory(
        ledger, subject(ledger), 1000.0, deadline(ledger, seconds)
    )
    return dict(memory.exact)


def test_the_largest_of_three_peaks_is_the_peak() -> None:
    ledger = Ledger([5, 5, 5], peak_allocated_bytes=[100, 300, 200])

    assert measured(ledger) == {"peak_allocated_bytes": 300, "growth_bytes": 0}
    assert ledger.steps == MEMORY_STEPS


def test_the_least_that_each_of_eight_steps_leaves_behind_is_the_leak() -> None:
    ledger = Ledger([10 * n + (n == 4) for n in range(MOST_MEMORY_STEPS)])

    assert measured(ledger) == {"growth_bytes": 9}
    assert ledger.steps == MOST_MEMORY_STEPS


@pytest.mark.parametrize("last", [30, 29], ids=["stays", "shrinks"])
def test_batches_that_happen_to_grow_in_size_are_no_leak(last: int) -> None:
    ledger = Ledger([10, 20, 30, last])

    assert measured(ledger) == {"growth_bytes": 0}
    assert ledger.steps == MEMORY_STEPS + 1


def test_a_leak_is_not_inferred_from_fewer_steps_than_three() -> None:
    ledger = Ledger([10, 20, 30], peak_allocated_bytes=[1, 2, 3])

    assert measured(ledger, seconds=2.5) == {"peak_allocated_bytes": 2}


def test_a_step_that_takes_longer_where_it_is_watched_is_given_that_time() -> None:
    ledger = Ledger([10, 20, 30])

    measure_memory(ledger, subject(ledger), 10.0, deadline(ledger, 2.5))

    assert ledger.steps == MEMORY_STEPS - 1


@pytest.mark.parametrize(
    ("alive", "graphs"),
    [
        ([(1, 9), (2, 12), (4, 18)], 1),
        ([(1, 9), (1, 12), (1, 15)], 1),  # all losses hang on one sum
        ([(1, 9), (1, 12), (1, 9)], 0),
        ([(1, 9)], None),
    ],
)
def test_a_graph_that_gets_longer_on_one_tensor_is_a_graph_of_each_step(
    alive: list[tuple[int, int]], graphs: int | None
) -> None:
    assert graphs_left(alive) == graphs


def test_a_device_that_does_not_know_what_is_alive_has_no_leak_to_tell() -> None:
    assert measured(Ledger([None] * MEMORY_STEPS)) == {}


class Replaying(Clockwork):
    """A step that replays CUDA graphs, or none."""

    def __init__(self, *graph_bytes: int | None) -> None:
        super().__init__(lambda _: 1000.0)
        self._graph_bytes = graph_bytes

    def measure_memory(self, step: Step, arguments: Sequence[object]) -> MemoryReading:
        step(*arguments)
        return MemoryReading(
            exact={}, end_bytes=None, graph_bytes=self._graph_bytes[self.steps - 1]
        )


@pytest.mark.parametrize(
    ("read", "remarks"),
    [
        (
            (None, 3 * MIB, MIB),
            ["3 MiB of the peak are kept by CUDA graphs for their replays"],
        ),
        ((None, 0, None), []),
        ((None, None, None), []),
    ],
)
def test_what_graphs_keep_of_the_peak_is_said(
    read: tuple[int | None, ...], remarks: list[str]
) -> None:
    device = Replaying(*read)

    memory, saw_graphs = measure_memory(
        device, subject(device), 1000.0, deadline(device)
    )

    assert list(memory.remarks) == remarks
    assert saw_graphs == any(n is not None for n in read)


def test_a_leak_is_remarked_upon_without_any_baseline() -> None:
    assert list(remarks_on({"growth_bytes": 3 * MIB // 2})) == [
        "every step leaves 1.5 MiB allocated: is that a leak?"
    ]
    assert list(remarks_on({"growth_bytes": 0})) == []
