"""Values of the model with good defaults: a test names only what it is about.

Each call returns a new value. Keywords that a function does not name are fields of the
value that it makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from pytest_gpuperf.baselines.drift import anchors_of
from pytest_gpuperf.baselines.format import dumps, loads
from pytest_gpuperf.model.ab import AbResult, Answer
from pytest_gpuperf.model.baseline import Baselines, Entry, RunSummary
from pytest_gpuperf.model.codec import encode, encode_briefly
from pytest_gpuperf.model.environment import DeviceKind, Environment, Hardware
from pytest_gpuperf.model.finding import Finding, FindingKind, LineChange, Location
from pytest_gpuperf.model.measurement import Distribution, Measurement
from pytest_gpuperf.model.run import Ending, Head, Record, Results, StepCall, TestResult
from pytest_gpuperf.model.verdict import (
    DecidedBy,
    Evidence,
    Outcome,
    TestVerdict,
    Verdict,
)


KIB: Final = 2**10
MIB: Final = 2**20
GIB: Final = 2**30

H200: Final = Hardware(kind=DeviceKind.CUDA, name="NVIDIA H200")
SIMULATED: Final = Hardware(kind=DeviceKind.SIMULATED, name="CUDA")
CPU: Final = Hardware(kind=DeviceKind.CPU, name="AMD EPYC 2 cores")
SCRIPTED: Final = Hardware(kind=DeviceKind.SCRIPTED, name="")

ANY_OF: Final = {known.kind: known for known in (H200, SIMULATED, CPU, SCRIPTED)}
"""Some hardware of each kind."""

Machine = Hardware | DeviceKind
"""Hardware, or its kind where any hardware of it will do."""

TEST: Final = "tests/test_train.py::test_step"
SOFTWARE: Final[Mapping[str, str]] = {"torch": "2.13.0"}
USUAL: Final[Mapping[str, int]] = {"peak_allocated_bytes": 100 * MIB, "syncs": 0}
"""The exact numbers of a step without syncs."""


def an_environment(
    on: Machine = H200, software: Mapping[str, str] = SOFTWARE
) -> Environment:
    """A machine with these versions of *software*."""
    hardware = ANY_OF[on] if isinstance(on, DeviceKind) else on
    return Environment(hardware=hardware, software=software)


# One run, and a baseline of several.

Times = float | Mapping[str, float] | None
"""Milliseconds of a step, or what each of several times was by its metric, or none."""


def a_distribution(
    ms: float = 10.0, *, spread: float = 0.0, samples: int = 20
) -> Distribution:
    """Samples whose lower quartile is *ms*; they differ by the share *spread*."""
    return Distribution(
        q10=ms * (1 - spread),
        q25=ms,
        q50=ms * (1 + spread),
        mean=ms * (1 + 2 * spread),
        samples=samples,
    )


def distributions(ms: Times, spread: float = 0.0) -> dict[str, Distribution]:
    """The times of a run, by their metrics."""
    times = ms if isinstance(ms, Mapping) else {} if ms is None else {"step_ms": ms}
    return {
        metric: a_distribution(time, spread=spread) for metric, time in times.items()
    }


def a_run(ms: Times = 10.0, *, spread: float = 0.0, **fields: Any) -> RunSummary:
    """A stored run: a step of *ms*."""
    fields.setdefault("times", distributions(ms, spread))
    return RunSummary(**fields)


def an_entry(
    *ms: Times | RunSummary | Measurement,
    spread: float = 0.0,
    exact: Mapping[str, int] | None = None,
    session: str = "",
    **fields: Any,
) -> Entry:
    """A baseline of a run for each of *ms*, of eight runs around 10 ms by default."""
    fields.setdefault("software", SOFTWARE)

    def summary(run: Times | RunSummary | Measurement) -> RunSummary:
        if isinstance(run, Measurement):
            return RunSummary.of(run, session)
        if isinstance(run, RunSummary):
            return run
        return a_run(run, spread=spread, exact=exact or {}, session=session)

    times = ms or tuple(10.0 + 0.01 * number for number in range(8))
    fields.setdefault("runs", tuple(map(summary, times)))
    return Entry(**fields)


def baselines(hardware: Hardware = H200, **entries: Entry) -> Baselines:
    """A file of baselines with these *entries* by test."""
    return Baselines(hardware=hardware, entries=entries)


def entries_in(file: Path) -> dict[str, Any]:
    """What a file of baselines says of each test, with all numbers of each run."""
    found = loads(file.read_text(encoding="utf-8"), str(file))
    return {
        test: {**encode(entry), "anchor": anchors_of(entry, found.hardware.kind)}
        for test, entry in found.entries.items()
    }


def holding(hardware: Hardware = H200, **syncs: int) -> Baselines:
    """A file in which each test has one run without times, which waited so often."""
    entries = {test: an_entry(None, exact={"syncs": n}) for test, n in syncs.items()}
    return baselines(hardware, **entries)


def save(path: Path, hardware: Hardware = H200, **entries: Entry) -> Path:
    """Write a file of baselines with these *entries* by test."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(dumps(baselines(hardware, **entries)), "utf-8")
    return path


def a_measurement(
    ms: Times = 10.0,
    *dirty: str,
    on: Machine = H200,
    software: Mapping[str, str] = SOFTWARE,
    **fields: Any,
) -> Measurement:
    """What one process measured of a test: a step of *ms*, *dirty* for these reasons."""
    fields.setdefault("test", TEST)
    fields.setdefault("environment", an_environment(on, software))
    fields.setdefault("times", distributions(ms))
    return Measurement(dirty=dirty, **fields)


def a_result(
    *measurements: Measurement,
    test: str = TEST,
    ending: Ending = Ending.PASSED,
    **fields: Any,
) -> TestResult:
    """What one process says of a test: a call without marks for each measurement."""
    calls = tuple(StepCall(measurement=found) for found in measurements)
    fields.setdefault("calls", calls)
    return TestResult(test=test, ending=ending, **fields)


# What the judge says of a metric, and of a test.


def a_verdict(
    metric: str = "step_ms",
    outcome: Outcome = Outcome.PASS,
    now: float | None = 10.0,
    baseline: float | None = 10.0,
    **fields: Any,
) -> Verdict:
    """A metric that is as it was, if nothing else is named."""
    because = "nothing is stored for this test" if baseline is None else "as stored"
    fields.setdefault("because", because)
    return Verdict(metric=metric, outcome=outcome, now=now, baseline=baseline, **fields)


def a_regression(
    metric: str = "step_ms", now: float = 12.03, baseline: float = 10.0, **fields: Any
) -> Verdict:
    """A metric that became worse: a step that is a fifth slower, by default."""
    fields.setdefault("because", "worse than stored in each run")
    fields.setdefault("limit", 1.026 * baseline)
    return a_verdict(metric, Outcome.REGRESSED, now, baseline, **fields)


def a_missed_budget(
    metric: str = "syncs", now: float = 1, limit: float = 0, **fields: Any
) -> Verdict:
    """A metric over its limit: one sync where none is allowed, by default."""
    fields.setdefault("because", "over the limit in each run")
    return a_verdict(metric, Outcome.OVER_BUDGET, now, None, limit=limit, **fields)


def some_evidence(**fields: Any) -> Evidence:
    """The numbers behind a time that became a fifth slower."""
    known: dict[str, Any] = {
        "estimate": 0.2,
        "low": 0.19,
        "high": 0.21,
        "tolerance": 0.01,
        "detect": 0.03,
        "runs": 5,
        "stored_runs": 8,
        "smallest_detectable": 0.021,
        "p_regressed": 2e-5,
        "rule": DecidedBy.T_AND_RANK,
    }
    return Evidence(**{**known, **fields})


def a_test(*verdicts: Verdict, test: str = TEST, **fields: Any) -> TestVerdict:
    """A test with these *verdicts*; one that passed, if there are none."""
    fields.setdefault("verdicts", verdicts or (a_verdict(),))
    return TestVerdict(test=test, **fields)


# Causes and their lines.


def a_location(
    line: int = 12, file: str = "train.py", function: str = "step"
) -> Location:
    """A line of the project."""
    return Location(file=file, line=line, function=function)


def a_finding(
    kind: FindingKind = FindingKind.SYNC, line: int = 12, **fields: Any
) -> Finding:
    """Something that each step does once at *line*: a read of one number, by default."""
    fields.setdefault("op", "aten::item")
    fields.setdefault("api", None)
    fields.setdefault("per_step", 1)
    fields.setdefault("blocked_ms", 0.0)
    fields.setdefault("location", a_location(line))
    return Finding(kind=kind, **fields)


def line_change(
    ops: Mapping[str, tuple[int, int]],
    *,
    module: str = "",
    line: int = 17,
    nbytes: int = 0,
    is_new: bool = True,
) -> LineChange:
    """A line that runs *ops* in another number than before."""
    return LineChange(
        module=module,
        location=a_location(line),
        innermost=None,
        source="x = x.contiguous()",
        is_new=is_new,
        ops=ops,
        added_bytes=nbytes,
    )


# A whole run, as other programs read it.


def a_record(*calls: TestVerdict, where: str = "tests/test_train.py:9") -> Record:
    """What came of a test with these *calls*."""
    found = calls or (a_test(),)
    worst = min((call.outcome for call in found), key=list(Outcome).index)
    return Record(
        ending=Ending.FAILED if worst.fails else Ending.PASSED,
        outcome=worst,
        verdicts=tuple(map(encode_briefly, found)),
        where=where,
    )


def a_head(**fields: Any) -> Head:
    """A run on a GPU with the settings that are the default."""
    known: dict[str, Any] = {
        "version": "0.1.0",
        "strict": False,
        "missing_baseline": "warn",
        "hardware": H200,
    }
    return Head(**{**known, **fields})


def some_results(
    calls: Iterable[TestVerdict] = (),
    others: Mapping[str, Record] | None = None,
    **head: Any,
) -> Results:
    """A run in which each of *calls* is that of a test, besides the *others*."""
    head.setdefault("exit_status", 1)
    tests = {call.test: a_record(call) for call in calls}
    return Results(head=a_head(**head), tests={**tests, **(others or {})})


# Two sides.


def a_comparison(
    answer: Answer = Answer.SAME, ratio: float = 1.0, **fields: Any
) -> AbResult:
    """The time of a step after a change, *ratio* times what it was before."""
    known: dict[str, Any] = {
        "why": f"after is {answer.value}",
        "low": ratio - 0.01,
        "high": ratio + 0.01,
        "smallest": 0.024,
        "before_ms": 10.0,
        "after_ms": 10.0 * ratio,
        "pairs": 3,
    }
    return AbResult(answer=answer, ratio=ratio, **{**known, **fields})


# Text.


def text_of(lines: Iterable[str]) -> str:
    """*lines* as they are printed, each with its end."""
    return "".join(f"{line}\n" for line in lines)
