"""Pairs of fresh processes: who runs when, how often, and what is left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from builders import a_measurement, a_result

from pytest_gpuperf.compare_commits.pairs import Both, run_pairs
from pytest_gpuperf.model.ab import Comparison
from pytest_gpuperf.model.budget import Tolerance
from pytest_gpuperf.model.environment import DeviceKind, Environment, Hardware
from pytest_gpuperf.model.metrics import SYNCS
from pytest_gpuperf.model.run import ComparedCall, Ending, TestResult
from pytest_gpuperf.runner.screening import Group


CUDA = Environment(hardware=Hardware(kind=DeviceKind.CUDA, name=""))
NOISY = (1.0, 1.1, 0.9, 1.2, 0.8, 1.0, 1.1, 0.9)


class Runs:
    """Two sides whose runs take the times that are shown, and who ran when."""

    def __init__(self, seconds: float = 1.0) -> None:
        self.order: list[str] = []
        self.said: list[str] = []
        self._seconds = seconds

    def pairs(
        self,
        before: Mapping[str, object],
        after: Mapping[str, object],
        *groups: Group,
        seconds: float = 60.0,
        timed: bool = True,
    ) -> list[Both]:
        return run_pairs(
            groups,
            self._side("b", before),
            self._side("a", after),
            project=Tolerance(),
            seconds=seconds,
            announce=self.said.append,
            timed=timed,
            renew=lambda number: self.order.append(f"renewed {number}"),
        )

    def _side(self, name: str, found: Mapping[str, object]) -> object:
        def run(group: Group, number: int) -> Sequence[TestResult]:
            self.order.append(f"{name}{number}:{','.join(group)}")
            return [self._result(t, found[t], number) for t in group if t in found]

        return run

    def _result(self, test: str, found: object, number: int) -> TestResult:
        if isinstance(found, TestResult):
            return replace(found, seconds=self._seconds)
        assert isinstance(found, tuple)
        measured = a_measurement(
            10.0 * found[number % len(found)], test=test, environment=CUDA
        )
        return a_result(measured, test=test, seconds=self._seconds)


def ended(ending: Ending, text: str = "", **ends: str) -> TestResult:
    return a_result(test="t", ending=ending, text=text, **ends)


def test_the_sides_take_turns_and_the_first_changes() -> None:
    runs = Runs()

    (found,) = runs.pairs({"t": (1.0,)}, {"t": (1.0,)}, ("t",))

    assert runs.order == ["b0:t", "a0:t", "a1:t", "b1:t", "b2:t", "a2:t"]
    assert [call.pairs for call in found.judged(last=True)] == [3]
    assert runs.said == [
        *(f"pair {n} of at most 8: 1 test" for n in (1, 2, 3)),
        "compared in 3 pairs",
    ]


def test_all_tests_take_turns_and_only_inconclusive_ones_go_on() -> None:
    runs = Runs()
    before = {"calm": (1.0,), "noisy": (1.0,)}

    calm, noisy = runs.pairs(
        before, {"calm": (1.0,), "noisy": NOISY}, ("calm",), ("noisy",)
    )

    assert runs.order[:4] == ["b0:calm", "a0:calm", "b0:noisy", "a0:noisy"]
    assert (len(calm.after.results), len(noisy.after.results)) == (3, 8)
    assert runs.said[2:4] == [
        "pair 3 of at most 8: 2 tests",
        "pair 4 of at most 8: 1 test",
    ]


def test_a_change_is_confirmed_by_processes_with_nothing_in_common() -> None:
    runs = Runs()
    found = {"calm": (1.0,), "slow": (1.2,)}

    runs.pairs({"calm": (1.0,), "slow": (1.0,)}, found, ("calm",), ("slow",))

    renewed = [line for line in runs.order if line.startswith("renewed")]
    assert renewed == [f"renewed {number}" for number in (2, 3, 4)]


def test_tests_of_one_process_are_measured_together() -> None:
    runs = Runs()
    times = {"calm": (1.0,), "noisy": NOISY}

    runs.pairs({"calm": (1.0,), "noisy": (1.0,)}, times, ("calm", "noisy"))

    assert runs.order[-1] == "b7:calm,noisy"


def test_an_expensive_test_ends_after_three_pairs() -> None:
    runs = Runs(seconds=20.0)

    (found,) = runs.pairs({"t": (1.0,)}, {"t": NOISY}, ("t",), seconds=60.0)

    assert len(found.after.results) == 3
    (call,) = found.judged(last=True)
    assert call.is_inconclusive


@pytest.mark.parametrize("timed", [True, False])
def test_a_change_that_chance_may_choose_is_proven_whatever_it_takes(
    timed: bool,  # noqa: FBT001
) -> None:
    runs = Runs(seconds=60.0)
    draws = "train.py:12 reads a clock"
    sides = [
        {
            "t": a_result(
                replace(
                    a_measurement(
                        10.0, test="t", environment=CUDA, exact={SYNCS.name: n}
                    ),
                    unseeded=draws,
                ),
                test="t",
            )
        }
        for n in (1, 2)
    ]

    (both,) = runs.pairs(*sides, ("t",), seconds=60.0, timed=timed)

    (call,) = both.judged(last=True)
    assert (call.pairs, call.is_worse, call.is_inconclusive) == (8, True, False)
    assert (
        runs.said[5]
        == f"pair 6 of at most 8: 1 test; 5 of 5 agree, 8 are asked for, because {draws}"
    )


@pytest.mark.parametrize(
    ("before", "after", "why", "is_worse"),
    [
        ((1.0,), ended(Ending.FAILED, "long", headline="no"), "failed after: no", True),
        (
            (1.0,),
            ended(Ending.DIED, "killed by signal 9"),
            "could not be measured after: killed by signal 9",
            True,
        ),
        ((1.0,), ended(Ending.SKIPPED, "later"), "was skipped after: later", False),
        (ended(Ending.FAILED, "no"), (1.0,), "failed before: no", False),
        (
            ended(Ending.FAILED, "no"),
            ended(Ending.FAILED, "no"),
            "failed before and after: no",
            False,
        ),
        (
            ended(Ending.XFAILED),
            ended(Ending.FAILED, "no"),
            "was expected to fail and did before; failed after: no",
            False,
        ),
    ],
)
def test_a_test_that_does_not_pass_on_both_sides_is_given_up_at_once(
    before: object, after: object, why: str, *, is_worse: bool
) -> None:
    runs = Runs()

    (found,) = runs.pairs({"t": before}, {"t": after}, ("t",))

    assert runs.order == ["b0:t", "a0:t"]
    assert found.uncompared() == [Comparison(test="t", uncompared=why, broken=is_worse)]


def test_a_result_that_is_lost_is_a_broken_side() -> None:
    (found,) = Runs().pairs({"t": (1.0,)}, {}, ("t",))

    (lost,) = found.uncompared()
    assert lost.is_worse
    assert lost.uncompared == (
        "could not be measured after: the measuring process gave no result for this test"
    )


def test_a_call_of_one_side_alone_is_listed() -> None:
    runs = Runs()
    call = runs._result("t#extra", (1.0,), 0).calls
    more = a_result(test="t", calls=(*runs._result("t", (1.0,), 0).calls, *call))

    (found,) = runs.pairs({"t": (1.0,)}, {"t": more}, ("t",))

    assert [change.test for change in found.judged(last=True)] == ["t"]
    assert found.uncompared() == [Comparison(test="t#extra", uncompared="after only")]


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ((), "it never calls gpuperf(step)"),
        (
            (
                ComparedCall(
                    sides=Comparison(test="t"), after=a_measurement(1.0, test="t")
                ),
            ),
            "it calls only gpuperf.compare, which pytest --gpuperf judges",
        ),
    ],
)
def test_a_test_that_measures_no_step_is_listed_with_what_it_does_instead(
    made: tuple[ComparedCall, ...], why: str
) -> None:
    passed = replace(ended(Ending.PASSED), comparisons=made)

    (found,) = Runs().pairs({"t": passed}, {"t": passed}, ("t",))

    assert found.uncompared() == [Comparison(test="t", uncompared=why)]


def test_where_times_do_not_count_two_agreeing_pairs_are_one_too_many() -> None:
    runs = Runs()
    times = {"t": (1.0,)}

    (both,) = runs.pairs(times, times, ("t",), timed=False)

    (call,) = both.judged(last=True)
    assert (call.pairs, call.time, call.is_inconclusive) == (1, None, False)
