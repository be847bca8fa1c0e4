"""Shares of a step, such as that in which it waits for its loader, gate nothing."""

from __future__ import annotations

from scripted_project import ScriptedProject


SHARES = """
@gpuperf.budget(loader_wait_pct=60)
def test_fed(gpuperf): gpuperf.loader([1, 2, 3], lambda batch: -batch)
def test_free(gpuperf): gpuperf.loader(range(5), print, name="loop")
@gpuperf.budget(busy_pct=20)
def test_busy(gpuperf): gpuperf(lambda: None)
"""
READ = [["work", 8000], ["launch", 40, 500], ["item"]]


def test_shares_are_recorded_and_no_baseline_judges_them(
    project: ScriptedProject,
) -> None:
    project.script(
        {
            "test_fed": {"step_ms": 9.0, "fetch_ms": 1.0},
            "test_busy": {"step_ms": 28.0, "schedule": {"step": READ}},
            "*": {"step_ms": 10.0},
        }
    )
    project.file(SHARES)
    project.record()
    longer = {"step_ms": 28.0, "schedule": {"step": [*READ, ["work", 10_000]]}}
    project.script({"test_busy": longer, "*": {"step_ms": 8.9, "fetch_ms": 1.1}})

    project.run().assert_outcomes(passed=3)

    stored = project.entries()
    times = {test: entry["runs"][0]["times"] for test, entry in stored.items()}
    assert times["test_it.py::test_fed"]["loader_wait_pct"]["mean"] == 10.0
    assert times["test_it.py::test_free#loop"]["loader_wait_pct"]["mean"] == 0.0
    assert round(times["test_it.py::test_busy"]["busy_pct"]["q50"], 2) == 71.43
