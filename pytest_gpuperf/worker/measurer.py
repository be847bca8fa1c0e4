"""Measures the calls of the fixture in a measuring process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import NoReturn
from unittest import SkipTest

import pytest

from ..compare_steps.isolation import Pair
from ..devices.base import Device, with_clock
from ..devices.preflight import Held
from ..errors import ErrorId, StepError
from ..judge.calls import asked_of, merged
from ..judge.readings import unreal_time
from ..marks import ranks_of, tolerances_of
from ..measure.plan import MeasuredStep, MeasurePlan
from ..measure.step import Subject
from ..model.ab import TrainingRecord
from ..model.budget import Budget, parse_budget
from ..model.measurement import Measurement
from ..model.metrics import limited_by
from ..model.run import ComparedCall, StepCall, TestResult, nodeid_of
from ..runner.request import RunRequest
from . import draws
from .fixture import Compared, FixtureCall, PlainRun
from .items import below, kept_budgets_of


# The key of a call, which distinguishes the calls of one test in baselines and reports.


def call_key(
    nodeid: str, name: str | None, taken: Sequence[str], comparisons: Collection[str]
) -> str:
    """Return the key of a measured call: the node id, and its name or number if needed.

    Raises ``StepError`` if a call has that *name* already.
    """
    key = f"{nodeid}#{name}" if name else nodeid
    if key not in taken and key not in comparisons:
        return key
    if name:
        _refuse_name(f"gpuperf(step, name={name!r})")
    return f"{nodeid}#{len(taken) + 1}"


def is_of(key: str, nodeid: str) -> bool:
    """Whether *key* is that of a call of a test."""
    return key == nodeid or key.startswith(f"{nodeid}#")


def comparison_key(nodeid: str, name: str | None, taken: Collection[str]) -> str:
    """Return the key of a comparison: ``#compare``, ``#compare2``, or its name.

    Raises ``StepError`` if a call has that *name* already.
    """
    if name is None:
        # One more number than keys are taken, so that one of them is always free.
        numbers = ("", *map(str, range(2, len(taken) + 3)))
        keys = (f"{nodeid}#compare{number}" for number in numbers)
        return next(key for key in keys if key not in taken)
    if f"{nodeid}#{name}" in taken:
        _refuse_name(f"gpuperf.compare(before, after, name={name!r})")
    return f"{nodeid}#{name}"


def _refuse_name(call: str) -> NoReturn:
    msg = f"{call}: this test has a call of that name already"
    raise StepError(msg, ErrorId.GP210)


# One call of ``gpuperf(step)``, measured as its device and its run ask.


def measured_call(device: Device, subject: Subject, plan: MeasurePlan) -> MeasuredStep:
    """Measure *subject* by *plan*; raises what the phases of its device raise."""
    # Imported when it is used: a process measures in one of both ways.
    if device.emulating is not None:
        from ..measure.emulated import audit

        return audit(device.emulating, subject, plan)
    from ..measure.phases import measure

    return measure(with_clock(device), subject, plan)


class Measuring:
    """Measures on an open *device* what *request* asks, and keeps every call by test."""

    def __init__(
        self,
        device: Device,
        request: RunRequest,
        follow: Callable[..., object] = lambda *_: None,
    ) -> None:
        """*follow* gets the key of each call, and again with each phase."""
        self._device = device
        self._request = request
        self._settings = request.settings
        self._follow = follow
        self._held = Held()
        self._calls: dict[str, list[StepCall]] = {}
        self._comparisons: dict[str, dict[str, ComparedCall]] = {}

    def torch_device(self) -> str:
        return self._device.torch_device

    def added_to(self, result: TestResult, test: str) -> TestResult:
        """Return *result* with what was measured of *test*."""
        return replace(
            result,
            calls=tuple(self._calls.get(test, ())),
            comparisons=tuple(self._comparisons.get(test, {}).values()),
        )

    def _keys(self, test: str) -> list[str]:
        """Return the keys of the calls of *test* that were measured."""
        return [call.measurement.test for call in self._calls.get(test, ())]

    def last(self, item: pytest.Item) -> Measurement | None:
        """Return a copy: what is judged is not the test's to change."""
        calls = self._calls.get(item.nodeid)
        return deepcopy(calls[-1].measurement) if calls else None

    def measure(self, call: FixtureCall, subject: Subject) -> object:
        item = call.item
        self._refuse_missing_ranks(item)
        test = self._new_key(item, call.name)
        self._follow(test)
        budgets = (parse_budget(call.budget), *kept_budgets_of(item))
        plan = self._plan(item, test, budgets)
        draws.watch_no_clocks()
        subject = replace(
            subject,
            step=draws.watching_clocks(subject.step),
            round_steps=self._request.round_steps.get(test),
        )
        measured = measured_call(self._device, subject, plan)
        _refuse_unreal_time(measured.measurement)
        self._held.refuse_replaced()
        found = replace(measured.measurement, unseeded=draws.unseeded())
        self._keep(item, found, budgets)
        return measured.result

    def _plan(
        self, item: pytest.Item, test: str, budgets: Sequence[Budget]
    ) -> MeasurePlan:
        """Plan what is measured of the call *test* of *item*."""
        hardware = self._device.environment().hardware
        asked = asked_of(budgets, hardware, self._request.stored.get(test, ()))
        # Ranks count in each run: what one of them leaves out the others would wait for.
        only_times = test in self._request.timed and not self._device.is_ranked
        return MeasurePlan(
            test=test,
            seconds=self._settings.seconds,
            asked=asked,
            limited=_limited(budgets),
            only_times=only_times,
            mode=self._request.mode,
            artefacts=self._settings.artefacts,
            root=item.config.rootpath,
            follow=partial(self._follow, test),
        )

    def _keep(
        self, item: pytest.Item, measurement: Measurement, budgets: Sequence[Budget]
    ) -> None:
        """Keep a call of *item*, which names the project's files from its root on."""
        call = StepCall(
            measurement=below(item.config.rootpath, measurement),
            budgets=tuple(budgets),
            tolerances=tolerances_of(item),
        )
        self._calls.setdefault(item.nodeid, []).append(call)

    def _new_key(self, item: pytest.Item, name: str | None) -> str:
        return call_key(
            item.nodeid,
            name,
            taken=self._keys(item.nodeid),
            comparisons=self._comparisons.get(item.nodeid, {}),
        )

    def _refuse_missing_ranks(self, item: pytest.Item) -> None:
        """Raise ``SkipTest`` if *item* asks for ranks and this is a single process."""
        ranks = ranks_of(item)
        if ranks is not None and not self._device.is_ranked:
            msg = (
                f"gpuperf.ranks({ranks.count}): ranks are measured by pytest --gpuperf, "
                "each in a process of its own, and not in this one"
            )
            raise SkipTest(msg)

    def compare(self, call: FixtureCall, pair: Pair) -> Compared:
        from ..compare_steps.measure import compare_sides

        item = call.item
        if ranks_of(item) is not None:
            msg = (
                "gpuperf.compare(before, after): steps take turns in one process, and "
                "this test has gpuperf.ranks; measure each with gpuperf(step, name=...)"
            )
            raise StepError(msg, ErrorId.GP220)

        comparisons = self._comparisons.setdefault(item.nodeid, {})
        measured = self._keys(item.nodeid)
        test = comparison_key(item.nodeid, call.name, taken={*measured, *comparisons})
        tolerance = merged((*tolerances_of(item), self._settings.tolerance))
        self._follow(test)
        # The key is taken only after this: a comparison that raises leaves none behind.
        follow = partial(self._follow, test)
        plan = MeasurePlan(test=test, seconds=self._settings.seconds, follow=follow)
        found = compare_sides(self._device, pair, plan, tolerance)
        self._held.refuse_replaced()
        comparisons[test] = replace(
            found,
            after=below(item.config.rootpath, replace(found.after, test=test)),
            budgets=(parse_budget(call.budget), *kept_budgets_of(item)),
        )
        return Compared(found.sides)


def _refuse_unreal_time(measurement: Measurement) -> None:
    """Raise ``StepError`` if the clock cannot have run during a step.

    It is refused here, before anything can judge, store or compare with such a time.
    """
    nonsense = unreal_time(measurement)
    if nonsense is not None:
        msg = (
            f"{nonsense}: the clock stopped, was set back or broke while the step "
            "ran; measure without what replaces the clock, as a fixture that freezes "
            "time does"
        )
        raise StepError(msg, ErrorId.GP303)


def _limited(budgets: Sequence[Budget]) -> list[str]:
    """Name the metrics that *budgets* limit, whatever hardware they are for."""
    limited = {keyword for budget in budgets for keyword in budget.limits}
    return sorted({m.name for keyword in limited for m in limited_by(keyword)})


class TrainingPass(PlainRun):
    """Stands behind the fixture on *device*: ``records`` has each call's first steps."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.records: dict[str, TrainingRecord] = {}

    def torch_device(self) -> str:
        return self._device.torch_device

    def measure(self, call: FixtureCall, subject: Subject) -> object:
        # Not at the top: a plain run imports this module's neighbours, without torch.
        from ..compare_steps.training_record import record_steps

        nodeid = call.item.nodeid
        taken = [key for key in self.records if nodeid_of(key) == nodeid]
        key = call_key(nodeid, call.name, taken=taken, comparisons=())
        emulating = self._device.emulating
        record, result = record_steps(subject, simulated=emulating is not None)
        missing = (emulating and emulating.gave_up_values) or ""
        self.records[key] = replace(record, unseeded=draws.are_drawn(), missing=missing)
        return result

    def added_to(self, result: TestResult, test: str) -> TestResult:  # noqa: ARG002
        return result
