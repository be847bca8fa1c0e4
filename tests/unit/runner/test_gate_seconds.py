"""How long a gate will take, by what the runs of its baselines took."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import a_run
from builders import an_entry
from played_children import Play
from played_children import Played

from pytest_gpuperf.model.baseline import Entry
from pytest_gpuperf.model.baseline import Refresh
from pytest_gpuperf.model.measurement import Distribution
from pytest_gpuperf.runner.run_estimates import GPU_PROCESS_SECONDS
from pytest_gpuperf.runner.run_estimates import PROCESS_SECONDS
from pytest_gpuperf.runner.run_estimates import UNTIMED_STEPS
from pytest_gpuperf.runner.run_estimates import gate_seconds


TEST, OTHER = "t.py::a", "t.py::b"


def entry_of(step_ms: float, rounds: int = 20, round_steps: int | None = None) -> Entry:
    times = {"step_ms": Distribution.of([step_ms] * rounds)}
    return an_entry(a_run(times=times, round_steps=round_steps))


def seconds_of(entry: Entry) -> float:
    found = gate_seconds([(TEST,)], {TEST: entry})
    assert found is not None
    return found


def test_a_round_of_short_steps_takes_as_long_as_a_round_does() -> None:
    expected = PROCESS_SECONDS + 20 * 0.010 + UNTIMED_STEPS * 0.001

    assert seconds_of(entry_of(1.0)) == pytest.approx(expected)


def test_a_long_step_is_its_own_round() -> None:
    expected = PROCESS_SECONDS + (7 + UNTIMED_STEPS) * 0.5

    assert seconds_of(entry_of(500.0, rounds=7)) == pytest.approx(expected)


def test_a_round_on_a_gpu_has_its_stored_steps() -> None:
    entry = entry_of(28.0, rounds=10, round_steps=15)
    expected = GPU_PROCESS_SECONDS + 10 * 15 * 0.028 + UNTIMED_STEPS * 0.028

    assert seconds_of(entry) == pytest.approx(expected)


def test_each_call_of_a_test_counts_and_a_new_test_is_like_the_others() -> None:
    one = seconds_of(entry_of(1.0)) - PROCESS_SECONDS
    entries = {TEST: entry_of(1.0), f"{TEST}#2": entry_of(1.0)}

    found = gate_seconds([(TEST,), (OTHER,)], entries)

    assert found == pytest.approx(2 * (PROCESS_SECONDS + 2 * one))


def test_nothing_is_forecast_if_no_time_is_stored() -> None:
    counts = an_entry(None, exact={"syncs": 0})

    assert gate_seconds([(TEST,)], {TEST: counts}) is None
    assert gate_seconds([(TEST,)], {}) is None


def forecasts_of(played: Played) -> list[str]:
    return [line for line in played.said if line.startswith("gpuperf: measuring")]


@pytest.mark.parametrize(("slots", "seconds"), [(1, 24), (2, 12)])
def test_a_gate_of_ten_seconds_or_more_says_first_how_long_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slots: int, seconds: int
) -> None:
    play = Play(tests=[f"t.py::t{number}" for number in range(80)], slots=slots)
    played = Played(tmp_path, monkeypatch)
    played.run(play, Refresh.ALL)
    assert forecasts_of(played) == []

    played.run(play)

    [said] = forecasts_of(played)
    assert said == (
        f"gpuperf: measuring 80 tests, about {seconds} s; tests in doubt are run again"
    )


def test_a_short_gate_says_nothing_of_how_long_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = Played(tmp_path, monkeypatch)
    played.run(Play(), Refresh.ALL)

    played.run(Play())

    assert forecasts_of(played) == []
