"""The object that a test gets as ``gpuperf``, measured or in a plain run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, TypeVar
from unittest import SkipTest

import pytest

from ..compare_steps.isolation import TRAINING_TOLERANCE, Pair, Unseen
from ..devices import torch_device_for_plain_runs
from ..devices.allow_sync import allow_sync
from ..errors import ErrorId, GpuperfError, StepError, UsageError
from ..measure.step import WORK, Subject, subject_of
from ..model.ab import Comparison
from ..model.budget import finite, parse_budget, shown
from ..model.measurement import Measurement
from ..model.metrics import METRICS
from ..model.retired import Numbers, refuse_retired
from ..trainers.handover import Steps


if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..model.budget import Limits


from ..model.ab import AbResult
from ..report.document import terminal
from ..report.screen.comparison import (
    both_sides,
    count_in_words,
    sides_blocks,
    time_in_words,
    why_unmeasured,
)


T = TypeVar("T")

OWN_FILES: Final = f"{Path(__file__).parents[1]}{os.sep}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FixtureCall:
    """A call of the fixture in the test ``item``, with its name and its limits."""

    item: pytest.Item
    name: str | None
    budget: Mapping[str, object]


class Measurer(Protocol):
    """What a call of ``gpuperf(step)`` is handed to."""

    def torch_device(self) -> str:
        """Name the device that models and data belong on."""

    def measure(self, call: FixtureCall, subject: Subject) -> object:
        """Run the step and return its last result."""

    def compare(self, call: FixtureCall, pair: Pair) -> Compared:
        """Run two steps in turns and return what both showed."""

    def last(self, item: pytest.Item) -> Measurement | None:
        """Return the newest measurement of *item*."""


class Gpuperf:
    """The ``gpuperf`` fixture: call it with a training step.

    Without ``--gpuperf`` the step runs once, unmeasured. Under it the step is warmed
    up, timed, and watched for memory and syncs; all calls of a test are judged when
    the test has ended.
    """

    def __init__(self, measurer: Measurer, item: pytest.Item) -> None:
        self._measurer = measurer
        self._item = item

    def __getattr__(self, name: str) -> NoReturn:
        """Say what does the job of a method that is no more."""
        refuse_retired(f"gpuperf.{name}()")
        msg = f"{type(self).__name__!r} object has no attribute {name!r}"
        raise AttributeError(msg)

    def __call__(
        self,
        step: Callable[..., T],
        setup: Callable[[], object] | None = None,
        name: str | None = None,
        samples: float | None = None,
        tokens: float | None = None,
        **budget: Unpack[Limits],
    ) -> T:
        """Measure *step* and return what its last call returned.

        ``setup`` is called before each step, unmeasured; what it returns becomes the
        step's arguments: a tuple is spread, ``None`` is none, all else is one.
        ``name`` tells several calls in one test apart. ``samples`` or ``tokens`` is how
        many of them one step trains on, for ``samples_per_s`` and ``tokens_per_s``.
        Keywords of ``gpuperf.budget`` override the test's marks.
        """
        __tracebackhide__ = True

        def measured() -> object:
            subject = subject_of(step, setup)
            return self._measure_of("(step", name, samples, tokens, budget)(subject)

        return _or_refused(measured)  # type: ignore[return-value]  # of the step

    def loader(
        self,
        loader: Iterable[object],
        step: Callable[..., T],
        *,
        name: str | None = None,
        samples: float | None = None,
        tokens: float | None = None,
        **budget: Unpack[Limits],
    ) -> T:
        """Measure the loop ``for batch in loader: step(batch)``, return its last result.

        What is measured as a step is to fetch a batch and to train on it, so all other
        metrics are those of the loop. ``loader_wait_pct`` is the share of its wall time
        that the host spends in ``next`` of the loader's iterator. *loader* is iterated
        anew when it ends. Between epochs, workers start and the first batch is waited
        for: that is reported, and not counted in the share, since an epoch here is
        seldom as long as one in training; ``step_ms`` has it where an epoch ends within
        the rounds. Workers end with the call unless they are ``persistent_workers``.
        *step* takes one argument, the batch as it comes.

        ``samples`` or ``tokens`` is how many of them a batch has.

        Without ``--gpuperf`` one batch is fetched and one step runs.
        """
        __tracebackhide__ = True

        def looped() -> object:
            from ..measure.dataloader import loop_over

            call = ".loader(loader, step"
            measure = self._measure_of(call, name, samples, tokens, budget)
            subject = loop_over(loader, step)
            try:
                return measure(subject)
            finally:
                # Workers of the loader would go on fetching during the next
                # measurement.
                subject.close()

        return _or_refused(looped)  # type: ignore[return-value]  # of the step

    def steps(
        self,
        *,
        name: str | None = None,
        samples: float | None = None,
        tokens: float | None = None,
        **budget: Unpack[Limits],
    ) -> Steps:
        """Measure a loop that says where its steps end: ``with gpuperf.steps() as step:``.

        ``step()`` ends a step, and leaves the block when all is measured. So the loop
        has no end of its own: one that ends before fails the test. What the loop does
        before its first ``step()`` is part of the first step, which no metric counts.

        Without ``--gpuperf`` one step runs.
        """
        __tracebackhide__ = True
        return _or_refused(
            lambda: Steps(
                self._measure_of(".steps(", name, samples, tokens, budget), _or_refused
            )
        )

    def trainer(
        self,
        trainer: object,
        *arguments: object,
        name: str | None = None,
        samples: float | None = None,
        tokens: float | None = None,
        **budget: Unpack[Limits],
    ) -> None:
        """Measure the steps of a trainer, which is run until all is measured.

        *trainer* is a ``Trainer`` of transformers, a ``Trainer`` of Lightning with what
        its ``fit`` takes as *arguments*, an ``Accelerator`` with the function that trains,
        another object with ``train()`` or ``fit()``, or a function. Its limits on steps
        and epochs do not count meanwhile. It saves, evaluates and reports nothing; logging
        is part of the step.

        Without ``--gpuperf`` one step runs.
        """
        __tracebackhide__ = True

        def trained() -> None:
            from ..trainers.frameworks import loop_of
            from ..trainers.handover import measure_training

            call = ".trainer(trainer"
            measure = self._measure_of(call, name, samples, tokens, budget)
            measure_training(loop_of(trainer, arguments), measure)

        _or_refused(trained)

    def _measure_of(
        self,
        call: str,
        name: str | None,
        samples: float | None,
        tokens: float | None,
        budget: Mapping[str, object],
    ) -> Callable[[Subject], object]:
        """Return what measures a step or a loop; *call* is how the call begins."""
        asked = self._call(call, name, budget)
        work = work_of(call, samples=samples, tokens=tokens)
        return lambda subject: self._measurer.measure(
            asked, replace(subject, work=work)
        )

    def _call(
        self, call: str, name: str | None, budget: Mapping[str, object]
    ) -> FixtureCall:
        """Return the call that begins with *call*; raise ``UsageError`` if it is wrong."""
        check_call(call, name, budget)
        return FixtureCall(item=self._item, name=name, budget=budget)

    def compare(
        self,
        before: Callable[..., object],
        after: Callable[..., object],
        *,
        setup: Callable[[], object] | None = None,
        name: str | None = None,
        same_training: bool | float = False,
        **budget: Unpack[Limits],
    ) -> Compared:
        """Run two steps in turns and return how they compare.

        The steps share no state that one of them changes: build model and optimizer
        twice. ``setup`` is called before each step of either side, as for a measured
        one. ``same_training`` also checks that both do the same training: what they
        return and the gradients that their optimizers see may differ by 1 %, or by the
        ratio that is given. ``speedup=1.3`` fails the test where ``after`` is less
        than 1.3 times as fast; other keywords limit ``after``, as a mark would.

        Without ``--gpuperf`` each step runs once, and reading a number of the result
        skips the test.
        """
        __tracebackhide__ = True

        def compared() -> Compared:
            pair = Pair(
                before=subject_of(before, setup),
                after=subject_of(after, setup),
                training=_training(same_training),
            )
            call = self._call(".compare(before, after", name, budget)
            return self._measurer.compare(call, pair)

        return _or_refused(compared)

    @property
    def device(self) -> str:
        """What models and data belong on: ``"cuda"`` or ``"cpu"``, for ``.to(...)``."""
        return self._measurer.torch_device()

    @property
    def measurement(self) -> Measurement | None:
        """The last call's measurement; ``None`` if nothing was measured."""
        last = self._measurer.last(self._item)
        return last and replace(
            last, exact=Numbers(last.exact), times=Numbers(last.times)
        )

    allow_sync = staticmethod(allow_sync)


def _or_refused(measured: Callable[[], T]) -> T:
    """Return what *measured* returns; fail the test with a sentence if refused."""
    __tracebackhide__ = True
    try:
        return measured()
    # Before GpuperfError: a NeedsGpuError is both, and it must skip the test, not fail
    # it.
    except SkipTest:
        raise
    except GpuperfError as error:
        refusal = _with_place(str(error))
    # Also a timeout, which pytest-timeout raises as pytest's own failure.
    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - raised again
        trace = _without_ours(error.__traceback__)
        # The user's traceback should end in the user's step, not in our measuring loop.
        raise error.with_traceback(trace)  # noqa: B904 - the same one
    pytest.fail(refusal, pytrace=False)


def _with_place(refusal: str) -> str:
    """Add the line outside of this package that made the call, which pytest leaves out."""
    frame: FrameType | None = sys._getframe()  # noqa: SLF001, as inspect is slow to import
    while frame is not None and frame.f_code.co_filename.startswith(OWN_FILES):
        frame = frame.f_back
    if frame is None:
        return refusal
    file = frame.f_code.co_filename.removeprefix(f"{Path.cwd()}{os.sep}")
    return f"{refusal}\n  --> {file}:{frame.f_lineno} in {frame.f_code.co_name}"


def _training(asked: object) -> float | None:
    if isinstance(asked, bool):
        return TRAINING_TOLERANCE if asked else None
    if not isinstance(asked, (int, float)) or not 0 < asked < 1:
        msg = (
            f"gpuperf.compare(same_training={asked!r}): expected True, or the relative "
            "difference that is tolerated, above 0 and below 1, such as 0.02"
        )
        raise UsageError(msg, ErrorId.GP212)
    return asked


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    """Leave out this package's frames, unless the error is from the last of them.

    A last frame that hides itself passes on an error of torch, so it is left out, too.
    """
    entries: list[TracebackType] = []
    while trace is not None:
        entries.append(trace)
        trace = trace.tb_next
    ours = [
        entry.tb_frame.f_code.co_filename.startswith(OWN_FILES) for entry in entries
    ]
    failed = ours[-1] and "__tracebackhide__" not in entries[-1].tb_frame.f_locals
    kept: TracebackType | None = None
    for entry, is_ours in zip(reversed(entries), reversed(ours), strict=True):
        if failed or not is_ours:
            kept = TracebackType(kept, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return kept


measurer_key: Final[pytest.StashKey[Measurer]] = pytest.StashKey()


# What a call is given.


def check_call(call: str, name: object, budget: Mapping[str, object]) -> None:
    """Raise ``UsageError`` for a *budget* that is none, or a *name* that names nothing.

    *call* is how it begins.
    """
    parse_budget(budget)
    if name is not None and (not isinstance(name, str) or not name.strip()):
        msg = (
            f"gpuperf{call}, name={shown(name)}): expected a text that tells this call "
            'from others, such as "warm", or no name'
        )
        raise UsageError(msg, ErrorId.GP209)


def work_of(call: str, **given: object) -> dict[str, float]:
    """Return what one step trains on, by the metric of that per second.

    Raises ``UsageError`` for what is no number above 0. *call* is how the call begins.
    """
    return {
        name: _count(call, keyword, given[keyword])
        for name, keyword in WORK.items()
        if given[keyword] is not None
    }


def _count(call: str, keyword: str, value: object) -> float:
    if type(value) in {int, float} and 0 < finite(value) < inf:
        return finite(value)
    msg = (
        f"gpuperf{call}, {keyword}={shown(value)}): expected how many {keyword} one step "
        "trains on, a number above 0"
    )
    raise UsageError(msg, ErrorId.GP211)


# The fixture when a test is not measured, and when that is an error.


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
    if measurer_key in config.stash:
        return config.stash[measurer_key]
    return NotMeasured(config) if is_enabled else PlainRun()


def refused_in(config: pytest.Config) -> set[str]:
    """Return the tests that called the fixture here and were not measured."""
    return config.stash.get(refused_key, set())


class PlainRun:
    """A plain run: the step runs once, so that the test still checks the code.

    What a comparison reads for itself is ``unseen`` by who watches the run.
    """

    unseen: Unseen = nullcontext

    def torch_device(self) -> str:
        return torch_device_for_plain_runs()

    def measure(self, call: FixtureCall, subject: Subject) -> object:  # noqa: ARG002
        return subject.run_once()

    def compare(self, call: FixtureCall, pair: Pair) -> Compared:  # noqa: ARG002
        # Not at the top: most plain runs compare nothing.
        from ..compare_steps.same_training import begin

        training = begin(replace(pair, unseen=self.unseen))
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


# The result of ``gpuperf.compare``, which a test can assert on.


@dataclass(frozen=True, slots=True, repr=False)
class TimeRatio:
    """The time of a step before, divided by that after.

    Reading a number that was not measured skips the test, with the reason.
    """

    sides: Comparison

    @property
    def speedup(self) -> float:
        """How many times as fast ``after`` is: 1.3, or 0.9 where it is slower."""
        __tracebackhide__ = True
        time = self._measured()
        return time.speedup if time.speedup is not None else _skip("time", time.why)

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval; 0 if too little was measured for one."""
        __tracebackhide__ = True
        low = self._measured().least_speedup
        return 0.0 if low is None else low

    @property
    def high(self) -> float:
        """Upper end of the 95 % interval; infinite where too little was measured."""
        __tracebackhide__ = True
        high = self._measured().most_speedup
        return inf if high is None else high

    @property
    def verdict(self) -> str:
        """What ``after`` is: ``slower``, ``faster``, ``same`` or ``inconclusive``."""
        __tracebackhide__ = True
        return self._measured().answer.value

    @property
    def why(self) -> str:
        """The sentence of the verdict, with its numbers."""
        __tracebackhide__ = True
        return self._measured().why

    def __repr__(self) -> str:
        return f"<{time_in_words(self.sides)}>"

    def _measured(self) -> AbResult:
        __tracebackhide__ = True
        if self.sides.time is None:
            _skip("time", self.sides.no_time)
        return self.sides.time


@dataclass(frozen=True, slots=True, repr=False)
class Difference:
    """An exact number of both sides, per step: bytes or a count.

    Reading one that was not measured skips the test, with the reason.
    """

    sides: Comparison
    name: str

    @property
    def before(self) -> int:
        __tracebackhide__ = True
        return self._measured()[0]

    @property
    def after(self) -> int:
        __tracebackhide__ = True
        return self._measured()[1]

    @property
    def difference(self) -> int:
        """``after`` less ``before``: below 0 is an improvement."""
        __tracebackhide__ = True
        before, after = self._measured()
        return after - before

    def __repr__(self) -> str:
        return f"<{self.name} {count_in_words(self.sides, self.name)}>"

    def _measured(self) -> tuple[int, int]:
        __tracebackhide__ = True
        both = both_sides(self.sides, self.name)
        if both is None:
            _skip(self.name, why_unmeasured(self.sides, self.name))
        _, before, after = both
        return before, after


@dataclass(frozen=True, slots=True, repr=False)
class Compared:
    """What ``gpuperf.compare(before, after)`` found: assert on it, or print it."""

    sides: Comparison

    @property
    def time(self) -> TimeRatio:
        """How many times as fast ``after`` is, with a 95 % interval and a verdict."""
        return TimeRatio(self.sides)

    @property
    def memory(self) -> Difference:
        """Peak memory in bytes: of the allocator, or of live tensors on ``cpu``."""
        return Difference(self.sides, "memory")

    @property
    def syncs(self) -> Difference:
        """How often a step makes the host wait for the device."""
        return Difference(self.sides, "syncs")

    @property
    def copies(self) -> Difference:
        """Copies between the device and pageable CPU memory."""
        return Difference(self.sides, "copies")

    @property
    def ops(self) -> Difference:
        """Operations that launch work on the device; on a GPU, the launches themselves."""
        return Difference(self.sides, "ops")

    def __repr__(self) -> str:
        return f"<comparison: {time_in_words(self.sides)}>"

    def __str__(self) -> str:
        return "\n".join(terminal(sides_blocks(self.sides)))


def _skip(name: str, reason: str) -> NoReturn:
    __tracebackhide__ = True
    pytest.skip(f"{name} was not measured: {reason}")
