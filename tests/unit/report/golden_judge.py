"""Why a time was judged as it was: outcome, the rule that decided, and the sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import exp, log, nan
from typing import Any, Final

from builders import a_measurement, a_run
from golden_lines import Cases, listed

from pytest_gpuperf.judge.context import Sentinels, SuiteContext
from pytest_gpuperf.judge.process_pairs import judge_pairs, pair_schedule
from pytest_gpuperf.judge.stored_times import judge_stored
from pytest_gpuperf.model.ab import AbResult
from pytest_gpuperf.model.baseline import RunSummary
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.measurement import Measurement
from pytest_gpuperf.model.metrics import STEP_MS


STEADY: Final = (9.96, 9.98, 9.99, 10.0, 10.0, 100 / 9.99, 100 / 9.98, 100 / 9.96)
WILD: Final = (8.0, 9.0, 10.0, 10.0, 10.0, 10.0, 12.0, 14.0)
SIX_PERCENT: Final = log(1.06)
SETTINGS: Final = {"tolerance": 0.01, "detect": 0.03, "floor": 0.0}

timed = partial(a_measurement, on=DeviceKind.SCRIPTED)


def clean(*times: float) -> list[Measurement]:
    return [timed(ms) for ms in times]


def said_of(
    fresh: list[Measurement],
    stored: Sequence[float | RunSummary] = STEADY,
    **fields: Any,
) -> str:
    """What is said of *fresh* runs against the *stored* ones."""
    runs = [run if isinstance(run, RunSummary) else a_run(run) for run in stored]
    fields = {"suite_context": SuiteContext(), **SETTINGS, **fields}
    verdict = judge_stored(STEP_MS, fresh, runs, **fields)
    rule = verdict.evidence.rule.name if verdict.evidence else "-"
    settled = "" if verdict.settled else ", open"
    return f"{verdict.outcome.value}{settled} ({rule}): {verdict.because}"


def against_stored_runs() -> Cases:
    said: Cases = {}
    slow = clean(10.3, 10.4, 10.3, 10.5, 10.3)
    disturbed = [timed(12, "hot", "shared")] * 4
    said["why each outcome"] = [
        said_of(clean(10.08)),
        said_of(slow),
        said_of(clean(*[10.4] * 5), STEADY[:5]),
        said_of([*clean(*[9.7] * 5), timed(10.0, "hot")]),
        said_of(clean(10.3)),
        said_of([timed(12, "hot"), *clean(10.3)]),
        said_of(clean(11), STEADY[:3]),
        said_of([*disturbed, *clean(11, 11, 11, 11)]),
        said_of(clean(10.3, 10.4, 10.1, 10.5, 10.3)),
        said_of(clean(*[11] * 5), WILD),
    ]
    said["a slowdown that is seen and not blamed is no noise"] = [
        said_of(clean(*[ms] * 5), tolerance=tolerance, detect=tolerance)
        for ms, tolerance in ((10.87, 0.085), (10.16, 0.01), (10.08, 0.01))
    ]
    said["what all tests share is not blamed on one"] = [
        said_of(
            clean(*[ms] * runs), suite_context=SuiteContext(shift=sign * SIX_PERCENT)
        )
        for sign, ms, runs in (
            (1, 10.6, 4),
            (1, 10.6, 5),
            (1, 11.5, 5),
            (-1, 10.0, 5),
            (-1, 9.4, 1),
        )
    ]
    said["what the sentinels show is not blamed on code"] = [
        said_of(
            clean(*[ms] * 5), sentinels=Sentinels(fresh=(seen,) * 5, stored=(0.0,) * 8)
        )
        for seen, ms in (
            *((SIX_PERCENT, 10.6), (-SIX_PERCENT, 10.0), (-SIX_PERCENT, 10.6)),
            *((SIX_PERCENT, 10.0), (nan, 10.0), (None, 10.0)),
        )
    ]
    said["a change must exceed the floor as well"] = [
        said_of(clean(*[ms] * 5), floor=1.0) for ms in (10.6, 11.6)
    ]
    said["a tolerance of 0 blames what is proven slower"] = [
        said_of(clean(*[ms] * runs), tolerance=0.0, detect=0.02)
        for ms, runs in ((10.1, 5), (10.0, 1))
    ]
    return said


def on_days(*shifts: float) -> list[RunSummary]:
    """Five quiet runs a day, each day shifted by so much."""
    return [
        a_run(10 * exp(shift + log_of_run), occasion=f"2026-01-{day:02}T09:00Z-0000")
        for day, shift in enumerate(shifts, start=1)
        for log_of_run in (-0.002, -0.001, 0.0, 0.001, 0.002)
    ]


def against_other_days() -> Cases:
    def on_cuda(ratio: float, runs: int, *shifts: float) -> list[str]:
        return [said_of([a_measurement(10 * ratio)] * runs, on_days(*shifts))]

    return {
        "one day may be the machine's": on_cuda(1.10, 5, 0.0),
        "so may three": on_cuda(1.05, 5, 0.0, 0.02, -0.02),
        "a faster day may hide a slowdown": on_cuda(1.001, 1, 0.0),
    }


def why(results: Iterable[AbResult]) -> list[str]:
    return [f"{found.answer.value}: {found.why}" for found in results]


def pairs_of_processes() -> Cases:
    judged = partial(judge_pairs, schedule=pair_schedule(0.01, 0.03))
    lucky = [0.15, -0.04, 0.12, 0.09, 0.02, 0.13, -0.01, 0.1]
    return {
        "three that agree on nothing changed": why([judged([-0.002, 0.001, 0.002])]),
        "with luck of their own": why([judged(lucky)]),
        "the last there is ends it": why(
            judged(found, last=True) for found in ([0.5], [0.02, 0.05])
        ),
    }


JUDGE: Final[Mapping[str, Callable[[], str]]] = {
    "judge-stored.txt": lambda: listed(against_stored_runs),
    "judge-days.txt": lambda: listed(against_other_days),
    "judge-pairs.txt": lambda: listed(pairs_of_processes),
}
