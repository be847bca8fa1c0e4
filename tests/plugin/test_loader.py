"""A loop over a loader: measured as a step, judged by how long it waits."""

from __future__ import annotations

from scripted_project import ScriptedProject


LOOPS = """
@gpuperf.budget(loader_wait_pct=35)
def test_fed(gpuperf): assert gpuperf.loader([1, 2, 3], lambda batch: -batch) < 0
@gpuperf.budget(loader_wait_pct=35)
def test_starved(gpuperf): gpuperf.loader([1, 2, 3], lambda batch: batch)
def test_free(gpuperf): gpuperf.loader(range(5), print, name="loop")
"""

SCRIPT = {
    "test_fed": {"step_ms": 9.0, "fetch_ms": 1.0},
    "test_starved": {"step_ms": 10.0, "fetch_ms": 10.0},
    "*": {"step_ms": 10.0},
}


def test_a_loop_that_waits_too_long_fails_and_says_for_how_long(
    project: ScriptedProject,
) -> None:
    project.script(SCRIPT)
    project.file(LOOPS)

    result = project.run()

    result.assert_outcomes(passed=2, failed=1, warnings=1)
    assert "OVER LIMIT loader_wait_pct: 50.00 %, limit 35.00 %" in result.outlines
    result.stdout.fnmatch_lines(
        [
            "  sure?    50 % against 35 %, over in each of 2 runs, and more than their*",
            "20.00 ms * OVER LIMIT loader_wait_pct  test_it.py::test_starved",
        ]
    )


def test_the_share_is_recorded_and_no_baseline_judges_it(
    project: ScriptedProject,
) -> None:
    project.script(SCRIPT)
    project.file(LOOPS.replace("35", "60"))
    project.record()
    project.script({"*": {"step_ms": 8.9, "fetch_ms": 1.1}})

    result = project.run("-k", "test_free or test_fed")

    result.assert_outcomes(passed=2)
    stored = project.entries()
    times = {test: entry["runs"][0]["times"] for test, entry in stored.items()}  # type: ignore[index]
    assert {test: t["loader_wait_pct"]["mean"] for test, t in times.items()} == {
        "test_it.py::test_fed": 10.0,
        "test_it.py::test_starved": 50.0,
        "test_it.py::test_free#loop": 0.0,
    }


def test_a_plain_run_fetches_one_batch_for_one_step(project: ScriptedProject) -> None:
    project.file(
        """
def test_loop(gpuperf):
    seen = []
    assert gpuperf.loader([(1, 2), 3], lambda batch: seen.append(batch) or 7) == 7
    assert seen == [(1, 2)]
"""
    )

    result = project.pytester.runpytest_inprocess()

    result.assert_outcomes(passed=1)


def test_a_step_without_a_loader_is_not_checked_by_what_a_loop_waits(
    project: ScriptedProject,
) -> None:
    project.file(
        "@gpuperf.budget(loader_wait_pct=3)\ndef test_a(gpuperf): gpuperf(int)"
    )

    result = project.run()

    result.assert_outcomes(passed=1, warnings=1)
    assert " ".join(result.stdout.str().split()).count(
        "not checked: loader_wait_pct of 1 test, gpuperf(step) fetches no batches: measure "
        "it with gpuperf.loader(loader, step)"
    )
