"""What a process has spent: its CPU time and its idle time, not that of other programs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from math import inf
from pathlib import Path

import pytest

from pytest_gpuperf.devices import process_time
from pytest_gpuperf.devices.process_time import (
    FRESH_SECONDS,
    LEAST_LOOK_SECONDS,
    FamilyTime,
    HostClock,
    OwnClock,
    Patience,
    UsedTime,
    time_of_family,
)


TICKS = os.sysconf("SC_CLK_TCK")


def used(cpu_s: float, waited_s: float = 0.0, ran_s: float | None = None) -> FamilyTime:
    ran_s = cpu_s if ran_s is None else ran_s
    return FamilyTime(cpu_s=cpu_s, ran_s=ran_s, waited_s=waited_s)


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_time, "usable_cores", lambda: 8)
    monkeypatch.setattr(process_time, "granted_cores", lambda: 2.0)


@pytest.mark.parametrize(
    ("time", "spent_s"),
    [
        pytest.param(used(0.1), 100, id="it sleeps, waits for input or is stopped"),
        pytest.param(used(3.0, 0.2), 99.8, id="it polls: sleeps, looks, sleeps again"),
        pytest.param(used(99.0, 1.0), 99, id="it loops, on quiet cores"),
        pytest.param(used(20.0, 80.0), 20, id="it loops, and others have its core"),
        pytest.param(
            used(5.0, 20.0), 80, id="others have its core, and then it sleeps"
        ),
        pytest.param(used(150.0, 2.0), 98.7, id="two threads on two quiet cores"),
        pytest.param(used(200.0, 1400.0), 100, id="16 threads on two quiet cores"),
        pytest.param(
            used(50.0, 1550.0), 25, id="16 threads, and others have the cores"
        ),
        pytest.param(
            used(80.0, 1.0, 4.0), 80, id="threads that have ended waited as well"
        ),
        pytest.param(used(0.0, 5.0), 100, id="nothing ran, so nothing is known"),
        pytest.param(used(300.0), 100, id="never more than the wall clock"),
    ],
)
def test_what_counts_of_100_seconds(time: FamilyTime, spent_s: float) -> None:
    assert time.spent_s(100.0) == pytest.approx(spent_s, abs=0.1)


def test_of_no_time_nothing_is_spent() -> None:
    assert used(3.0, 2.0).spent_s(0.0) == 0


class Readings:
    """What each process has used, one reading after the other; the last one stays."""

    def __init__(self, by_pid: Mapping[int, list[FamilyTime | None]]) -> None:
        self._left = by_pid
        self.looks = 0

    def __call__(self, pid: int) -> FamilyTime | None:
        self.looks += 1
        left = self._left[pid]
        return left.pop(0) if len(left) > 1 else left[0]


def patience_of(*readings: FamilyTime | None, seconds: float = 10.0) -> Patience:
    return Patience(seconds=seconds, began=100.0, read=Readings({1: list(readings)}))


def ended_at(patience: Patience, until: float = inf) -> tuple[float, UsedTime]:
    """Return when *patience* is over, if it is looked at when it is due, and why."""
    while patience.due < until:
        now = patience.due
        found = patience.over(now, (1,))
        if found is not None:
            return now - patience.began, found
    raise AssertionError


def test_nobody_looks_at_a_process_before_the_wall_clock_has_counted_as_much() -> None:
    readings = Readings({1: [used(50.0)]})
    patience = Patience(seconds=10.0, began=100.0, read=readings)

    assert patience.over(109.9, (1,)) is None
    assert readings.looks == 0


@pytest.mark.parametrize(
    ("reading", "text"),
    [
        (used(0.06), "did nothing for most of 10 s (0.1 s of CPU)"),
        (used(9.7, 690.0), "used 9.7 s of CPU in 700 s"),
        (None, "took 10 s"),
    ],
    ids=["sleeps", "loops", "nobody counts"],
)
def test_it_says_which_of_both_it_was(reading: FamilyTime | None, text: str) -> None:
    _, found = ended_at(patience_of(reading))

    assert str(found) == text


def test_what_waits_for_a_core_has_as_much_longer() -> None:
    """It gets a quarter of a core: ten seconds of its own take forty."""
    patience = patience_of(
        used(2.5, 7.5), used(4.4, 13.1), used(5.8, 17.3), used(10, 30)
    )

    wall_s, found = ended_at(patience)

    assert wall_s == pytest.approx(40.0, abs=0.3)
    assert found.cpu_s == 10


def test_it_is_looked_at_again_when_it_may_be_over_and_not_sooner() -> None:
    patience = patience_of(used(9.99, 0.01), used(10.2, 0.01))

    assert patience.over(110.0, (1,)) is None
    assert patience.due == 110.0 + LEAST_LOOK_SECONDS


def test_of_several_the_one_decides_that_has_spent_least() -> None:
    """A rank that sleeps waits for one that has no core."""
    readings = Readings({1: [used(0.1)], 2: [used(2.0, 8.0)]})
    patience = Patience(seconds=10.0, began=100.0, read=readings)

    assert patience.over(110.0, (1, 2)) is None
    assert patience.due == 118.0


def test_what_was_used_before_does_not_count() -> None:
    patience = Patience(
        seconds=10.0,
        began=100.0,
        before={1: used(500.0, 3000.0)},
        read=Readings({1: [used(500.1, 3000.0)]}),
    )

    found = patience.over(110.0, (1,))

    assert found is not None
    assert found.idle
    assert found.cpu_s == pytest.approx(0.1)


def test_a_process_that_has_ended_has_spent_the_wall_clock() -> None:
    assert patience_of(None).over(110.0, (1,)) == UsedTime(wall_s=10.0)


def process(proc: Path, pid: int, *ticks: int, parent: int = 1) -> None:
    times = " ".join(map(str, ticks))
    text = f"{pid} (a (b) c) S {parent} 1 1 0 -1 4194304 1 2 3 4 {times} 20 0 1 0 99"
    (proc / str(pid)).mkdir(exist_ok=True)
    (proc / str(pid) / "stat").write_text(text)


def thread(proc: Path, pid: int, number: int, schedstat: str, children: str) -> None:
    folder = proc / str(pid) / "task" / str(number)
    folder.mkdir(parents=True)
    (folder / "schedstat").write_text(schedstat)
    (folder / "children").write_text(children)


def test_the_time_of_a_process_is_that_of_all_that_come_from_it(tmp_path: Path) -> None:
    process(tmp_path, 10, 3 * TICKS, TICKS, 2 * TICKS, 0)
    process(tmp_path, 20, TICKS, 0, 0, 0)
    thread(tmp_path, 10, 10, "3000000000 500000000 7\n", "20 30 ")
    thread(tmp_path, 10, 11, "1000000000 0 7\n", "")
    thread(tmp_path, 20, 20, "900000000 250000000 7\n", "")

    assert time_of_family(10, tmp_path) == used(7.0, 0.75, 4.9)


def test_without_a_list_of_children_they_are_found_by_their_parent(
    tmp_path: Path,
) -> None:
    process(tmp_path, 10, TICKS, 0, 0, 0)
    process(tmp_path, 20, TICKS, 0, 0, 0, parent=10)
    process(tmp_path, 30, TICKS, 0, 0, 0, parent=20)
    process(tmp_path, 40, TICKS, 0, 0, 0, parent=1)

    assert time_of_family(10, tmp_path) == used(3.0, 0.0, 0.0)


@pytest.mark.parametrize("schedstat", ["", "1", "a b c"])
def test_without_schedstat_no_thread_has_waited(tmp_path: Path, schedstat: str) -> None:
    process(tmp_path, 10, TICKS, 0, 0, 0)
    thread(tmp_path, 10, 10, schedstat, "")

    assert time_of_family(10, tmp_path) == used(1.0, 0.0, 0.0)


def test_nothing_is_known_of_what_has_ended_and_where_there_is_no_proc(
    tmp_path: Path,
) -> None:
    assert time_of_family(10, tmp_path) is None
    assert time_of_family(10, tmp_path / "none") is None


def test_this_process_has_used_time() -> None:
    found = time_of_family(os.getpid())

    assert found is None or found.cpu_s > 0


@pytest.mark.parametrize(
    ("reading", "own_s"),
    [(used(3.0, 1.0), 9.0), (used(0.1, 0.0), 10.0), (None, 10.0)],
    ids=["a second without a core", "asleep", "nobody counts"],
)
def test_its_own_clock_stands_while_it_has_no_core(
    monkeypatch: pytest.MonkeyPatch, reading: FamilyTime | None, own_s: float
) -> None:
    walls, readings = iter([5 * 10**9, 15 * 10**9]), iter([None, reading])
    monkeypatch.setattr(HostClock, "wall_ns", lambda: next(walls))
    monkeypatch.setattr(process_time, "time_of_family", lambda _: next(readings))

    assert OwnClock().now_ns() == pytest.approx((5 + own_s) * 1e9)


def test_its_own_clock_runs_between_two_readings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    walls = iter(round(s * 1e9) for s in (5.0, 15.0, 15.0 + FRESH_SECONDS / 2))
    readings = iter([None, used(2.0, 8.0)])
    monkeypatch.setattr(HostClock, "wall_ns", lambda: next(walls))
    monkeypatch.setattr(process_time, "time_of_family", lambda _: next(readings))
    clock = OwnClock()

    assert clock.seconds() == pytest.approx(2.0)
    assert clock.seconds() == pytest.approx(2.0 + FRESH_SECONDS / 2)


def test_a_process_that_ends_in_time_is_waited_for() -> None:
    with subprocess.Popen(["/bin/true"]) as one:
        patience = Patience(seconds=60.0, began=process_time.now_s())

        assert patience.outlasted_by(one) is None
        assert one.returncode == 0


def test_a_process_that_waits_for_input_outlasts_patience() -> None:
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as one:
        patience = Patience(seconds=0.0, began=process_time.now_s())

        assert patience.outlasted_by(one) is not None
        one.kill()
