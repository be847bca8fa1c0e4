"""What stands behind the fixture of one side: it measures, and notes the settings."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ..compare.beginning import Pair
from ..compared import Compared
from ..devices.global_state import contexts
from ..devices.global_state import settings
from ..fitting import FitQuestion
from ..measuring import Measuring
from ..model.measurement import Measurement
from ..model.run import Call
from ..model.run import ComparedCall
from ..probes.subject import Subject
from ..prospect import Prospect


class Watched:
    """Measures as *measuring* does; ``settings`` are those of each call, by its name."""

    def __init__(self, measuring: Measuring) -> None:
        self.settings: dict[str, Mapping[str, str]] = {}
        self._measuring = measuring

    def torch_device(self) -> str:
        return self._measuring.torch_device()

    def measure(
        self,
        item: pytest.Item,
        subject: Subject,
        name: str | None,
        budget: Mapping[str, object],
    ) -> object:
        found = process_settings()
        result = self._measuring.measure(item, subject, name, budget)
        newest = self._measuring.calls_of(item.nodeid)[-1]
        self.settings[newest.measurement.test] = found
        return result

    def compare(
        self,
        item: pytest.Item,
        pair: Pair,
        name: str | None,
        budget: Mapping[str, object],
    ) -> Compared:
        return self._measuring.compare(item, pair, name, budget)

    def fits(self, item: pytest.Item, question: FitQuestion) -> Prospect:
        return self._measuring.fits(item, question)

    def last(self, item: pytest.Item) -> Measurement | None:
        return self._measuring.last(item)

    def calls_of(self, test: str) -> tuple[Call, ...]:
        return self._measuring.calls_of(test)

    def comparisons_of(self, test: str) -> tuple[ComparedCall, ...]:
        return self._measuring.comparisons_of(test)

    def foresaw(self, test: str) -> bool:
        return self._measuring.foresaw(test)


def process_settings() -> Mapping[str, str]:
    """Return what this process has once and a step depends on, by name."""
    return {**settings(), **contexts()}
