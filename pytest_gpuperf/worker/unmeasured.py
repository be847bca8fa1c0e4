"""The fixture when a test is not measured, and when that is an error."""

from __future__ import annotations

from collections.abc import Collection, Generator
from typing import Final, NoReturn

import pytest

from ..compare_steps.isolation import Pair
from ..devices import torch_device_for_plain_runs
from ..errors import ErrorId, StepError
from ..measure.step import Subject
from ..model.ab import Comparison
from ..model.measurement import Measurement
from ..model.metrics import METRICS
from .call_result import Compared
from .fixture import FixtureCall, Measurer, measurer_key


UNSEEN: Final = (
    "{} was called, and nothing measured this test: it was collected without the "
    "gpuperf fixture; take gpuperf as an argument of the test, or mark the test "
    "@pytest.mark.gpuperf"
)


refused_key: Final[pytest.StashKey[set[str]]] = pytest.StashKey()
"""Tests that called the fixture and were not measured."""

sentence_key: Final[pytest.StashKey[str]] = pytest.StashKey()
"""Why the call of a test was refused."""


def measurer_of(config: pytest.Config, *, is_enabled: bool) -> Measurer:
    """Return what measures for the fixture in this process.

    Tests are measured in a process of their own. A test that gets the fixture elsewhere
    was collected without it, for example through ``request.getfixturevalue``.
    """
    measurer = config.stash.get(measurer_key, None)
    if measurer is None:
        return NotMeasured(config) if is_enabled else PlainRun()
    return measurer


def refused_in(config: pytest.Config) -> set[str]:
    """Return the tests that called the fixture here and were not measured."""
    return config.stash.get(refused_key, set())


class PlainRun:
    """A plain run: the step runs once, so that the test still checks the code."""

    def torch_device(self) -> str:
        return torch_device_for_plain_runs()

    def measure(self, call: FixtureCall, subject: Subject) -> object:  # noqa: ARG002
        return subject.run_once()

    def compare(self, call: FixtureCall, pair: Pair) -> Compared:  # noqa: ARG002
        # Not at the top: most plain runs compare nothing.
        from ..compare_steps.same_training import begin

        training = begin(pair)
        reasons = dict.fromkeys(METRICS, "pytest runs without --gpuperf")
        return Compared(Comparison(unmeasured=reasons, training=training))

    def last(self, item: pytest.Item) -> Measurement | None:  # noqa: ARG002
        return None


class NotMeasured(PlainRun):
    """A call in an enabled run that is not measured: it must not look like a pass."""

    def __init__(self, config: pytest.Config) -> None:
        self._refused = config.stash.setdefault(refused_key, set())
        if not config.pluginmanager.has_plugin(RefusalGuard.NAME):
            heard = RefusalGuard(self._refused)
            config.pluginmanager.register(heard, RefusalGuard.NAME)

    def measure(self, call: FixtureCall, subject: Subject) -> object:  # noqa: ARG002
        self._refuse(call.item, "gpuperf(step)")

    def compare(self, call: FixtureCall, pair: Pair) -> Compared:  # noqa: ARG002
        self._refuse(call.item, "gpuperf.compare(before, after)")

    def _refuse(self, item: pytest.Item, call: str) -> NoReturn:
        self._refused.add(item.nodeid)
        refused = StepError(UNSEEN.format(call), ErrorId.GP222)
        item.stash[sentence_key] = str(refused)
        raise refused


class RefusalGuard:
    """Fails a test that was refused a measurement and caught the exception."""

    NAME: Final = "gpuperf-refusals"

    def __init__(self, refused: Collection[str]) -> None:
        self._refused = refused

    # The outermost wrapper: no other plugin turns the report into a pass after it.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        is_hidden = not report.failed and not hasattr(report, "wasxfail")
        if call.when == "call" and item.nodeid in self._refused and is_hidden:
            report.outcome, report.longrepr = "failed", item.stash[sentence_key]
        return report
