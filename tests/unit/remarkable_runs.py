"""Results of runs that somebody elsewhere is to read about."""

from __future__ import annotations

from typing import Final

from builders import a_finding, a_head, a_location, a_test, a_verdict

from pytest_gpuperf.model.codec import encode_briefly
from pytest_gpuperf.model.finding import Finding
from pytest_gpuperf.model.run import Ending, Record, Results
from pytest_gpuperf.model.verdict import Outcome, Verdict
from pytest_gpuperf.report.ci.github import Sources


SYNC: Final = a_finding(blocked_ms=0.5, location=a_location(3, "train.py", "step"))


def time(
    outcome: Outcome,
    now: float | None = 10.0,
    baseline: float | None = 10.0,
    **more: object,
) -> Verdict:
    return a_verdict("step_ms", outcome, now, baseline, because="so it was", **more)


def record(
    test: str,
    *verdicts: Verdict,
    ending: Ending = Ending.PASSED,
    where: str = "test_it.py:3",
    findings: tuple[Finding, ...] = (),
) -> Record:
    verdict = a_test(*verdicts, test=test, findings=findings)
    return Record(
        ending=ending,
        outcome=verdict.outcome,
        verdicts=(encode_briefly(verdict),),
        where=where,
    )


SOURCES: Final = Sources(
    is_ours={"train.py"}.__contains__,
    address=lambda file, line: f"https://ci/blob/4f2a/{file}#L{line}",
)
"""A project with one file next to its tests."""


def regressed(test: str, now: float = 12.0, **more: object) -> Record:
    return record(test, time(Outcome.REGRESSED, now), ending=Ending.FAILED, **more)


def results(
    status: int | None = 1, notes: tuple[str, ...] = (), **tests: Record
) -> Results:
    head = a_head(exit_status=status, notes=notes)
    return Results(head=head, tests=tests)


SYNCS: Final = a_verdict("syncs", Outcome.REGRESSED, 2, 1, because="waits")
