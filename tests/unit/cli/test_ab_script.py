"""Which runs of a program ``gpuperf ab`` asks for: each takes as long as the program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from builders import a_finding

from pytest_gpuperf.cli import ab as ab_script
from pytest_gpuperf.cli.ab import compare_program
from pytest_gpuperf.cli.script import Program
from pytest_gpuperf.cli.script_process import Asked, ScriptAnswer, ScriptRequest
from pytest_gpuperf.compare_commits.sides import Side
from pytest_gpuperf.devices.audit_record import StepAudit, Totals
from pytest_gpuperf.errors import ErrorId, UsageError
from pytest_gpuperf.model.ab import AbRun
from pytest_gpuperf.model.measurement import Forecast
from pytest_gpuperf.model.metrics import AUDITED, PEAK_ALLOCATED
from pytest_gpuperf.runner.relocation import Relocation


MIB: Final = 1 << 20

Played = Callable[[str, int], int]
"""What a side, called by its folder, shows in its run of this number."""

Compare = Callable[[Played, Played], tuple[AbRun, Counter[Asked]]]


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Compare:
    """Compare a program whose sides are played; say how often one was asked for what."""

    def compare(waits: Played, mib: Played) -> tuple[AbRun, Counter[Asked]]:
        asked: Counter[tuple[str, Asked]] = Counter()

        def answer(request: ScriptRequest, **_: object) -> tuple[int, ScriptAnswer]:
            side = Path(request.root).name
            run = asked[side, request.asked]
            asked[side, request.asked] += 1
            if request.asked is Asked.AUDIT:
                return 0, ScriptAnswer(audit=an_audit(waits(side, run)))
            if request.asked is Asked.MEMORY:
                return 0, ScriptAnswer(forecast=a_peak(mib(side, run)))
            msg = "its training is played by nobody"
            raise UsageError(msg, ErrorId.GP709)

        monkeypatch.setattr(ab_script, "run_program", answer)
        program = Program(name="train.py", is_module=False, arguments=())
        run = compare_program(sides(tmp_path), program, lambda _: None)
        return run, Counter({a: asked["before", a] for a in Asked})

    return compare


def sides(folder: Path) -> tuple[Side, Side]:
    for name in ("before", "after"):
        (folder / name).mkdir()
    origin = str(Path.cwd())
    before, after = (
        Side(label=n, relocation=Relocation(origin=origin, root=str(folder / n)))
        for n in ("before", "after")
    )
    return before, after


def an_audit(waits: int) -> StepAudit:
    totals = Totals(
        syncs=waits,
        inconclusive=0,
        blocking_copies=0,
        counts={**dict.fromkeys((m.name for m in AUDITED), 0), "launches": 10},
    )
    found = (a_finding(per_step=waits, in_steps=20),) * (waits > 1)
    return StepAudit(
        findings=found,
        copies=(),
        totals=totals,
        not_checked=(),
        as_eager=(),
        steps=20,
    )


def a_peak(mib: int) -> Forecast:
    return Forecast(allocated_bytes=mib * MIB, reserved_bytes=2 * mib * MIB, steps=4)


def test_what_changed_nothing_is_run_once_for_each_question(compared: Compare) -> None:
    run, asked = compared(lambda *_: 1, lambda *_: 8)

    assert not run.is_worse
    assert +asked == {Asked.AUDIT: 1, Asked.MEMORY: 1, Asked.TRAINING: 1}


def test_equal_peaks_are_not_predicted_again_where_waits_are_counted_again(
    compared: Compare,
) -> None:
    run, asked = compared(lambda side, _: side == "after", lambda *_: 8)

    assert run.is_worse
    assert asked[Asked.AUDIT] == 2
    assert asked[Asked.MEMORY] == 1


def test_peaks_that_differ_are_predicted_in_each_run(compared: Compare) -> None:
    run, asked = compared(lambda *_: 1, lambda side, _: 80 if side == "after" else 8)

    assert asked[Asked.MEMORY] == asked[Asked.AUDIT] == 2
    (call,) = run.calls
    assert PEAK_ALLOCATED.name in {c.metric for c in call.exact if c.gated}


def test_what_a_line_does_is_counted_in_all_steps(compared: Compare) -> None:
    run, _ = compared(lambda side, _: 39 if side == "after" else 20, lambda *_: 8)

    (call,) = run.calls
    assert [found.how_often for found in call.findings] == ["39 in 20 steps"]


def test_a_peak_that_differed_in_one_run_alone_is_no_change(compared: Compare) -> None:
    run, _ = compared(
        lambda side, _: side == "after",
        lambda side, run: 80 if side == "after" and run == 0 else 8,
    )

    (call,) = run.calls
    assert PEAK_ALLOCATED.name not in {c.metric for c in call.exact if c.proving}
