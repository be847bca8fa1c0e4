"""Why a time was judged as it was: outcome, the rule that decided, and the sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import exp, log, nan
from typing import Any, Final

from builders import a_measurement, a_run
from golden_lines import Cases, listed

from pytest_gpuperf.judge.context import Sentinels, SuiteContext
from pytest_gpuperf.judge.process_pairs import judge_pairs, pair_schedule
from pytest_gpuperf.judge.stored_times import judge_stored
from pytest_gpuperf.judge.training import judge_training
from pytest_gpuperf.model.ab import (
    AbResult,
    Sketch,
    TrainedStep,
    TrainedTensor,
    TrainingRecord,
)
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
    """The sentence on *fresh* runs against the *stored* ones."""
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
    said["a tolerance of 0 blames a proven slowdown"] = [
        said_of(clean(*[ms] * runs), tolerance=0.0, detect=0.02)
        for ms, runs in ((10.1, 5), (10.0, 1))
    ]
    return said


def on_days(*shifts: float) -> list[RunSummary]:
    """Five quiet runs a day, each day shifted by so much."""
    return [
        a_run(10 * exp(shift + log_of_run), session=f"2026-01-{day:02}T09:00Z-0000")
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


# Whether two sides train the same, by records that were made up.

NAN = Sketch(shape=(), finite=False)


def number(value: float) -> Sketch:
    return Sketch(shape=(), norm=abs(value), sums=(value,))


def many(*sums: float, shape: tuple[int, ...] = (8, 8), norm: float = 8.0) -> Sketch:
    return Sketch(shape=shape, norm=norm, sums=sums or (8.0,) * 16)


WEIGHT = TrainedTensor(
    name="weight",
    value=many(),
    gradient=many(),
    movement=many(),
    options={"lr": "0.001", "weight_decay": "0"},
)
STEP = TrainedStep(
    returned=number(2.0), losses=(number(2.0),), updates=1, tensors=(WEIGHT,)
)
RUN = TrainingRecord(steps=(STEP, STEP, STEP))


def with_step(step: TrainedStep, run: TrainingRecord = RUN) -> TrainingRecord:
    return replace(run, steps=(step, *run.steps[1:]))


def with_loss(value: float, run: TrainingRecord = RUN) -> TrainingRecord:
    return with_step(replace(STEP, returned=number(value)), run)


def with_tensor(*tensors: TrainedTensor) -> TrainingRecord:
    return with_step(replace(STEP, tensors=tensors))


def answer(
    before: TrainingRecord, after: TrainingRecord, *second: TrainingRecord
) -> str:
    """Of two runs a side; the second ones are as the first, if not said."""
    again, after_again = second or (before, after)
    found = judge_training((before, again), (after, after_again))
    return f"{found.answer.value}: {found.text}"


def trainings() -> Cases:
    said: Cases = {}
    said["equal runs"] = [answer(RUN, RUN)]
    said["what the type of numbers explains, and a fifth more"] = [
        f"{precision}: {answer(run, with_loss(2.0 * (1 + share * tolerated), run))}"
        for precision, tolerated in (
            *(("float64", 1e-9), ("float32", 1e-4)),
            *(("float16", 2e-2), ("bfloat16", 5e-2)),
        )
        for run in [replace(RUN, precision=precision)]
        for share in (0.9, 1.2)
    ]
    said["the first that differs has its numbers"] = [answer(RUN, with_loss(2.01))]
    coarse = replace(RUN, precision="bfloat16")
    said["coarser numbers are not tolerated for that"] = [
        answer(RUN, with_loss(2.02, coarse))
    ]
    return said | of_tensors() | of_runs()


def of_tensors() -> Cases:
    said: Cases = {}
    bias = TrainedTensor(name="bias", value=many(), gradient=many())
    tensors = {
        "an option of the optimizer": [
            replace(WEIGHT, options={"lr": "0.01", "weight_decay": "0"})
        ],
        "another shape": [replace(WEIGHT, gradient=many(shape=(8, 9)))],
        "parameters with other names": [replace(WEIGHT, name="layer.weight")],
        "another movement": [replace(WEIGHT, movement=many(*[-8.0] * 16))],
        "one of less than the last place of its numbers": [
            replace(WEIGHT, movement=many(*[-8.0] * 16), rounding=16.1)
        ],
    }
    for name, found in tensors.items():
        said[name] = [answer(RUN, with_tensor(*found))]
    tiny = [
        with_tensor(WEIGHT, replace(bias, gradient=many(*[n * 1e-6] * 16, norm=1e-6)))
        for n in (1, -1)
    ]
    said["a gradient that is only rounding may be any"] = [answer(*tiny)]
    small = [
        with_tensor(WEIGHT, replace(bias, gradient=many(*[norm] * 16, norm=norm)))
        for norm in (0.24, 0.2544)
    ]
    said["a small gradient of a coarse type is compared with all"] = [
        answer(*(replace(run, precision=precision) for run in small))
        for precision in ("bfloat16", "float32")
    ]
    said["a tensor that is trained no more"] = [
        answer(with_tensor(WEIGHT, replace(WEIGHT, name="bias")), RUN)
    ]
    halves = [
        replace(bias, name=name, gradient=many(shape=(4, 8), norm=32**0.5))
        for name in ("one", "two")
    ]
    said["a layer that is fused"] = [
        answer(
            replace(RUN, steps=(replace(STEP, tensors=tuple(halves)),)),
            replace(RUN, steps=(STEP,)),
        )
    ]
    return said


def of_runs() -> Cases:
    said: Cases = {}
    broken = with_step(replace(STEP, returned=NAN))
    said["NaN differs unless both have it"] = [
        answer(broken, broken),
        answer(RUN, broken),
    ]
    alone = with_step(replace(STEP, returned=None))
    scaled = with_step(replace(STEP, returned=None, losses=(number(2048.0),)))
    said["a scaled loss with the same gradients"] = [answer(alone, scaled)]
    said["another number of updates"] = [
        answer(RUN, with_step(replace(STEP, updates=2)))
    ]
    said["what varies within a side is not compared"] = [
        answer(RUN, with_loss(2.1), with_loss(2.05), with_loss(2.1)),
        answer(RUN, with_loss(2.1), RUN, with_loss(2.3)),
        answer(RUN, with_loss(2.0003), RUN, with_loss(2.0001)),
    ]
    said["a difference next to a small scatter is one"] = [
        answer(RUN, with_loss(2.1), with_loss(2.00001), with_loss(2.1))
    ]
    drawn = replace(with_loss(2.1), unseeded=True)
    said["draws without a seed, of one side and of both"] = [
        answer(RUN, drawn, RUN, with_loss(2.3)),
        answer(replace(RUN, unseeded=True), drawn),
    ]
    empty = TrainingRecord(steps=(TrainedStep(),))
    said["what trains nothing"] = [
        answer(empty, empty),
        answer(RUN, replace(empty, steps=(TrainedStep(),) * 3)),
    ]
    said["a side without values"] = [
        answer(RUN, replace(RUN, missing="values do not fit"))
    ]
    apart = replace(STEP, returned=number(2.0 * (1 + 2.5e-4)))
    said["rounding adds up from step to step"] = [
        answer(RUN, replace(RUN, steps=steps))
        for steps in ((STEP, apart, STEP), (STEP, STEP, apart))
    ]
    return said


JUDGE: Final[Mapping[str, Callable[[], str]]] = {
    "judge-stored.txt": lambda: listed(against_stored_runs),
    "judge-days.txt": lambda: listed(against_other_days),
    "judge-pairs.txt": lambda: listed(pairs_of_processes),
    "judge-training.txt": lambda: listed(trainings),
}
