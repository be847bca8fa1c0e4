"""What a measuring process is to do, what it answers, and what comes of a whole run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Generic, NamedTuple, TypeVar

from .ab import Comparison
from .budget import Budget, Tolerance
from .environment import Hardware
from .measurement import Measurement, Samples
from .verdict import Outcome


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
    ends pytest once all this is reported. ``seconds`` are those of all runs.
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
    seconds: float = 0.0


# The result of one enabled run, as other programs read it.


# Facts that no verdict reports, and that a run must still show.


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """Tests, by name, that a green run would hide.

    ``lost`` were selected, and pytest never reported their verdicts. ``silenced`` failed,
    and something else reported them otherwise. ``unmeasured`` are stored calls of tests
    that passed without making them; whether that fails the run is ``is_strict``.
    """

    lost: tuple[str, ...] = ()
    silenced: tuple[str, ...] = ()
    unmeasured: tuple[str, ...] = ()
    is_strict: bool = False

    @property
    def fails(self) -> bool:
        """Whether the run fails for it, whatever its tests did."""
        return bool(self.lost or self.silenced or (self.unmeasured and self.is_strict))


NOTHING_SEEN: Unseen = Unseen()


RESULTS_NAME: Final = "results.json"
"""Name of the file with a run's results."""


class Record(NamedTuple):
    """What came of one measured test; a tuple, for there are many.

    ``outcome`` is the worst of its verdicts, ``None`` if nothing was judged; then
    ``ending`` says what happened and ``headline`` why, in a line. ``verdicts`` are JSON
    objects, one a call: a hundred thousand can be counted without decoding them.
    ``where`` is the file, from the rootdir, and the line of the test. ``samples`` are by
    call what each run read of its times.
    """

    ending: Ending
    outcome: Outcome | None = None
    headline: str = ""
    verdicts: tuple[Mapping[str, Any], ...] = ()
    where: str = ""
    samples: Mapping[str, tuple[Samples, ...]] = {}

    @property
    def word(self) -> str:
        """What the test is counted as."""
        if self.ending is Ending.WARNED or self.outcome is None:
            return self.ending.value
        return self.outcome.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """All of a run but its tests.

    ``commit`` is the one that was checked out, if that is known. ``hardware`` is unknown
    as long as nothing was measured, ``exit_status``, which is pytest's, until the run
    has finished. ``collected`` are the tests to measure before any was deselected,
    ``selected`` those after, ``unreported`` those that pytest lost. ``notes`` are what
    is said once for the run. The other fields are settings.
    """

    version: str
    strict: bool
    missing_baseline: str
    seed: int | None = None
    commit: str | None = None
    hardware: Hardware | None = None
    exit_status: int | None = None
    collected: tuple[str, ...] = ()
    selected: tuple[str, ...] = ()
    unreported: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """One run: its head, and what came of each measured test by its node id."""

    head: Head
    tests: Mapping[str, Record] = field(default_factory=dict)

    @property
    def counts(self) -> Counter[str]:
        """Tests by what they are counted as."""
        return Counter(record.word for record in self.tests.values())
