"""Two steps in turns: which blocks are timed, in which order, and what comes of them."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from scripted_steps import Clockwork

from pytest_gpuperf.compare_steps.measure import MOST_REPEATS, compare_steps
from pytest_gpuperf.errors import ErrorId, PreflightError, StepError, UsageError
from pytest_gpuperf.measure.step import MOST_PREPARED, Subject
from pytest_gpuperf.model.ab import AbResult, Answer


pytest.importorskip("torch")

WARM_STEPS = 18
"""Steps a steady side spends before the first quad: two, and two blocks of warm-up."""


class Stage:
    """A device and two steps on it, which take what they are shown and note their turn."""

    def __init__(
        self, before_ms: Callable[[], float], after_ms: Callable[[], float]
    ) -> None:
        self.device = Clockwork(lambda _: 0.0)
        self.played: list[str] = []
        self.rounds: list[str] = []
        self.before = Subject(step=self._step("a", before_ms))
        self.after = Subject(step=self._step("b", after_ms))

    def _step(self, name: str, step_ms: Callable[[], float]) -> Callable[[], None]:
        def step() -> None:
            self.played.append(name)
            self.device.steps += 1
            self.device._clock_ns += round(step_ms() * 1e6)

        return step

    def compare(self, seconds: float = 60.0, seed: int = 0) -> AbResult:
        return compare_steps(
            self.device,
            self.before,
            self.after,
            seconds=seconds,
            tolerance=0.01,
            detect=0.03,
            seed=seed,
        )

    @property
    def quads(self) -> str:
        """Steps after warm-up."""
        return "".join(self.played[2 * WARM_STEPS :])


def steadily(step_ms: float) -> Callable[[], float]:
    return lambda: step_ms


def noisily(step_ms: float, seed: int, sigma: float = 0.004) -> Callable[[], float]:
    noise = random.Random(seed)  # noqa: S311 - noise, no secret
    return lambda: step_ms * noise.gauss(1.0, sigma)


def test_a_step_that_is_five_percent_slower_is_slower_with_its_numbers() -> None:
    compared = Stage(noisily(10.0, 1), noisily(10.5, 2)).compare()

    assert compared == AbResult(
        answer=Answer.SLOWER,
        why=(
            "after is slower by more than 1 %: time +4.7 %, 95 % interval +4.4 % to "
            "+5.1 %; label-swap test over 14 quads"
        ),
        ratio=pytest.approx(1.047, abs=5e-4),
        low=pytest.approx(1.044, abs=5e-4),
        high=pytest.approx(1.051, abs=5e-4),
        before_ms=pytest.approx(9.97, abs=0.02),
        after_ms=pytest.approx(10.45, abs=0.02),
        p_value=2 * 2**-14,
        smallest=pytest.approx(0.02, abs=0.005),
        quads=14,
        steps=56,
    )


def test_the_speedup_is_the_time_before_divided_by_the_time_after() -> None:
    compared = Stage(noisily(30.0, 1), noisily(10.0, 2)).compare()

    assert compared.answer is Answer.FASTER
    assert compared.speedup == pytest.approx(3.0, rel=0.01)
    assert compared.least_speedup < compared.speedup < compared.most_speedup


def test_a_step_against_its_like_is_the_same() -> None:
    compared = Stage(noisily(10.0, 1), noisily(10.0, 2)).compare()

    assert compared.answer is Answer.SAME
    assert compared.why == (
        "a change of 3 % or more is ruled out: time -0.3 %, 95 % interval -0.6 % to "
        "+0.1 %; label-swap test over 14 quads"
    )


def test_it_is_followed_before_each_quad() -> None:
    stage = Stage(steadily(20.0), steadily(20.0))
    said: list[str] = []

    found = compare_steps(
        stage.device,
        stage.before,
        stage.after,
        seconds=60.0,
        tolerance=0.01,
        detect=0.03,
        follow=said.append,
    )

    assert said == [f"quad {n + 1}" for n in range(found.quads)]
    assert found.quads >= 14


def test_the_same_seed_plays_and_says_the_same() -> None:
    stages = [Stage(noisily(10.0, 3), noisily(10.1, 4)) for _ in range(3)]

    first, again, other = (
        stage.compare(seed=seed) for stage, seed in zip(stages, (7, 7, 8), strict=True)
    )

    assert first == again
    assert stages[0].played == stages[1].played
    assert stages[0].played != stages[2].played
    assert other.answer is first.answer


def test_quads_stand_in_either_order_with_an_unmeasured_step_after_each_switch() -> (
    None
):
    stage = Stage(steadily(10.0), steadily(11.0))

    compared = stage.compare()

    assert compared.answer is Answer.SLOWER
    assert compared.steps == 4 * compared.quads == 224
    played = [stage.quads[at : at + 7] for at in range(0, len(stage.quads), 7)]
    assert set(played) == {"aabbbaa", "bbaaabb"}
    assert 0.3 < played.count("aabbbaa") / len(played) < 0.7
    assert len(played) == compared.quads


def test_short_steps_run_in_blocks_of_eight_milliseconds_alike_on_both_sides() -> None:
    stage = Stage(noisily(1.0, 1), noisily(1.3, 2))

    compared = stage.compare()

    assert compared.steps == compared.quads * 4 * 8
    before = [len(run) for run in stage.quads.split("b") if run]
    assert {8 + 1, 2 * 8 + 1, 2 * (8 + 1)} >= set(before)


@pytest.mark.parametrize(
    ("before_ms", "after_ms", "steps"),
    [
        pytest.param(1.0, 10.0, 8, id="the faster side fills its block"),
        pytest.param(1.0, 50.0, 2, id="the slower side keeps its block short"),
        pytest.param(1.0, 400.0, 1, id="a long step runs alone"),
    ],
)
def test_unlike_sides_run_the_same_number_of_steps_too(
    before_ms: float, after_ms: float, steps: int
) -> None:
    """What differs on a busy machine may be the warm-up's luck and not the steps."""
    compared = Stage(noisily(before_ms, 1), noisily(after_ms, 2)).compare()

    assert compared.answer is Answer.SLOWER
    assert compared.steps == compared.quads * 4 * steps
    assert compared.speedup == pytest.approx(before_ms / after_ms, rel=0.01)


def test_setup_makes_arguments_outside_the_timed_blocks() -> None:
    stage = Stage(noisily(0.1, 1), noisily(0.1, 2))
    made: list[int] = []

    def setup() -> tuple[()]:
        made.append(stage.device.steps)
        stage.device._clock_ns += 10**6
        return ()

    stage.before = replace(stage.before, setup=setup)
    compared = stage.compare()

    assert compared.before_ms == pytest.approx(0.1, rel=0.01)
    assert compared.steps == compared.quads * 4 * MOST_PREPARED
    assert len(made) == stage.played.count("a")


def test_the_device_is_waited_for_at_the_ends_of_blocks_only() -> None:
    stage = Stage(noisily(1.0, 1), noisily(1.0, 2))
    stage.compare()
    waited, steps = stage.device.synchronized, len(stage.played)

    warm_up = 2 * 2 * WARM_STEPS
    assert waited <= warm_up + 2 * 4 * (steps // (4 * 5 + 3))


def test_a_disturbed_quad_is_repeated_whole() -> None:
    stage = Stage(noisily(10.0, 1), noisily(10.0, 2))
    at = 2 * WARM_STEPS + 7 + 4
    stage.device.troubles = lambda steps: "hot" if steps == at else None

    compared = stage.compare()

    assert compared.answer is Answer.SAME
    assert (compared.quads, len(stage.quads)) == (14, 15 * 7)


def test_the_machine_is_looked_at_once_a_block() -> None:
    """A look costs what NVML takes, and what a quad begins with is in its first block."""
    stage = Stage(noisily(10.0, 1), noisily(10.0, 2))
    looks: list[int] = []
    stage.device.troubles = looks.append

    compared = stage.compare()

    assert len(looks) == 1 + 4 * compared.quads


def test_what_disturbed_the_machine_before_the_first_quad_is_no_fault_of_it() -> None:
    stage = Stage(noisily(10.0, 1), noisily(10.0, 2))
    stage.device.troubles = lambda steps: "hot" if steps == 2 * WARM_STEPS else None

    compared = stage.compare()

    assert (compared.quads, len(stage.quads)) == (14, 14 * 7)


def test_a_machine_that_stays_disturbed_says_why_nothing_can_be_said() -> None:
    stage = Stage(noisily(10.0, 1), noisily(10.0, 2))
    stage.device.troubles = lambda _: "the GPU is throttling"

    compared = stage.compare()

    assert compared == AbResult(answer=Answer.INCONCLUSIVE, why="the GPU is throttling")
    assert len(stage.quads) == 7 * (MOST_REPEATS + 1)


def test_clean_quads_before_a_disturbance_are_judged() -> None:
    stage = Stage(noisily(10.0, 1), noisily(10.0, 2))
    stage.device.troubles = lambda n: "hot" if n > 2 * WARM_STEPS + 7 * 3 else None

    compared = stage.compare()

    assert compared.quads == 3
    assert compared.why == (
        "hot; neither at most 1 % nor 3 % or more is ruled out: time +0.1 %, too few "
        "for an interval; label-swap test over 3 quads, too few to blame"
    )


def test_the_time_cap_ends_the_quads_and_those_there_are_get_a_last_look() -> None:
    stage = Stage(steadily(1000.0), steadily(1000.0))

    compared = stage.compare(seconds=193)

    assert (compared.answer, compared.quads) == (Answer.SAME, 22)
    assert stage.device.now_ns() <= 193e9


def test_a_cap_that_leaves_too_few_quads_says_so() -> None:
    compared = Stage(noisily(1000.0, 1), noisily(1500.0, 2)).compare(seconds=90)

    assert compared.answer is Answer.INCONCLUSIVE
    assert compared.quads == 5
    assert compared.why == (
        "the time cap left room for 5 of at most 224 quads; neither at most 1 % nor "
        "3 % or more is ruled out: time +49.9 %, too few for an interval; label-swap "
        "test over 5 quads, too few to blame"
    )


def test_a_step_of_thirty_seconds_leaves_no_quad() -> None:
    compared = Stage(steadily(30_000.0), steadily(30_000.0)).compare()

    assert compared.why == "the time cap left room for no quad of blocks"
    assert (compared.answer, compared.speedup) == (Answer.INCONCLUSIVE, None)


def test_a_step_that_takes_no_time_cannot_be_compared() -> None:
    with pytest.raises(StepError) as refused:
        Stage(steadily(0.0), noisily(10.0, 2)).compare()

    assert refused.value.error_id is ErrorId.GP303


def test_a_clock_that_goes_backwards_once_costs_a_quad() -> None:
    stage = Stage(noisily(10.0, 1), noisily(10.0, 2))
    back_at = 2 * WARM_STEPS + 10
    stage.before, stage.after = (
        Subject(step=backwards_at(back_at, stage, subject))
        for subject in (stage.before, stage.after)
    )

    compared = stage.compare()

    assert (compared.answer, compared.quads) == (Answer.SAME, 14)


def backwards_at(at: int, stage: Stage, subject: Subject) -> Callable[[], None]:
    def step() -> None:
        subject.step()
        if len(stage.played) == at:
            stage.device._clock_ns -= 10**9

    return step


def test_drift_and_neighbours_of_both_sides_are_no_change() -> None:
    shared = random.Random(5)  # noqa: S311 - noise, no secret
    drift = [1.0]

    def neighbour() -> float:
        drift[0] *= 1.0005
        return 10.0 * drift[0] * (1.5 if shared.random() < 0.1 else 1.0)

    compared = Stage(neighbour, neighbour).compare()

    assert compared.answer is Answer.SAME
    assert drift[0] > 1.05


def test_garbage_waits_while_quads_are_timed_and_young_cycles_go_between_them() -> None:
    stage = Stage(noisily(10.0, 1), noisily(10.0, 2))
    enabled: list[bool] = []
    alive: list[int] = []

    def littering() -> None:
        stage.before.step()
        cycle = Cycle()
        cycle.itself = cycle
        enabled.append(gc.isenabled())
        alive.append(Cycle.alive)

    compare_steps(
        stage.device,
        Subject(step=littering),
        stage.after,
        seconds=60,
        tolerance=0.01,
        detect=0.03,
    )

    assert set(enabled[WARM_STEPS:]) == {False}
    assert gc.isenabled()
    assert max(alive[WARM_STEPS + 8 :]) <= 4


class Cycle:
    """An object that only the garbage collector frees."""

    alive = 0
    itself: object

    def __init__(self) -> None:
        Cycle.alive += 1

    def __del__(self) -> None:
        Cycle.alive -= 1


def test_what_a_step_raises_comes_through_and_garbage_is_collected_again() -> None:
    stage = Stage(noisily(10.0, 1), noisily(10.0, 2))

    def failing() -> None:
        stage.after.step()
        if len(stage.quads) > 17:
            raise ZeroDivisionError

    stage.before = Subject(step=failing)

    with pytest.raises(ZeroDivisionError):
        stage.compare()

    assert gc.isenabled()


def test_a_machine_that_cannot_be_measured_is_refused_before_any_step() -> None:
    stage = Stage(noisily(10.0, 1), noisily(10.0, 2))

    def refuse() -> None:
        msg = "a profiler is active"
        raise PreflightError(msg, ErrorId.GP405)

    stage.device.preflight = refuse

    with pytest.raises(PreflightError, match="GP405"):
        stage.compare()

    assert stage.played == []


def test_limits_are_refused_before_any_step() -> None:
    stage = Stage(noisily(10.0, 1), noisily(10.0, 2))

    with pytest.raises(UsageError) as refused:
        compare_steps(
            stage.device,
            stage.before,
            stage.after,
            seconds=60,
            tolerance=-0.01,
            detect=0.03,
        )

    assert refused.value.error_id is ErrorId.GP221
    assert stage.played == []


def test_orders_follow_each_other_by_chance() -> None:
    """Alternating orders beat in step with a scheduler and blame an unchanged step."""
    stage = Stage(steadily(10.0), steadily(10.0))

    stage.compare()

    firsts = stage.quads[::7]
    assert 0.3 < sum(a == b for a, b in pairwise(firsts)) / len(firsts) < 0.7
