"""Two versions of one call: times by pairs, counts and sizes exactly."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import MIB, a_measurement

from pytest_gpuperf.judge.process_pairs import judge_call
from pytest_gpuperf.model.ab import Answer, Comparison, ExactChange, Turn
from pytest_gpuperf.model.budget import Tolerance
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.measurement import Distribution, Measurement


WHOLE = Tolerance()


def run(
    ms: float | None = None, kind: DeviceKind = DeviceKind.CUDA, **exact: int
) -> Measurement:
    unmeasured = {"step_ms": "it has no clock"} if ms is None else {}
    return a_measurement(ms, on=kind, unmeasured=unmeasured, exact=exact)


def timed(
    *ratios: float, tolerance: Tolerance = WHOLE, last: bool = False
) -> Comparison:
    return judge_call(
        [(run(10.0), run(10.0 * r)) for r in ratios], tolerance, last=last
    )


def counted(
    before: list[int], after: list[int], metric: str = "syncs"
) -> tuple[ExactChange, ...]:
    pairs = [
        (run(**{metric: b}), run(**{metric: a}))
        for b, a in zip(before, after, strict=True)
    ]
    return judge_call(pairs, WHOLE).exact


@pytest.mark.parametrize(
    ("ratios", "answer"),
    [
        ((1.1,), Answer.MORE),
        ((1.1, 1.1), Answer.MORE),
        ((1.1, 1.1, 1.1), Answer.MORE),
        ((1.1,) * 5, Answer.SLOWER),
        ((0.9,) * 5, Answer.FASTER),
        ((1.0, 1.0, 1.0), Answer.SAME),
        ((1.1, 1.0, 1.05), Answer.MORE),
        ((1.1, 1.0, 1.05, 1.0, 1.1, 0.9, 1.05, 1.0), Answer.INCONCLUSIVE),
    ],
)
def test_the_judge_of_pairs_looks_after_three_five_and_eight(
    ratios: tuple[float, ...], answer: Answer
) -> None:
    change = timed(*ratios)

    assert change.time is not None
    assert change.time.answer is answer
    assert change.settled == (answer is not Answer.MORE)
    assert change.is_worse == (answer is Answer.SLOWER)
    assert change.is_better == (answer is Answer.FASTER)
    assert change.is_inconclusive == (answer is Answer.INCONCLUSIVE)


def test_pairs_that_end_early_are_judged_as_they_are() -> None:
    change = timed(1.1, last=True)

    assert change.settled
    assert change.time is not None
    assert change.time.answer is Answer.INCONCLUSIVE
    assert change.time.why == (
        "neither at most 1 % nor 3 % or more is ruled out: time +10.0 %, too few for an "
        "interval; t-test over 1 pair of processes, too few to blame"
    )
    assert (change.time.low, change.time.smallest) == (None, None)


def test_the_numbers_are_ratios_and_the_middle_times() -> None:
    change = judge_call(
        [(run(10.0), run(11.0)), (run(20.0), run(22.2)), (run(12.0), run(13.2))], WHOLE
    )

    time = change.time
    assert time is not None
    assert (time.before_ms, time.after_ms, time.pairs) == (12.0, 13.2, 3)
    assert time.ratio == pytest.approx(1.1033, abs=1e-4)
    assert time.low is not None
    assert time.high is not None
    assert time.low < time.ratio < time.high


def test_a_process_is_read_as_its_device_is() -> None:
    """The first decile on a cpu, which other work disturbs, the lower quartile else."""
    slow = Distribution(q10=2.0, q25=1.0, q50=3.0, mean=3.0, samples=9)
    runs = [
        a_measurement(on=kind, times={"step_ms": slow})
        for kind in (DeviceKind.CPU, DeviceKind.CUDA)
    ]

    seen = [judge_call([(one, one)], WHOLE).time for one in runs]

    assert [time.before_ms for time in seen if time] == [2.0, 1.0]


@pytest.mark.parametrize(
    ("tolerance", "answer"),
    [
        (Tolerance(ratios={"ms": 0.2}), Answer.SAME),
        (Tolerance(ratios={"ms": 0.2}, detect=0.1), Answer.SAME),
        (Tolerance(floors={"ms": 2.0}), Answer.SAME),
        (Tolerance(detect=0.5), Answer.SLOWER),
    ],
)
def test_what_an_author_tolerates_counts(tolerance: Tolerance, answer: Answer) -> None:
    change = timed(*[1.1] * 5, tolerance=tolerance)

    assert change.time is not None
    assert change.time.answer is answer


@pytest.mark.parametrize(
    ("before", "after", "turn", "old", "new"),
    [
        ([0, 0], [1, 1], Turn.WORSE, 0, 1),
        ([0, 1] * 4, [3, 2] * 4, Turn.WORSE, 1, 2),
        ([3, 2] * 4, [1, 0] * 4, Turn.BETTER, 2, 1),
        ([0, 0], [1, 0], Turn.VARIES, 0, 1),
    ],
)
def test_counts_are_compared_by_the_runs_that_are_closest(
    before: list[int], after: list[int], turn: Turn, old: int, new: int
) -> None:
    found = counted(before, after)

    assert found == (
        ExactChange(metric="syncs", before=old, after=new, turn=turn, gated=True),
    )


@pytest.mark.parametrize(
    ("before", "after"), [([1, 1], [1, 1]), ([0, 2], [1, 2]), ([2, 0], [0, 1])]
)
def test_what_a_side_varies_by_itself_is_no_change(
    before: list[int], after: list[int]
) -> None:
    assert counted(before, after) == ()


def test_memory_may_grow_by_its_floor_and_no_more() -> None:
    metric = "peak_allocated_bytes"

    assert counted([100 * MIB], [101 * MIB], metric) == ()
    assert counted([100 * MIB], [101 * MIB + 1], metric) != ()


def test_a_count_that_no_baseline_gates_is_reported_and_fails_nothing() -> None:
    change = judge_call([(run(recompiles=5), run(recompiles=6))] * 2, WHOLE)

    assert [(c.metric, c.gated) for c in change.exact] == [("recompiles", False)]
    assert not change.is_worse
    assert change.settled


@pytest.mark.parametrize("metric", ["graph_breaks", "recompiles"])
def test_what_a_compiler_did_not_do_before_is_worse_whatever_the_time_says(
    metric: str,
) -> None:
    pair = (run(**{metric: 0}), run(**{metric: 2}))

    one, two = (judge_call([pair] * n, WHOLE) for n in (1, 2))

    assert (one.settled, two.settled) == (False, True)
    assert [(c.metric, c.turn, c.gated) for c in two.exact] == [
        (metric, Turn.WORSE, True)
    ]
    assert two.is_worse


def test_a_graph_break_less_is_better() -> None:
    pair = (run(graph_breaks=1), run(graph_breaks=0))

    assert judge_call([pair] * 2, WHOLE).is_better


def test_what_the_compiler_did_is_said_not_to_be_judged_where_there_is_no_number() -> (
    None
):
    eager = replace(run(syncs=1), unmeasured={"graph_breaks": "eager", "other": "no"})

    found = judge_call([(run(syncs=1), eager)], WHOLE)

    assert found.unmeasured["graph_breaks"] == "eager"
    assert "other" not in found.unmeasured


def test_a_size_that_varies_takes_eight_pairs_to_be_called_worse() -> None:
    few = counted([0, 1], [3, 2])
    many = counted([0, 1] * 4, [3, 2] * 4)

    assert [(c.turn, c.proving) for c in few] == [(Turn.VARIES, True)]
    assert [(c.turn, c.proving) for c in many] == [(Turn.WORSE, False)]


def test_so_does_one_that_the_operating_system_may_have_drawn() -> None:
    drawn = [replace(run(syncs=n), unseeded="a.py:1 draws") for n in (0, 1)]

    few, many = (judge_call([(drawn[0], drawn[1])] * n, WHOLE) for n in (2, 8))

    assert (few.settled, few.is_worse, few.is_inconclusive) == (False, False, True)
    assert (many.settled, many.is_worse) == (True, True)


def test_without_a_time_an_exact_change_takes_a_second_pair() -> None:
    pair = (run(syncs=0), run(syncs=1))

    first, second = judge_call([pair], WHOLE), judge_call([pair] * 2, WHOLE)

    assert (first.settled, second.settled) == (False, True)
    assert (second.no_time, second.lost) == ("it has no clock", False)
    assert judge_call([(pair[0], pair[0])], WHOLE).settled


def test_a_time_that_is_none_is_no_evidence() -> None:
    change = judge_call([(run(10.0), run(0.0))], WHOLE)

    assert (change.time, change.no_time) == (None, "not a time: 0.0")
    assert change.is_inconclusive


def test_a_time_that_a_run_has_lost_is_inconclusive() -> None:
    lost = a_measurement(None)
    said = replace(lost, missed={"step_ms": "the profiler saw no kernel"})

    changes = [judge_call([(run(10.0), one)], WHOLE) for one in (lost, said)]

    assert [change.no_time for change in changes] == [
        "no time was measured",
        "the profiler saw no kernel",
    ]
    assert all(change.is_inconclusive for change in changes)


def test_a_metric_of_one_side_alone_is_not_compared() -> None:
    assert judge_call([(run(syncs=0), run(ops=3))], WHOLE).exact == ()


def disturbed(one: Measurement) -> Measurement:
    return replace(one, dirty=("throttled",))


def test_pairs_that_were_disturbed_blame_nobody() -> None:
    calm, slow = run(10.0), run(20.0)
    pairs = [(calm, disturbed(slow)), (disturbed(calm), slow), (calm, slow)]

    more, ended = judge_call(pairs, WHOLE), judge_call(pairs, WHOLE, last=True)

    assert (more.settled, more.is_worse) == (False, False)
    assert ended.is_inconclusive
    assert ended.time is not None
    assert ended.time.why == "2 of 3 pairs were disturbed: throttled"


@pytest.mark.parametrize(
    ("factor", "answer"), [(30.0, Answer.SLOWER), (3.0, Answer.INCONCLUSIVE)]
)
def test_more_than_a_disturbance_adds_is_blamed_next_to_it(
    factor: float, answer: Answer
) -> None:
    def busy(ms: float) -> Measurement:
        return replace(disturbed(run(ms)), unwaited={"step_ms": ms * 0.9})

    pairs = [(busy(10.0 + n / 9), busy(factor * (10.0 + n / 7))) for n in range(8)]

    ended = judge_call(pairs, WHOLE, last=True)

    assert ended.time is not None
    assert ended.time.answer is answer, ended.time.why
    assert ended.is_worse == (answer is Answer.SLOWER)
    assert "throttled" in ended.time.why


def test_clean_pairs_decide_next_to_disturbed_ones() -> None:
    calm = run(10.0)
    pairs = [(calm, calm)] * 3

    change = judge_call([(calm, disturbed(run(20.0))), *pairs], WHOLE)

    assert change.time is not None
    assert change.time.answer is Answer.SAME
    assert (change.time.pairs, change.pairs) == (3, 4)
