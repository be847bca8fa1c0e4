"""A run that waited for a core is doubted, unless it was alone on the machine."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from scripted_steps import Clockwork

from pytest_gpuperf.measure.phases import measure
from pytest_gpuperf.measure.plan import MeasurePlan
from pytest_gpuperf.measure.step import Batches, Subject
from pytest_gpuperf.measure.timing import doubts, others_share


DOUBT = "the process waited for a core over 5% of the time"


@pytest.mark.parametrize(
    ("shares", "others", "reasons"),
    [
        ([0.04, 0.05], None, []),
        ([0.02, 0.09], None, [DOUBT]),
        ([0.02, 0.09], 0.06, [DOUBT]),
        ([0.02, 0.09], 0.05, []),
        ([], None, []),
    ],
)
def test_waiting_is_doubted_where_others_may_be_the_reason(
    shares: list[float], others: float | None, reasons: list[str]
) -> None:
    assert list(doubts(shares, others)) == reasons


@pytest.mark.parametrize(
    ("before", "after", "share"),
    [
        ((10, 7), (30, 12), 0.25),
        ((10, 7), (30, 6), 0.0),
        ((10, None), (30, 6), None),
        ((10, 7), (30, None), None),
        ((10, 7), (10, 7), None),
    ],
)
def test_others_have_a_share_of_a_core_where_both_moments_know_theirs(
    before: tuple[int, int | None], after: tuple[int, int | None], share: float | None
) -> None:
    assert others_share(before, after) == share


class Jostled(Clockwork):
    """Waits 2 ms for a core in each step of 10 ms; others compute *busy* of the time."""

    def __init__(self, busy: float | None) -> None:
        super().__init__(lambda _: 10.0)
        self.waits = lambda steps: 2_000_000 * steps
        self._busy = busy

    def others_ns(self) -> int | None:
        return None if self._busy is None else round(self._busy * self.now_ns())


def loop(device: Clockwork) -> Subject:
    batches = Batches([0] * 1000)

    def step() -> None:
        batches.take()
        device.step()

    return Subject(step=step, batches=batches)


def alone(device: Clockwork) -> Subject:
    return Subject(step=device.step)


@pytest.mark.parametrize(
    ("subject", "busy", "cores", "dirty"),
    [
        pytest.param(loop, 0.01, None, (), id="a loop, for its workers"),
        pytest.param(loop, 0.01, 1.5, (), id="a loop, for its workers in a container"),
        pytest.param(loop, 0.2, None, (DOUBT,), id="a loop, for a neighbour"),
        pytest.param(loop, None, None, (DOUBT,), id="a loop, nobody knows for whom"),
        pytest.param(alone, 0.01, None, (), id="a step, for its own threads"),
        pytest.param(alone, 0.2, None, (DOUBT,), id="a step, for a neighbour"),
        pytest.param(
            alone, 0.01, 1.5, (DOUBT,), id="a step, for its container's share"
        ),
    ],
)
def test_what_waits_for_a_core_is_doubted_unless_it_waits_for_itself(
    subject: Callable[[Clockwork], Subject],
    busy: float | None,
    cores: float | None,
    dirty: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pytest_gpuperf.measure.timing.granted_cores", lambda: cores)
    device = Jostled(busy)

    measured = measure(device, subject(device), MeasurePlan(test="step", seconds=60))

    assert measured.measurement.dirty == dirty
