"""What stands behind the fixture in a measuring process: every call, by test."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from typing import Final
from unittest import SkipTest

import pytest

from .call_key import call_key
from .call_key import comparison_key
from .compare.beginning import Pair
from .compared import Compared
from .devices.pretend.device import PretendDevice
from .devices.protocol import Device
from .errors import StepError
from .fitting import FitQuestion
from .judge.allowance import noticed
from .judge.allowance import tolerated
from .judge.fit import fit_of
from .judging import merged
from .limits import parse_budget
from .marks import budgets_of
from .marks import ranks_of
from .marks import tolerances_of
from .measured_call import Artefacts
from .measured_call import measured_call
from .model.budget import Budget
from .model.budget import Tolerance
from .model.forecast import Forecast
from .model.loader_metric import LOADER_WAIT
from .model.measurement import Measurement
from .model.memory_metric import PREDICTED_ALLOCATED
from .model.memory_metric import PREDICTED_RESERVED
from .model.metric import STEP_MS
from .model.rank_metric import RANKED
from .model.run import Call
from .model.run import ComparedCall
from .probes.subject import Subject
from .prospect import Prospect
from .ranked.agreed_device import AgreedDevice
from .relative import below


if TYPE_CHECKING:
    from .compare.sides import Question


NO_ARTEFACTS: Final = Artefacts()


class Measuring:
    """Measures on an open device and keeps every call by test."""

    def __init__(  # noqa: PLR0913  what it measures with, and who hears of it
        self,
        device: Device | PretendDevice,
        seconds: float,
        artefacts: Artefacts = NO_ARTEFACTS,
        *,
        project: Tolerance,
        arriving: Callable[[str], None] = lambda _: None,
        follow: Callable[[str, str], object] = lambda _, __: None,
    ) -> None:
        """*arriving* is told the key of each call before it is measured, *follow* the key
        and what is being done to it."""
        self._arriving = arriving
        self._follow = follow
        self._device = device
        self._project = project
        self._seconds = seconds
        self._artefacts = artefacts
        self._calls: dict[str, list[Call]] = {}
        self._comparisons: dict[str, dict[str, ComparedCall]] = {}
        self._foresaw: set[str] = set()

    def torch_device(self) -> str:
        return self._device.torch_device

    def calls_of(self, test: str) -> tuple[Call, ...]:
        return tuple(self._calls.get(test, ()))

    def comparisons_of(self, test: str) -> tuple[ComparedCall, ...]:
        return tuple(self._comparisons.get(test, {}).values())

    def last(self, item: pytest.Item) -> Measurement | None:
        calls = self._calls.get(item.nodeid)
        return calls[-1].measurement if calls else None

    def measure(
        self,
        item: pytest.Item,
        subject: Subject,
        name: str | None,
        budget: Mapping[str, object],
    ) -> object:
        self._refuse_missing_ranks(item)
        calls = self._calls.setdefault(item.nodeid, [])
        test = self._new_key(item, name)
        self._arriving(test)
        measured = measured_call(
            self._device,
            subject,
            test=test,
            seconds=self._seconds,
            artefacts=self._artefacts,
            root=item.config.rootpath,
            follow=partial(self._follow, test),
        )
        budgets = (parse_budget(budget), *budgets_of(item))
        calls.append(
            Call(
                measurement=below(
                    item.config.rootpath,
                    _told_of_ranks(
                        _told_of_loader(measured.measurement, subject, budgets), budgets
                    ),
                ),
                budgets=budgets,
                tolerances=tolerances_of(item),
            )
        )
        return measured.result

    def _new_key(self, item: pytest.Item, name: str | None) -> str:
        return call_key(
            item.nodeid,
            name,
            taken=[call.measurement.test for call in self.calls_of(item.nodeid)],
            comparisons=self._comparisons.get(item.nodeid, {}),
        )

    def _refuse_missing_ranks(self, item: pytest.Item) -> None:
        """Raise ``SkipTest`` where one process stands for the ranks of *item*."""
        ranks = ranks_of(item)
        if ranks is not None and not isinstance(self._device, AgreedDevice):
            msg = (
                f"gpuperf.ranks({ranks.count}): ranks are measured by pytest --gpuperf, "
                "each in a process of its own, and not in this one"
            )
            raise SkipTest(msg)

    def foresaw(self, test: str) -> bool:
        """Whether *test* asked what a step would need."""
        return test in self._foresaw

    def fits(self, item: pytest.Item, question: FitQuestion) -> Prospect:
        """Raise ``SkipTest`` on a device that predicts nothing."""
        if not isinstance(self._device, PretendDevice):
            msg = (
                "memory is predicted on the pretend device: add "
                "--gpuperf-device=pretend"
            )
            raise SkipTest(msg)
        from .probes.foreseen import foresee

        found = foresee(
            question.make,
            question.halved,
            root=self._device.root,
            values=question.values,
            levers=question.levers,
        )
        self._foresaw.add(item.nodeid)
        if budgets_of(item):
            self._keep_forecast(item, self._device, found.forecast)
        return Prospect(
            forecast=found.forecast,
            with_levers=found.levers,
            gb=question.gib,
            fit=fit_of(found.forecast, question.gib),
        )

    def _keep_forecast(
        self, item: pytest.Item, device: PretendDevice, forecast: Forecast
    ) -> None:
        """Let what was predicted be judged by the test's budgets."""
        calls = self._calls.setdefault(item.nodeid, [])
        test = self._new_key(item, name=None)
        exact = {
            PREDICTED_ALLOCATED.name: forecast.allocated_bytes,
            PREDICTED_RESERVED.name: forecast.reserved_bytes,
        }
        why = "; ".join(forecast.not_judged)
        reason = f"only a GPU can judge {why}"
        measurement = Measurement(
            test=test,
            environment=device.environment(),
            exact={} if why else exact,
            unmeasured=dict.fromkeys(exact, reason) if why else device.unmeasurable,
            findings=forecast.findings,
            remarks=forecast.notes,
        )
        calls.append(
            Call(
                measurement=below(item.config.rootpath, measurement),
                budgets=budgets_of(item),
                tolerances=tolerances_of(item),
            )
        )

    def compare(
        self,
        item: pytest.Item,
        pair: Pair,
        name: str | None,
        budget: Mapping[str, object],
    ) -> Compared:
        from .compare.sides import compare_sides

        if ranks_of(item) is not None:
            msg = (
                "gpuperf.compare(before, after): steps take turns in one process, and "
                "this test has gpuperf.ranks; measure each with gpuperf(step, name=...)"
            )
            raise StepError(msg)

        comparisons = self._comparisons.setdefault(item.nodeid, {})
        measured = [call.measurement.test for call in self.calls_of(item.nodeid)]
        test = comparison_key(item.nodeid, name, taken={*measured, *comparisons})
        tolerance = merged((*tolerances_of(item), self._project))
        question = _question(pair, test, self._seconds, tolerance)
        self._arriving(test)
        found = compare_sides(self._device, question, partial(self._follow, test))
        comparisons[test] = ComparedCall(
            sides=found.sides,
            after=below(item.config.rootpath, replace(found.after, test=test)),
            budgets=(parse_budget(budget), *budgets_of(item)),
        )
        return Compared(found.sides)


def _question(pair: Pair, test: str, seconds: float, tolerance: Tolerance) -> Question:
    from .compare.sides import Question

    return Question(
        pair=pair,
        test=test,
        seconds=seconds,
        tolerance=tolerated(STEP_MS, tolerance),
        detect=noticed(STEP_MS, tolerance),
    )


def _told_of_ranks(measurement: Measurement, budgets: Sequence[Budget]) -> Measurement:
    """Say why one rank has not what *budgets* limit of several."""
    limited = {keyword for budget in budgets for keyword in budget.limits}
    asked = [metric.name for metric in RANKED if metric.budget in limited]
    if measurement.by_rank is not None or not asked:
        return measurement
    why = "this test has no ranks to compare: mark it with gpuperf.ranks(n)"
    unmeasured = {**measurement.unmeasured, **dict.fromkeys(asked, why)}
    return replace(measurement, unmeasured=unmeasured)


def _told_of_loader(
    measurement: Measurement, subject: Subject, budgets: Sequence[Budget]
) -> Measurement:
    """Say why a step without a loader has not what *budgets* limit of one."""
    asked = any(LOADER_WAIT.budget in budget.limits for budget in budgets)
    if subject.batches is not None or not asked:
        return measurement
    why = (
        "gpuperf(step) fetches no batches: measure it with gpuperf.loader(loader, step)"
    )
    unmeasured = {**measurement.unmeasured, LOADER_WAIT.name: why}
    return replace(measurement, unmeasured=unmeasured)
