"""``gpuperf.compare`` as a user meets it: in plain runs, measured, in workers."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest
from scripted_project import ScriptedProject, otherwise


pytest.importorskip(
    "torch._dynamo"
)  # here: a run in this process forgets what it imports


@pytest.fixture(autouse=True)
def _with_torch(project: ScriptedProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring processes need not import it: to compare steps takes torch."""
    monkeypatch.setenv("PYTEST_PLUGINS", "pytest_gpuperf.plugin,with_torch")


def test_a_plain_run_runs_both_steps_once_and_skips_where_a_number_is_read(
    project: ScriptedProject,
) -> None:
    project.file(
        """
calls = []
def test_both(gpuperf):
    result = gpuperf.compare(
        lambda x: calls.append(-x), lambda x: calls.append(x), setup=lambda: 3
    )
    assert calls == [-3, 3]
    assert str(result) == "  time     not measured: pytest runs without --gpuperf"
    assert gpuperf.measurement is None
def test_time(gpuperf): assert gpuperf.compare(int, float).time.low > 1.2
def test_memory(gpuperf): assert gpuperf.compare(int, float).memory.difference < 0
"""
    )

    result = project.pytester.runpytest_inprocess("-rs")

    result.assert_outcomes(passed=1, skipped=2)
    result.stdout.fnmatch_lines(
        [
            "SKIPPED*test_it.py:12: time was not measured: pytest runs without --gpuperf",
            "SKIPPED*test_it.py:13: memory was not measured: pytest runs without *",
        ]
    )


def test_the_error_of_a_side_is_shown_at_its_line(project: ScriptedProject) -> None:
    project.file("def test_step(gpuperf): gpuperf.compare(int, lambda: 1 / 0)\n")

    result = project.pytester.runpytest_inprocess()

    result.assert_outcomes(failed=1)
    assert "test_it.py:3: ZeroDivisionError" in result.outlines
    result.stdout.no_fnmatch_line("*beginning.py*")


SLOW: dict[str, object] = {"step_ms": 13.0, "mem_mb": 90, "syncs": 2}
SCRIPT: dict[str, object] = {
    "*": {"step_ms": 10.0, "mem_mb": 80},
    **{
        f"test_{name}#compare#before": SLOW
        for name in ("numbers", "high", "asked", "called", "fewer_syncs")
    },
    "test_slower#compare#after": {"step_ms": 20.0, "mem_mb": 80},
    **{f"test_syncs#compare#{side}": {"syncs": 1} for side in ("before", "after")},
}

TESTS = """
def test_numbers(gpuperf):
    result = gpuperf.compare(int, float)
    assert result.time.low > 1.29
    assert result.time.verdict == "faster"
    assert result.memory.difference == -10 * 2**20
    assert (result.syncs.before, result.syncs.after) == (2, 0)
    assert str(result).splitlines()[2] == "  memory   90.00 MiB -> 80.00 MiB (-11.1 %)"
def test_high(gpuperf): assert gpuperf.compare(int, float).time.low > 2
def test_ops(gpuperf): gpuperf.compare(int, float).ops.before

@gpuperf.budget(ms=None)
@gpuperf.budget(speedup=None)
def test_slower(gpuperf): gpuperf.compare(int, float)

@gpuperf.budget(speedup=1.4)
class TestSpeedup:
    def test_asked(self, gpuperf): gpuperf.compare(int, float)
    def test_called(self, gpuperf): gpuperf.compare(int, float, speedup=0.9)

@gpuperf.budget(syncs=0)
def test_fewer_syncs(gpuperf): gpuperf.compare(int, float)
@gpuperf.budget(syncs=0)
def test_syncs(gpuperf): gpuperf.compare(int, float)

@gpuperf.budget(speedup=1.2)
def test_never_compared(gpuperf): gpuperf(int, ms=50, syncs=0, mem_mb=900)
@gpuperf.budget(speedup=0.9, ms=50, syncs=0, mem_mb=900)
def test_both(gpuperf):
    gpuperf(int)
    gpuperf.compare(int, float)
"""
SAYS = {
    "test_numbers": ("passed",),
    "test_high": (
        *("failure", "where 1.2999"),
        "= <faster, speedup 1.300x (95 %: 1.300x to 1.300x)>.low",
    ),
    "test_ops": ("skipped", "ops was not measured: the scripted device copies nothing"),
    "test_slower": ("passed",),
    "test_asked": (
        "failure",
        "BELOW LIMIT speedup: 1.300x, limit at least 1.400x",
        "after is 1.3 times as fast as before (95 %: 1.3 to 1.3), less",
        "in each of 5 runs",
    ),
    "test_called": ("passed",),
    "test_fewer_syncs": ("passed",),
    "test_syncs": (
        *("failure", "OVER LIMIT syncs: 1 per step, limit 0"),
        "call test_it.py::test_syncs#compare",
    ),
    "test_never_compared": (
        "failure",
        "budget never judged: a gpuperf budget of this test asks for a speedup, and ",
        "the test never called gpuperf.compare(before, after); call it, or drop speedup",
    ),
    "test_both": ("passed",),
}


def test_comparisons_are_asserted_judged_and_reported(
    project: ScriptedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in CI, and where inconclusive tests fail, a slower side alone is no failure."""
    monkeypatch.setenv("CI", "true")
    project.script(SCRIPT)
    project.file(TESTS)

    cases = project.cases("--gpuperf-strict")

    assert otherwise(cases, SAYS) == []
    project.shown.stdout.fnmatch_lines_random(
        [
            "speedup *95 % interval *step *memory *syncs *",
            "*13.00 ms -> 10.00 ms  90.00 MiB -> 80.00 MiB  2 -> 0  faster*::test_numbers*",
            "*10.00 ms -> 20.00 ms*slower*::test_slower#compare",
        ]
    )
    tree = ET.parse(project.path / "junit.xml")
    (asked,) = tree.iterfind(".//testcase[@name='test_asked']")
    properties = {p.attrib["name"]: p.attrib["value"] for p in asked.iter("property")}
    assert properties["gpuperf.outcome"] == "over budget"
    assert max(map(len, properties.values())) < 40
    results = json.loads((project.path / ".gpuperf/results.json").read_text("utf-8"))
    (verdict,) = results["tests"]["test_it.py::TestSpeedup::test_asked"]["verdicts"]
    found = [(v["metric"], v["outcome"]) for v in verdict["verdicts"]]
    assert found[0] == ("speedup", "over budget")
    assert verdict["sides"]["before"] == {"peak_allocated_bytes": 94371840, "syncs": 2}
    pending = (project.path / ".gpuperf").glob("pending-*")
    assert [path for path in pending if "#compare" in path.read_text("utf-8")] == []


def test_a_refresh_stores_nothing_of_a_comparison(project: ScriptedProject) -> None:
    project.file(
        "def test_both(gpuperf):\n    gpuperf.compare(int, float)\n    gpuperf(int)\n"
    )

    result = project.refresh(which="all")

    result.assert_outcomes(passed=1)
    assert list(project.entries()) == ["test_it.py::test_both"]
    project.run().assert_outcomes(passed=1)


SHARED = """
import torch

def test_step(gpuperf):
    weights = torch.ones(3, device=gpuperf.device)
    gpuperf.compare(lambda: weights.add_(1), lambda: weights * 2)
"""


@pytest.mark.parametrize("arguments", [(), ("--gpuperf", "--gpuperf-device=cpu")])
def test_state_that_a_side_changes_under_the_other_is_refused(
    project: ScriptedProject, arguments: tuple[str, ...]
) -> None:
    project.file(SHARED)

    result = project.pytester.runpytest_inprocess(*arguments)

    result.assert_outcomes(failed=1)
    assert (
        "gpuperf.compare(before, after): before changes weights, which after uses as "
        "well, so that neither is measured by itself; give each side its own, and build "
        "model and optimizer twice [GP713]"
    ) in result.outlines


TRAINING = """
import torch

def accumulating(device, forgets):
    torch.manual_seed(0)
    model = torch.nn.Linear(16, 4).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(8, 16, device=device)
    y = torch.arange(8, device=device) % 4
    def step():
        optimizer.zero_grad()
        for rows in (slice(0, 4), slice(4, 8)):
            loss = torch.nn.functional.cross_entropy(model(x[rows]), y[rows]) / 2
            if forgets:
                optimizer.zero_grad()
            loss.backward()
        optimizer.step()
        return loss.item()
    return step

def test_right(gpuperf):
    right = [accumulating(gpuperf.device, forgets=False) for _ in range(2)]
    result = gpuperf.compare(*right, same_training=True)
    assert result.syncs.difference == 0
    assert result.time.low > 0

def test_operations(gpuperf):
    both = [accumulating(gpuperf.device, forgets=False) for _ in range(2)]
    assert gpuperf.compare(*both, same_training=True).ops.difference == 0

def test_wrong(gpuperf):
    right = accumulating(gpuperf.device, forgets=False)
    wrong = accumulating(gpuperf.device, forgets=True)
    gpuperf.compare(right, wrong, same_training=True)
"""


@pytest.mark.parametrize(
    ("device", "outcomes", "unmeasured"),
    [
        (
            "cpu",
            {"failed": 1, "skipped": 2},
            "SKIPPED*ops was not measured: the cpu device is a clock: *",
        ),
        (
            "simulated",
            {"passed": 1, "failed": 1, "skipped": 1},
            "SKIPPED*time was not measured: the simulated GPU has no clock",
        ),
    ],
)
def test_a_trick_that_changes_the_training_is_no_trick(
    project: ScriptedProject, device: str, outcomes: dict[str, int], unmeasured: str
) -> None:
    project.file(TRAINING)

    result = project.pytester.runpytest_inprocess(
        "--gpuperf", f"--gpuperf-device={device}", "--gpuperf-seconds=5", "-rs"
    )

    result.assert_outcomes(**outcomes)
    result.stdout.fnmatch_lines(
        [
            (
                "gpuperf.compare(before, after, same_training=True): the training "
                "differs: gradient of * in step 1: * % apart, tolerated 1 % [[]GP714]"
            ),
            unmeasured,
        ]
    )


SIMULATED = """
import torch

def training(device, read):
    model = torch.nn.Linear(16, 4).to(device)
    def step():
        loss = model(torch.ones(2, 16, device=device)).sum()
        return loss.item() if read else loss
    return step

def test_exact(gpuperf):
    read, unread = (training(gpuperf.device, read) for read in (True, False))
    result = gpuperf.compare(read, unread)
    assert (result.syncs.before, result.syncs.after) == (1, 0)
    assert result.copies.difference == 0
    assert result.ops.before >= result.ops.after > 0

@gpuperf.budget(speedup=1.2, syncs=0)
def test_budgets(gpuperf):
    gpuperf.compare(training(gpuperf.device, True), training(gpuperf.device, False))

@gpuperf.budget(speedup=1.2)
def test_speedup(gpuperf):
    gpuperf.compare(training(gpuperf.device, True), training(gpuperf.device, False))

def test_time(gpuperf):
    both = [training(gpuperf.device, True) for _ in range(2)]
    assert gpuperf.compare(*both).time.low > 1

def test_what_one_side_returns_is_no_memory_of_the_other(gpuperf):
    x = torch.ones(1024, 1024, device="cuda")
    result = gpuperf.compare(lambda: x + 1, lambda: x + 1)
    assert (result.memory.before, result.memory.after) == (2 * x.nbytes, 2 * x.nbytes)
"""


def test_without_a_clock_counts_are_compared_and_times_skip(
    project: ScriptedProject,
) -> None:
    project.file(SIMULATED)

    result = project.pytester.runpytest_inprocess(
        "--gpuperf", "--gpuperf-device=simulated", "-rs", "-v"
    )

    result.assert_outcomes(passed=3, skipped=2)
    result.stdout.fnmatch_lines(
        [
            "*1 -> 0*test_it.py::test_exact#compare",
            "    time was not measured: the simulated GPU has no clock",
            "not checked: speedup of 2 tests, the simulated GPU has no clock",
            "SKIPPED*speedup: the simulated GPU has no clock",
            "SKIPPED*time was not measured: the simulated GPU has no clock",
        ]
    )


def test_the_tolerance_of_the_project_holds_where_no_mark_names_one(
    project: ScriptedProject,
) -> None:
    project.file(
        """
def test_step(gpuperf):
    assert gpuperf.compare(int, float).time.verdict == "same"
@gpuperf.tolerance(ms="1%", detect="3%")
def test_strict(gpuperf):
    assert gpuperf.compare(int, float).time.verdict == "faster"
"""
    )
    project.script(
        {"*": {"step_ms": 10.0}}
        | {
            f"{test}#compare#before": {"step_ms": 13.0}
            for test in ("test_step", "test_strict")
        }
    )

    result = project.run("--gpuperf-tolerance=ms=50%")

    result.assert_outcomes(passed=2)
