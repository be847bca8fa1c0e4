"""What a run comes to is its exit status, however pytest was asked to go through it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

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


@pytest.fixture
def in_state(project: ScriptedProject, state: State) -> ScriptedProject:
    if state.is_stored:
        project.file(GATED)
        project.record()
    project.file(state.source)
    project.script({"*": {"step_ms": 10.0, **state.step}})
    return project


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


@each("green by a baseline", "regressed", "nothing selected", "no baseline")
def test_workers_end_a_run_as_one_process_does(
    in_state: ScriptedProject, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("xdist")
    monkeypatch.setenv("CI", "true")

    ended = in_state.run("-p", "xdist.plugin", "-n2", *state.options)

    assert ended.ret == (state.status if state.in_ci is None else state.in_ci)
