"""What a measuring process is to do, what it answers, and what pytest reports of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from .ab import Comparison
from .budget import Budget, Tolerance
from .measurement import Measurement


Known = TypeVar("Known")


def nodeid_of(call: str) -> str:
    """Return the node id of a call; the ``#`` of a parameter names none."""
    test, end, _ = call.rpartition("]#")
    if end or call.endswith("]"):
        return f"{test}]" if end else call
    return call.partition("#")[0]


class KnownCalls(Generic[Known]):
    """What is known of calls, found by their tests: a suite may have thousands."""

    def __init__(self, by_call: Mapping[str, Known]) -> None:
        self._found: dict[str, dict[str, Known]] = {}
        for call, known in by_call.items():
            self.learn(call, known)

    def learn(self, call: str, known: Known) -> None:
        """Keep what is *known* of *call*, unless something already is."""
        self._found.setdefault(nodeid_of(call), {}).setdefault(call, known)

    def of(self, tests: Collection[str]) -> dict[str, Known]:
        """Return it by the calls of *tests*."""
        of_tests = [self._found.get(test, {}) for test in tests]
        return {call: known for one in of_tests for call, known in one.items()}


class Ending(Enum):
    """How a test ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    XFAILED = "xfailed"
    DIED = "died"
    WARNED = "warned"
    """It would have failed by a verdict in a run that only warns."""

    @property
    def fails(self) -> bool:
        """Whether the test failed, or its process died."""
        return self in {Ending.FAILED, Ending.DIED}

    @property
    def accuses(self) -> bool:
        """Whether it failed, or would have."""
        return self.fails or self is Ending.WARNED


class RunMode(Enum):
    """What a run does with each step.

    ``RECORD_MEMORY`` measures it and records what the allocator did, ``TRACE`` does
    nothing else than trace it.
    """

    MEASURE = "measure"
    RECORD_MEMORY = "record memory"
    TRACE = "trace"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCall:
    """One call of ``gpuperf(step)``: its measurement and what its author allows.

    Both tuples go from the call's own keywords to the module's marks: the first
    that speaks of a metric decides.
    """

    measurement: Measurement
    budgets: tuple[Budget, ...] = ()
    tolerances: tuple[Tolerance, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCall:
    """One call of ``gpuperf.compare(before, after)``, and what its author demands.

    ``after`` is that step by itself: exact budgets apply to it. ``budgets`` are ordered
    as those of a ``StepCall``.
    """

    sides: Comparison
    after: Measurement
    budgets: tuple[Budget, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A test ended pytest: by ``pytest.exit``, or by an interrupt that it raised.

    ``status`` is the exit status that it asked for.
    """

    reason: str
    status: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TestResult:
    """What one run says of one test.

    ``text`` is its failure or the reason of a skip, ``headline`` a failure in a line.
    ``needs_gpu`` says that it was skipped because only a GPU could have run it.
    ``properties`` are what its ``record_property`` noted, as text. ``asked`` says that
    the test itself asks to be measured, and not only an autouse fixture with it.
    """

    __test__ = False  # pytest would collect a class of this name

    test: str
    ending: Ending
    text: str = ""
    headline: str = ""
    sections: tuple[tuple[str, str], ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    calls: tuple[StepCall, ...] = ()
    comparisons: tuple[ComparedCall, ...] = ()
    needs_gpu: bool = False
    asked: bool = True
    stop: Stop | None = None
    seconds: float = 0.0

    @property
    def round_steps(self) -> dict[str, int]:
        """By call, the steps per round of its times, if the device queues steps."""
        found = {c.measurement.test: c.measurement.round_steps for c in self.calls}
        return {key: steps for key, steps in found.items() if steps is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the pytest loop is to say of a measured test at its natural place.

    ``headline`` is what its failure says in a line, the first of ``text`` if empty.
    ``verdicts`` are JSON texts, one a call, so that they survive any transport. ``stop``
    ends pytest once all this is reported.
    """

    test: str
    ending: Ending
    text: str = ""
    headline: str = ""
    warning: str = ""
    sections: tuple[tuple[str, str], ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    verdicts: tuple[str, ...] = ()
    stop: Stop | None = None
