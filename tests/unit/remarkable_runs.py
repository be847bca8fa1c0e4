"""Results of runs that somebody elsewhere is to read about."""

from __future__ import annotations

from typing import Final

from pytest_gpuperf.model.codec import encode_briefly
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.environment import Hardware
from pytest_gpuperf.model.finding import Finding
from pytest_gpuperf.model.finding import FindingKind
from pytest_gpuperf.model.finding import Location
from pytest_gpuperf.model.results import Head
from pytest_gpuperf.model.results import Record
from pytest_gpuperf.model.results import Results
from pytest_gpuperf.model.run import Ending
from pytest_gpuperf.model.verdict import Outcome
from pytest_gpuperf.model.verdict import TestVerdict
from pytest_gpuperf.model.verdict import Verdict
from pytest_gpuperf.report.ci.worst_findings import Sources


SYNC: Final = Finding(
    kind=FindingKind.SYNC,
    op="aten::item",
    api=None,
    per_step=1,
    blocked_ms=0.5,
    location=Location(file="train.py", line=3, function="step"),
)


def time(
    outcome: Outcome,
    now: float | None = 10.0,
    baseline: float | None = 10.0,
    **more: object,
) -> Verdict:
    return judged("step_ms", outcome, now, baseline, **more)


def judged(
    metric: str,
    outcome: Outcome,
    now: float | None,
    baseline: float | None,
    **more: object,
) -> Verdict:
    return Verdict(
        metric=metric,
        outcome=outcome,
        because="so it was",
        now=now,
        baseline=baseline,
        **more,
    )


def record(
    test: str,
    *verdicts: Verdict,
    ending: Ending = Ending.PASSED,
    where: str = "test_it.py:3",
    findings: tuple[Finding, ...] = (),
) -> Record:
    verdict = TestVerdict(test=test, verdicts=verdicts, findings=findings)
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
"""A project with one file beside its tests."""


def regressed(test: str, now: float = 12.0, **more: object) -> Record:
    return record(test, time(Outcome.REGRESSED, now), ending=Ending.FAILED, **more)


def results(
    status: int | None = 1, notes: tuple[str, ...] = (), **tests: Record
) -> Results:
    head = Head(
        version="0.1.0",
        strict=False,
        fail_on_improvement=False,
        missing_baseline="warn",
        hardware=Hardware(kind=DeviceKind.CUDA, name="NVIDIA H200"),
        exit_status=status,
        notes=notes,
    )
    return Results(head=head, tests=tests)


SYNCS: Final = Verdict(
    metric="syncs", outcome=Outcome.REGRESSED, because="waits", now=2, baseline=1
)
OVER: Final = Verdict(
    metric="step_ms", outcome=Outcome.OVER_BUDGET, because="above", now=12.0, limit=5.0
)

MIXED: Final = results(
    **{
        "t.py::passes": record("t.py::passes", time(Outcome.PASS)),
        "t.py::waits": record(
            "t.py::waits",
            SYNCS,
            time(Outcome.PASS),
            ending=Ending.FAILED,
            findings=(SYNC,),
        ),
        "t.py::raises": Record(Ending.FAILED, headline="ValueError: 3", where="t.py:9"),
        "t.py::slow": regressed("t.py::slow"),
        "t.py::over": record("t.py::over", OVER, ending=Ending.FAILED),
        "t.py::unclear": record("t.py::unclear", time(Outcome.INCONCLUSIVE, 11.0)),
        "t.py::new": record("t.py::new", time(Outcome.NO_BASELINE, 3.0, None)),
        "t.py::skipped": Record(Ending.SKIPPED, headline="no GPU", where="t.py:20"),
    }
)
"""One of each kind."""
