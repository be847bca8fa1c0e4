"""Outcomes of the judge, as pytest shows them."""

from __future__ import annotations

import pytest
from scripted_project import ScriptedProject, otherwise


STEP = "def test_step(gpuperf): gpuperf(int)\n"

TESTS = """
@gpuperf.budget(ms=9, syncs=1)
def test_over(gpuperf): gpuperf(int)
def test_slower(gpuperf): gpuperf(int)
def test_new_sync(gpuperf): gpuperf(int)
def test_faster(gpuperf): gpuperf(int)
def test_smaller(gpuperf): gpuperf(int)
def test_disturbed(gpuperf): gpuperf(int)
@gpuperf.budget(ms=12, mem_mb=1, syncs=0, on="*H200*")
def test_elsewhere(gpuperf): gpuperf(int)
def test_only_asks(gpuperf): pass
@gpuperf.budget(ms=1)
def test_only_marked(): pass
def test_calls(gpuperf):
    gpuperf(int, name="train", ms=9)
    gpuperf(int, name="eval", ms=12)
    gpuperf(int, ms=8)

class TestLayers:
    pytestmark = gpuperf.budget(ms=5)
    def test_inherited(self, gpuperf): gpuperf(int)
    def test_lifted(self, gpuperf): gpuperf(int, ms=None)
    def test_raised(self, gpuperf): gpuperf(int, ms=15)
    @gpuperf.budget(ms=20)
    def test_nearer(self, gpuperf): gpuperf(int)
    @gpuperf.budget(ms=20, on="*H200*")
    def test_outer(self, gpuperf): gpuperf(int)
    @gpuperf.budget(ms=20, on=["*H200*", "scripted"])
    def test_own(self, gpuperf): gpuperf(int)

@gpuperf.tolerance(ms="1% and 1 ms", mem_mb="0% and 8 MiB", syncs="0% and 1")
def test_wide(gpuperf): gpuperf(int)
@gpuperf.tolerance(ms="1% and 0.1 ms", mem_mb="0% and 1 MiB")
def test_tight(gpuperf): gpuperf(int)

@gpuperf.budget(loader_wait_pct=35)
def test_fed(gpuperf): assert gpuperf.loader([1, 2, 3], lambda batch: -batch) < 0
@gpuperf.budget(loader_wait_pct=35)
def test_starved(gpuperf): gpuperf.loader([1, 2, 3], lambda batch: batch)
@gpuperf.budget(loader_wait_pct=3)
def test_no_loader(gpuperf): gpuperf(int)

@gpuperf.budget(busy_pct=85)
def test_idle(gpuperf): gpuperf(lambda: None)
@gpuperf.budget(busy_pct=60)
def test_busy(gpuperf): gpuperf(lambda: None)
"""

STORED = [
    "slower",
    "new_sync",
    "faster",
    "smaller",
    "disturbed",
    "elsewhere",
    "wide",
    "tight",
]

WORSE = {"step_ms": 10.6, "mem_mb": 104, "syncs": 1}
IDLE = {
    "step_ms": 28.0,
    "schedule": {"step": [["work", 8000], ["launch", 40, 500], ["item"]]},
}
"""A GPU that has nothing to do while the host prepares its next step."""

NOW: dict[str, object] = {
    "*": {"step_ms": 10.0},
    "test_over": {"step_ms": 10.0, "syncs": 2},
    "test_slower": {"step_ms": 12.0},
    "test_new_sync": {"step_ms": 10.0, "syncs": 1},
    "test_faster": {"step_ms": 8.0},
    "test_smaller": {"step_ms": 10.0, "mem_mb": 50},
    "test_disturbed": {"step_ms": 12.0, "disturbance": "the GPU is throttling"},
    "test_wide": WORSE,
    "test_tight": WORSE,
    "test_fed": {"step_ms": 9.0, "fetch_ms": 1.0},
    "test_starved": {"step_ms": 10.0, "fetch_ms": 10.0},
    "test_idle": IDLE,
    "test_busy": IDLE,
}

NEVER = (
    "budget never judged: the test carries a gpuperf budget or takes the gpuperf "
    "fixture, and never called gpuperf(step); call it, or drop the budget"
)
OVER_5 = "OVER LIMIT ms: 10.00 ms per step, limit 5.000 ms"

SAYS = {
    "test_over": (
        "failure",
        "OVER LIMIT ms: 10.00 ms per step, limit 9.000 ms",
        "OVER LIMIT syncs: 2 per step, limit 1",
        "train.py:12 in step: aten::_local_scalar_dense, 1 per step",
    ),
    "test_slower": (
        "failure",
        "SLOWER: 12.00 ms per step, was 10.00 ms (+20.0 %), allowed 10.1",
        "gpuperf refresh --accept-drift --device=scripted test_it.py::test_slower",
    ),
    "test_new_sync": ("failure", "NEW SYNC: 1 per step, was 0 (+1), allowed 0"),
    "test_faster": ("passed",),
    "test_smaller": ("passed",),
    "test_disturbed": ("passed",),
    "test_elsewhere": ("passed",),
    "test_only_asks": ("failure", NEVER),
    "test_only_marked": ("failure", NEVER),
    "test_calls": (
        "failure",
        "10.00 ms per step, limit 9",
        "10.00 ms per step, limit 8",
    ),
    "test_inherited": ("failure", OVER_5),
    "test_lifted": ("passed",),
    "test_raised": ("passed",),
    "test_nearer": ("passed",),
    "test_outer": ("failure", OVER_5),
    "test_own": ("passed",),
    "test_wide": ("passed",),
    "test_tight": ("failure", "SLOWER: ", "NEW SYNC: ", "MORE MEMORY: "),
    "test_fed": ("passed",),
    "test_starved": (
        "failure",
        "OVER LIMIT loader_wait_pct: 50.00 %, limit 35.00 %",
        "50 % against 35 %, over in each of 2 runs, and more than their",
    ),
    "test_no_loader": ("passed",),
    "test_idle": (
        "failure",
        "BELOW LIMIT busy_pct: 71.43 %, limit at least 85.00 %",
        "train.py:21 in step: 29 % of the step, in which the GPU has nothing to do",
        "train.py:21 in step: aten::_local_scalar_dense (cudaStreamSynchronize), 1",
        "71.43 % against 85 %, below in each of 2 runs",
    ),
    "test_busy": ("passed",),
}

EXPLAINED = (
    "step_ms passed: the mean of the runs was compared with the limit; -50.0 % (95 %: ",
    "test_disturbed step_ms inconclusive: ",
    "the GPU is throttling",
    "busy_pct passed: 71.43 % against 60 % --> train.py:21 in step: 29 % of the step",
    "not checked: loader_wait_pct of 1 test, gpuperf(step) fetches no batches: ",
)


def test_each_outcome_is_reported_with_its_words(project: ScriptedProject) -> None:
    project.file(TESTS)
    project.script(NOW)
    project.store(*(f"test_{name}" for name in STORED))

    cases = project.cases("--gpuperf-explain", "-v")

    assert otherwise(cases, SAYS) == []
    assert cases.keys() == SAYS.keys()
    said = " ".join(project.shown.stdout.str().split())
    assert [words for words in EXPLAINED if words not in said] == []
    assert "2 improved" in said


BUDGETED = "@gpuperf.budget(ms=12)\n" + STEP


@pytest.mark.parametrize(
    ("source", "option", "ci", "outcome"),
    [
        (STEP, "", "", {"passed": 1}),
        (STEP, "", "true", {"failed": 1}),
        (STEP, "warn", "true", {"passed": 1}),
        (STEP, "fail", "", {"failed": 1}),
        (BUDGETED, "fail", "", {"passed": 1}),
        (BUDGETED, "every-metric", "", {"failed": 1}),
    ],
)
def test_a_test_with_neither_budget_nor_baseline_is_counted_here_and_fails_in_ci(
    project: ScriptedProject,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    option: str,
    ci: str,
    outcome: dict[str, int],
) -> None:
    monkeypatch.setenv("CI", ci)
    project.file(source)

    chosen = [f"--override-ini=gpuperf_missing_baseline={option}"] if option else []
    result = project.run(*chosen)

    result.assert_outcomes(**outcome)
    why = "a missing baseline fails if CI is set, or"
    said = " ".join(result.stdout.str().split())
    assert (why in said) == ("failed" in outcome)


EIGHT = "\n".join(f"def test_{n}(gpuperf): gpuperf(int)" for n in range(8)) + "\n"


def test_a_slowdown_that_all_tests_share_is_one_verdict_and_no_failure(
    project: ScriptedProject,
) -> None:
    project.file(EIGHT)
    project.record()
    project.script({"*": {"step_ms": 10.6}})

    result = project.run()

    result.assert_outcomes(passed=8, warnings=8)
    assert (
        "gpuperf: all 8 tests +6.0 %, no sentinel was measured: the machine, or a "
        "common cause in code or a dependency"
    ) in result.outlines
    assert result.outlines[-2] == "gpuperf: 8 inconclusive on scripted"
