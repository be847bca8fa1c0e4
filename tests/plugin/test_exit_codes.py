"""What a run comes to is its exit status, however pytest was asked to go through it."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field
from typing import Any
from typing import Final

import pytest
from scripted_project import ScriptedProject


OK, FAILED, EMPTY = (
    int(pytest.ExitCode.OK),
    int(pytest.ExitCode.TESTS_FAILED),
    int(pytest.ExitCode.NO_TESTS_COLLECTED),
)

GATED = "def test_step(gpuperf): gpuperf(int)\ndef test_plain(): pass\n"
BUDGET = "@gpuperf.budget(ms=12, syncs=0, mem_mb=900)\n" + GATED
DISTURBED = {"step_ms": 12.0, "disturbance": "the GPU is throttling"}

STORED: dict[str, str] = {}
"""The baseline of an undisturbed step, recorded once for all tests of this file."""


@dataclass(frozen=True)
class State:
    """A project and how pytest ends there, here and where ``CI=true``."""

    source: str
    step: dict[str, Any] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    is_stored: bool = False
    status: int = OK
    in_ci: int | None = None


STATES: Final = {
    "green by a budget": State(BUDGET),
    "green by a baseline": State(GATED, is_stored=True),
    "improved": State(GATED, {"step_ms": 8.0}, is_stored=True),
    "over budget": State(BUDGET, {"step_ms": 20.0}, status=FAILED),
    "regressed": State(GATED, {"step_ms": 12.0}, is_stored=True, status=FAILED),
    "a sync more": State(GATED, {"syncs": 1}, is_stored=True, status=FAILED),
    "inconclusive": State(GATED, DISTURBED, is_stored=True),
    "inconclusive and strict": State(
        GATED, DISTURBED, ("--gpuperf-strict",), is_stored=True, status=FAILED
    ),
    "no baseline": State(GATED, in_ci=FAILED),
    "nothing selected": State(GATED, options=("-k", "nothing"), status=EMPTY),
    "no test of ours": State("def test_plain(): pass\n"),
    "a failure of its own": State("def test_step(gpuperf): assert 0\n", status=FAILED),
    "never measured": State("def test_step(gpuperf): pass\n", status=FAILED),
    "skipped": State("def test_step(gpuperf): pytest.skip('no')\n"),
    "expected to fail": State(
        "@pytest.mark.xfail(strict=True)\n" + BUDGET, {"step_ms": 20.0}
    ),
}

WAYS: Final = {
    "-x": ("-x",),
    "-qq": ("-qq",),
    "--reruns": ("-p", "pytest_rerunfailures", "--reruns=1"),
}


@pytest.fixture
def in_state(project: ScriptedProject, state: State) -> ScriptedProject:
    if state.is_stored:
        store_baseline(project)
    project.file(state.source)
    project.script({"*": {"step_ms": 10.0, **state.step}})
    return project


def store_baseline(project: ScriptedProject) -> None:
    if not STORED:
        project.file(GATED)
        project.refresh()
        STORED["scripted"] = project.baseline.read_text()
    project.baseline.parent.mkdir(exist_ok=True)
    project.baseline.write_text(STORED["scripted"])


def each(*names: str) -> pytest.MarkDecorator:
    """Run a test in the states of these names, else in all."""
    chosen = names or tuple(STATES)
    return pytest.mark.parametrize("state", [STATES[n] for n in chosen], ids=chosen)


@each()
def test_a_run_ends_as_it_must(in_state: ScriptedProject, state: State) -> None:
    assert in_state.run(*state.options).ret == state.status


@each("green by a baseline", "inconclusive", "no baseline", "nothing selected")
def test_a_run_in_ci_ends_as_it_must(
    in_state: ScriptedProject, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")

    ended = in_state.run(*state.options)

    assert ended.ret == (state.status if state.in_ci is None else state.in_ci)


SOME: Final = ("green by a baseline", "regressed", "inconclusive and strict")


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@each(*SOME, "nothing selected")
def test_a_way_through_the_tests_does_not_change_how_they_end(
    in_state: ScriptedProject, state: State, way: tuple[str, ...]
) -> None:
    if "--reruns=1" in way:
        pytest.importorskip("pytest_rerunfailures")

    assert in_state.run(*way, *state.options).ret == state.status


@each(*SOME)
def test_the_last_failures_end_again_as_they_did(
    in_state: ScriptedProject, state: State
) -> None:
    in_state.run(*state.options)

    assert in_state.run("--lf", *state.options).ret == state.status


@each(*SOME, "nothing selected", "no test of ours")
def test_workers_end_a_run_as_one_process_does(
    in_state: ScriptedProject, state: State
) -> None:
    pytest.importorskip("xdist")

    ended = in_state.run("-p", "xdist.plugin", "-n2", *state.options)

    assert ended.ret == state.status


@each("regressed")
def test_workers_that_x_stops_end_as_xdist_ends_them(
    in_state: ScriptedProject, state: State
) -> None:
    pytest.importorskip("xdist")

    ended = in_state.run("-p", "xdist.plugin", "-n2", "-x")

    assert ended.ret == pytest.ExitCode.INTERRUPTED


@pytest.mark.parametrize("ci", ["", "true"])
def test_workers_fail_for_a_missing_baseline_in_ci_alone(
    project: ScriptedProject, monkeypatch: pytest.MonkeyPatch, ci: str
) -> None:
    pytest.importorskip("xdist")
    monkeypatch.setenv("CI", ci)
    project.file(GATED)

    assert project.run("-p", "xdist.plugin", "-n2").ret == (FAILED if ci else OK)
