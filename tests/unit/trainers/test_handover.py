"""A loop and what measures it take turns, and neither is left waiting."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest

from pytest_gpuperf.devices.base import STEP_RANGE
from pytest_gpuperf.devices.sentinels import run_queue_wait_ns
from pytest_gpuperf.devices.step_thread import PROC_SELF, STEPS, THREAD_SELF
from pytest_gpuperf.errors import ErrorId, StepError
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.trainers.handover import LoopMeasured, Steps


def plainly(act: Callable[[], object]) -> object:
    return act()


def run(measure: Callable[[Subject], object], most: int | None = None) -> list[int]:
    """The numbers of the steps that a loop of at most *most* began."""
    begun: list[int] = []
    with Steps(measure, plainly) as step:
        for number in count() if most is None else range(most):
            begun.append(number)
            step()
    return begun


def test_a_loop_runs_exactly_the_steps_that_are_asked_for() -> None:
    def measure(subject: Subject) -> None:
        for _ in range(3):
            subject.step()

    assert run(measure) == [0, 1, 2]


def test_the_steps_of_a_round_run_without_a_change_of_threads() -> None:
    calls = []

    def measure(subject: Subject) -> None:
        for arguments in subject.batch(50):
            calls.append(arguments)
            subject.step(*arguments)
        subject.run_once()

    assert len(run(measure)) == 51
    assert calls == [(50,)]


def test_between_two_steps_the_loop_does_nothing() -> None:
    seen: list[int] = []
    begun: list[int] = []

    def measure(subject: Subject) -> None:
        for _ in range(4):
            subject.step()
            seen.append(len(begun))

    with Steps(measure, plainly) as step:
        while True:
            begun.append(1)
            step()

    assert seen == [1, 2, 3, 4]


def test_the_loop_keeps_its_thread_and_does_there_what_a_device_asks_for() -> None:
    threads: dict[str, int] = {}

    def measure(subject: Subject) -> None:
        subject.step()
        threads["measures"] = threading.get_ident()
        threads["asked"] = STEPS.call(threading.get_ident)
        threads["named"] = STEPS.ident

    with Steps(measure, plainly) as step:
        while True:
            threads["loop"] = threading.get_ident()
            step()

    loop = threading.get_ident()
    assert threads.pop("measures") != loop
    assert set(threads.values()) == {loop}


def test_a_context_is_entered_and_left_on_the_thread_of_the_loop() -> None:
    events: list[tuple[str, int]] = []

    @contextmanager
    def context() -> object:  # type: ignore[misc]
        events.append(("in", threading.get_ident()))
        try:
            yield 7
        finally:
            events.append(("out", threading.get_ident()))

    def measure(subject: Subject) -> None:
        with STEPS.inside(context()) as entered:
            assert entered == 7
            subject.step()

    run(measure)

    assert events == [("in", threading.get_ident()), ("out", threading.get_ident())]


def test_a_context_may_take_an_error_away_as_in_any_block() -> None:
    @contextmanager
    def forgiving() -> object:  # type: ignore[misc]
        with suppress(KeyError):
            yield

    def measure(subject: Subject) -> None:
        subject.step()
        with STEPS.inside(forgiving()):
            raise KeyError
        with STEPS.inside(forgiving()):
            raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        run(measure)


def test_without_a_loop_the_thread_of_the_steps_is_the_one_that_asks() -> None:
    assert STEPS.ident == threading.get_ident()
    assert STEPS.call(threading.get_ident) == threading.get_ident()
    assert STEPS.proc == THREAD_SELF


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no /proc")
def test_what_a_thread_waited_for_a_core_is_that_of_the_loops_thread() -> None:
    places: list[Path] = []
    waits: list[int | None] = []

    def measure(subject: Subject) -> None:
        subject.step()
        places.append(STEPS.proc)
        waits.append(run_queue_wait_ns())

    run(measure)

    assert places == [PROC_SELF / "task" / str(threading.get_native_id())]
    assert waits[0] is not None


def test_a_loop_that_ends_too_early_says_after_how_many_steps() -> None:
    def measure(subject: Subject) -> None:
        while True:
            subject.step()

    with pytest.raises(StepError, match=r"ended after 3 steps, .* \[GP311\]"):
        run(measure, most=3)
    with pytest.raises(StepError, match="ended after 1 step, and"):
        run(measure, most=1)


def test_an_early_end_within_a_round_is_one_as_well() -> None:
    def measure(subject: Subject) -> None:
        for arguments in subject.batch(10):
            subject.step(*arguments)

    with pytest.raises(StepError, match="ended after 4 steps"):
        run(measure, most=4)


def test_an_error_of_the_loop_reaches_what_measures_and_then_the_test() -> None:
    heard: list[BaseException] = []

    def measure(subject: Subject) -> None:
        try:
            while True:
                subject.step()
        except ValueError as error:
            heard.append(error)
            raise

    def break_down() -> None:
        with Steps(measure, plainly) as step:
            step()
            msg = "mine"
            raise ValueError(msg)

    with pytest.raises(ValueError, match="mine") as caught:
        break_down()
    assert heard == [caught.value]
    # No frame of the other thread: the user's own come first and last.
    names = [entry.name for entry in caught.traceback]
    assert names[-1] == "break_down"


def test_an_error_that_measuring_survives_is_the_tests_all_the_same() -> None:
    def measure(subject: Subject) -> None:
        for _ in range(3):
            with pytest.raises(ValueError, match="mine"):
                subject.step()

    def break_down() -> None:
        with Steps(measure, plainly):
            msg = "mine"
            raise ValueError(msg)

    with pytest.raises(ValueError, match="mine"):
        break_down()


def test_an_error_of_measuring_ends_the_loop_and_passes_the_guard() -> None:
    guarded: list[str] = []

    def guard(act: Callable[[], object]) -> object:
        try:
            return act()
        except StepError as error:
            guarded.append(str(error))
            raise

    def measure(subject: Subject) -> None:
        subject.step()
        msg = "no such step"
        raise StepError(msg, ErrorId.GP301)

    def loop() -> None:
        with Steps(measure, guard) as step:
            while True:
                step()

    with pytest.raises(StepError):
        loop()
    assert guarded == ["no such step [GP301]"]


def test_what_is_refused_before_the_first_step_does_not_run_the_block() -> None:
    ran: list[str] = []

    def measure(subject: Subject) -> None:
        raise KeyError

    with pytest.raises(KeyError), Steps(measure, plainly):
        ran.append("the block")

    assert ran == []


def test_a_loop_that_goes_on_after_errors_ends_when_it_is_measured() -> None:
    begun: list[int] = []

    def measure(subject: Subject) -> None:
        subject.step()

    with Steps(measure, plainly) as step:
        for number in range(10):
            begun.append(number)
            try:
                step()
            except Exception:  # noqa: BLE001, S112 - as careless programs do
                continue

    assert begun == [0]
    assert not issubclass(LoopMeasured, Exception)


def test_a_step_inside_a_step_is_measured_nowhere_else() -> None:
    """What the loop itself asks the thread of the steps for happens at once."""
    seen: list[int] = []

    def measure(subject: Subject) -> None:
        subject.step()

    with Steps(measure, plainly) as step:
        while True:
            seen.append(STEPS.call(threading.get_ident))
            step()

    assert seen == [threading.get_ident()]


@pytest.mark.skipif(
    not hasattr(signal, "raise_signal"), reason="needs to interrupt itself"
)
def test_an_interrupt_ends_both_threads() -> None:
    before = threading.active_count()

    def measure(subject: Subject) -> None:
        subject.step()
        STEPS.call(lambda: signal.raise_signal(signal.SIGINT))
        subject.step()

    with pytest.raises(KeyboardInterrupt):
        run(measure)

    assert threading.active_count() == before


def test_a_step_runs_between_two_profiles_so_that_no_range_is_in_both() -> None:
    pytest.importorskip("torch")
    from pytest_gpuperf.devices.profiler import record_trace

    traces = []

    def measure(subject: Subject) -> None:
        traces.extend(
            record_trace(subject.step, [(), ()], cuda=False) for _ in range(2)
        )

    assert len(run(measure)) == 2 * (1 + 2)
    for trace in traces:
        assert len([e for e in trace if e.get("name") == STEP_RANGE]) == 2
