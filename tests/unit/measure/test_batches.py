"""The batches of a loader, epoch after epoch, and the time that they were waited for."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any

import pytest
from builders import a_measurement
from scripted_device import ScriptedDevice

from pytest_gpuperf.errors import ErrorId, StepError
from pytest_gpuperf.measure.dataloader import (
    SINGLE,
    LoaderWait,
    _on_openings,
    loader_wait,
    loop_over,
    with_loader_wait,
)
from pytest_gpuperf.measure.phases import measure
from pytest_gpuperf.measure.plan import MeasurePlan
from pytest_gpuperf.measure.step import MOST_TOGETHER, Batches, Fetched
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.measurement import Distribution, Measurement


MS = 10**6


def clocked(loader: Iterable[object], took_ms: Iterable[int]) -> Batches:
    """Batches of *loader*, each of which takes what the next of *took_ms* says."""
    times = iter(took_ms)
    batches = Batches(loader)
    batches.time_with(lambda fetch: lambda: (fetch(), next(times) * MS))
    return batches


class Loader:
    """Three batches an epoch; remembers which of its iterators are alive."""

    def __init__(self, workers: int = 0) -> None:
        self.num_workers = workers
        self.alive = 0
        self.most_alive = 0

    def __iter__(self) -> Iterator[str]:
        self.alive += 1
        self.most_alive = max(self.alive, self.most_alive)
        try:
            yield from "abc"
        finally:
            self.alive -= 1


def test_an_epoch_follows_the_other_and_their_first_batches_stand_apart() -> None:
    batches = clocked([1, 2, 3], [70, 10, 20, 90, 30])

    taken = [batches.take() for _ in range(5)]

    assert taken == [1, 2, 3, 1, 2]
    assert batches.openings_ns == [70 * MS, 90 * MS]
    assert batches.fetched == Fetched(batches=3, waited_ns=60 * MS, opening_ns=160 * MS)


def test_one_epoch_is_over_before_the_next_begins_and_the_last_when_it_is_closed() -> (
    None
):
    loader = Loader()
    batches = Batches(loader)

    taken = "".join(str(batches.take()) for _ in range(8))
    alive = loader.alive
    batches.close()

    assert taken == "abcabcab"
    assert (alive, loader.most_alive, loader.alive) == (1, 1, 0)


@pytest.mark.parametrize(
    ("workers", "together"), [(0, 1), (1, 1), (4, 4), (96, MOST_TOGETHER)]
)
def test_as_many_batches_belong_together_as_there_are_workers(
    workers: int, together: int
) -> None:
    assert Batches(Loader(workers)).together == together


def test_a_loader_that_says_nothing_of_workers_has_none() -> None:
    loader = Loader()
    loader.num_workers = "many"  # type: ignore[assignment]

    assert [Batches(given).together for given in (loader, [1], count())] == [1, 1, 1]


CALL = "gpuperf.loader(loader, step)"
ENDED = (
    "and gave none when it was iterated again; pass what begins anew, such as a "
    "DataLoader or a list, or an iterator that never ends"
)


@pytest.mark.parametrize(
    ("loader", "taken", "message"),
    [
        ([], 0, "the list gave no batch at all"),
        (iter([1]), 1, f"the list_iterator ended after 1 batch {ENDED}"),
        ((n for n in range(3)), 3, f"the generator ended after 3 batches {ENDED}"),
    ],
    ids=["empty", "one", "three"],
)
def test_a_loader_without_batches_is_refused(
    loader: Iterable[object], taken: int, message: str
) -> None:
    batches = Batches(loader)
    for _ in range(taken):
        batches.take()

    with pytest.raises(StepError) as caught:
        batches.take()

    assert caught.value.text == f"{CALL}: {message}"
    assert caught.value.error_id is ErrorId.GP302


def test_a_step_is_given_the_batch_as_it_is() -> None:
    subject = loop_over([(1, 2)], lambda batch: batch)

    assert subject.run_once() == (1, 2)


def indexed() -> object:
    class Indexed:
        def __getitem__(self, index: int) -> int:
            return (4, 5)[index]

    return Indexed()


def test_what_has_items_alone_is_iterated_by_its_numbers() -> None:
    subject = loop_over(indexed(), lambda batch: batch)

    assert [subject.step() for _ in range(3)] == [4, 5, 4]


def of_two(images: object, labels: object) -> None: ...


ONE_ARGUMENT = (
    "expected one argument: the batch as the loader gives it; unpack it inside the step, "
    "or pass lambda batch: step(*batch)"
)


@pytest.mark.parametrize(
    ("loader", "step", "message"),
    [
        (
            lambda: [1],
            print,
            (
                "expected a loader that can be iterated, such as a DataLoader, found one of "
                "type function; the loader comes first, then the step"
            ),
        ),
        (
            [1],
            3,
            (
                "expected a function of one batch as the step, found 3 of type int; pass the "
                "function itself, without calling it"
            ),
        ),
        (
            [1],
            of_two,
            (
                "the step takes (images: 'object', labels: 'object') -> 'None', "
                f"{ONE_ARGUMENT}"
            ),
        ),
        ([1], lambda: None, f"the step takes (), {ONE_ARGUMENT}"),
    ],
    ids=["no loader", "no step", "two arguments", "none"],
)
def test_what_is_no_loop_is_refused(loader: object, step: object, message: str) -> None:
    with pytest.raises(StepError) as caught:
        loop_over(loader, step)

    assert caught.value.text == f"{CALL}: {message}"


@pytest.mark.parametrize("step", [print, dict, lambda *batch: batch])
def test_what_takes_a_batch_or_does_not_say_is_accepted(
    step: Callable[[object], object],
) -> None:
    assert loop_over([[(1, 2)]], step).batches is not None


@pytest.mark.parametrize(
    ("before", "after", "wall_ms", "share"),
    [
        (Fetched(), Fetched(batches=4, waited_ns=30 * MS), 120, 25.0),
        (
            Fetched(batches=2, waited_ns=50 * MS, opening_ns=7 * MS),
            Fetched(batches=6, waited_ns=60 * MS, opening_ns=87 * MS),
            100,
            50.0,
        ),
        (Fetched(batches=2), Fetched(batches=2, opening_ns=8 * MS), 10, None),
        (Fetched(), Fetched(batches=1, opening_ns=8 * MS), 8, None),
    ],
    ids=["in an epoch", "over its end", "first batches alone", "nothing else"],
)
def test_the_share_is_that_of_the_time_next_to_the_opening_of_epochs(
    before: Fetched, after: Fetched, wall_ms: int, share: float | None
) -> None:
    found = loader_wait(before, after, wall_ms * MS)

    assert (found and found.percent) == share


@pytest.mark.parametrize(
    ("wait", "share"),
    [
        (LoaderWait(batches=10, waited_ms=60, loop_ms=110), 60.0),
        (LoaderWait(batches=9, waited_ms=54, loop_ms=104), 57.4468),
        (LoaderWait(batches=10, waited_ms=105, loop_ms=110), 100.0),
        (LoaderWait(batches=10, waited_ms=0, loop_ms=110), 0.0),
    ],
    ids=["an epoch", "over its end", "longer than the rest", "not at all"],
)
def test_the_share_leaves_out_how_long_the_gpu_works_at_the_end_of_a_round(
    wait: LoaderWait, share: float
) -> None:
    """Ten steps of 10 ms, of which one alone takes 20."""
    assert wait.without_fill(20, 10).percent == pytest.approx(share, rel=1e-4)


def measured_loop(loader: Iterable[object], seconds: float = 60) -> Measurement:
    script = {"step": {"step_ms": 30.0, "fetch_ms": 10.0}}
    subject = loop_over(loader, lambda batch: batch)
    device = ScriptedDevice(script, run=0)
    return measure(
        device, subject, MeasurePlan(test="step", seconds=seconds)
    ).measurement


def test_a_loop_is_measured_like_a_step_and_its_wait_next_to_it() -> None:
    measurement = measured_loop(count())

    assert measurement.times["step_ms"].q50 == 40.0
    assert measurement.times["loader_wait_pct"] == Distribution(
        q10=25.0, q25=25.0, q50=25.0, mean=25.0, samples=20
    )
    assert measurement.samples["loader_wait_pct"] == (25.0,) * 20
    assert measurement.remarks == ()


def test_a_loader_of_single_batches_has_no_share() -> None:
    measurement = measured_loop([1])

    assert "loader_wait_pct" not in measurement.times
    assert measurement.unmeasured["loader_wait_pct"] == SINGLE
    assert measurement.times["step_ms"].q50 == 40.0


def test_a_loop_that_ran_once_has_no_share_for_want_of_time() -> None:
    measurement = measured_loop(count(), seconds=0.05)

    assert measurement.missed["loader_wait_pct"] == (
        "the time cap was reached before this phase; raise --gpuperf-seconds"
    )


@pytest.mark.parametrize(
    ("took_ms", "remarks"),
    [
        (19, ()),
        (
            812,
            (
                (
                    "the first batch of an epoch takes 812 ms, which is not counted in "
                    "loader_wait_pct"
                ),
            ),
        ),
    ],
)
def test_a_first_batch_that_takes_long_is_shown(
    took_ms: int, remarks: tuple[str, ...]
) -> None:
    batches = clocked([1, 2], [took_ms])
    batches.take()
    measurement = a_measurement(on=DeviceKind.CPU)
    waits = [LoaderWait(batches=1, waited_ms=3.0, loop_ms=100.0)]

    assert with_loader_wait(measurement, batches, waits).remarks == remarks


@pytest.mark.parametrize(
    ("loader", "is_said"),
    [
        ({"num_workers": 1}, True),
        ({"num_workers": 1, "persistent_workers": True}, False),
        ({"num_workers": 0}, False),
        ({}, False),
    ],
)
def test_workers_that_each_epoch_starts_anew_are_said_with_their_share(
    loader: dict[str, Any],
    is_said: bool,  # noqa: FBT001
) -> None:
    batches = clocked(type("Loader", (list,), loader)("ab"), [90, 1, 90, 1, 90])
    for _ in range(5):
        batches.take()

    (remark,) = _on_openings(batches, a_measurement(on=DeviceKind.CPU))

    share = 100 * 270 / (270 + 2 * 10)
    said = f": each starts 1 worker anew, {share:.0f} % of the loop's time; "
    assert (f"{said}persistent_workers=True keeps them" in remark) is is_said
    assert ("anew" in remark) is is_said


def test_a_loader_dies_with_its_last_name_once_its_loop_is_closed() -> None:
    """torch waits five seconds for each worker of a loader that the collector finds."""

    class Loader(list[int]):
        """A list that can be watched."""

    loader = Loader([1, 2, 3])
    watch = weakref.ref(loader)
    subject = loop_over(loader, lambda batch: batch)
    subject.run_once()

    gc.disable()
    try:
        subject.close()
        del loader, subject
        is_gone = watch() is None
    finally:
        gc.enable()

    assert is_gone
