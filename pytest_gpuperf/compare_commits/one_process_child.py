"""Both versions in one process: their tests wait at the same call, and take turns.

A test runs to its end on the stack, so the second one is run by a pytest of its own
inside of the call of the first. All of it is in the main thread: contexts of torch,
signals and thread pools are as in a process that measures one version.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from typing import Final
from unittest import SkipTest
from zlib import crc32

import pytest

from ..compare_steps.interleave import compare_steps
from ..compare_steps.isolation import SharedState
from ..compare_steps.measure import prepared
from ..devices import open_device
from ..devices import scripted_device
from ..devices.base import MeasuringDevice
from ..devices.base import with_clock
from ..devices.torch_state import process_settings
from ..errors import RunError
from ..measure.step import Subject
from ..model.ab import AbResult
from ..model.codec import decode
from ..model.codec import encode
from ..model.environment import DeviceKind
from ..model.measurement import Measurement
from ..model.run import Ending
from ..model.run import TestResult
from ..worker import child
from ..worker.fixture import FixtureCall
from ..worker.measurer import call_key
from ..worker.unmeasured import PlainRun
from .module_view import Guest
from .module_view import View
from .module_view import Views
from .one_process import Beginning
from .one_process import TogetherRequest
from .one_process import alone
from .one_process import changed
from .one_process import together
from .pairs import ENDING_WORDS


VERSION_BLOCK_MS: Final = 18.0
"""A block lasts at least this long: to exchange all modules costs more than to change
the step alone, and must stay below 1 % of the measured time."""


class ObjectionError(Exception):
    """Both cannot be measured here: its text says why."""


def compare(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Compare one call of both versions, or say why that cannot be."""
    return encode(Rendezvous(decode(TogetherRequest, raw)).result())  # type: ignore[no-any-return]


Arrival = Callable[[], None]
"""What happens at the call that is compared, before its test may go on."""


class Rendezvous:
    """Brings both to their call; the first one to arrive waits there for the other."""

    def __init__(self, request: TogetherRequest) -> None:
        self._request = request
        self._device = _device(request)
        self._beginning = Beginning.now()
        self._views = Views(request.before, request.after)
        self._found: AbResult | None = None
        self._refused = ""

    def result(self) -> AbResult:
        """Run both; the name of the call decides which one is first, and they take turns."""
        # Neither side is always first, and the same call gives the same order again.
        order = crc32(self._request.call.encode()) + self._request.number
        first, second = self._views.both[:: 1 if order % 2 else -1]
        self._run(first, partial(self._wait, first, second))
        if self._found is None or self._refused:
            missed = f"not both came to {self._request.call} once more"
            return AbResult.unknown(self._refused or missed)
        return self._found

    def _run(self, view: View, arrive: Arrival) -> None:
        """Run the test of a version to its end: it passed alone, so it must pass here."""
        self._views.show(view)
        child.enter(view.guest.run)
        host = Host(self._device.torch_device, self._request.call, view, arrive)
        try:
            (ended,) = child.run_tests(view.guest.run, host)
        except (RunError, ValueError) as error:
            self._refuse(f"{view.name} beside the other: {error}")
            return
        if ended.ending is not Ending.PASSED:
            reason = ended.headline or ended.text
            self._refuse(
                f"{view.name} {ENDING_WORDS[ended.ending]} beside the other: {reason}"
            )

    def _refuse(self, why: str) -> None:
        """Keep the first reason; what was compared is void."""
        self._refused = self._refused or why

    def _wait(self, view: View, other: View) -> None:
        """Wait in the call of the first until the other one has come, and gone."""
        self._views.note(view)
        why = alone(view, self._beginning)
        if why is not None:
            self._refuse(why)
            return
        self._run(other, partial(self._meet, other))
        self._views.show(view)

    def _meet(self, view: View) -> None:
        try:
            self._found = self._compared()
        except ObjectionError as objection:
            self._refuse(str(objection))
        except (SkipTest, pytest.skip.Exception, pytest.fail.Exception) as ended:
            self._refuse(f"a step ended beside the other: {ended}")
        # Broad on purpose: this runs inside the user's test, which would fail by any
        # error of a step or of the comparison. The reason is reported, and pairs
        # decide.
        except Exception as error:  # noqa: BLE001
            self._refuse(f"beside each other: {type(error).__name__}: {error}")
        finally:
            self._views.show(view)

    def _compared(self) -> AbResult:
        before, after = (view.subject for view in self._views.both)
        assert before is not None and after is not None  # noqa: PT018, S101 - both came
        _object(changed(self._request.settings, process_settings()))
        self._try_out(before, after)
        self._examine()
        start_ns = self._device.now_ns()
        comparison = self._timed(before, after)
        seconds = (self._device.now_ns() - start_ns) / 1e9
        return replace(comparison, seconds=seconds)

    def _try_out(self, before: Subject, after: Subject) -> None:
        """Run each once, and see whether it writes to what the other one reads."""
        state = SharedState(before, after)
        for view, subject in zip(self._views.both, (before, after), strict=True):
            self._views.show(view)
            subject.run_once()
            tensor = state.changed()
            if tensor is not None:
                _object(
                    f"{view.name} changes {tensor}, which the other one uses as well"
                )

    def _examine(self) -> None:
        """Look for what either does to the other, now that each has imported it all."""
        # Hidden, so that ``sys.modules`` has only what both share when it is copied
        # below.
        self._views.hide()
        for view in self._views.both:
            _object(alone(view, self._beginning))
        _object(together(self._views.both, dict(sys.modules), self._beginning))

    def _timed(self, before: Subject, after: Subject) -> AbResult:
        request, device = self._request, self._device
        first, second = (partial(self._views.turn, v) for v in self._views.both)
        return compare_steps(
            device,
            *prepared(device, before, after, request.call),
            seconds=request.seconds,
            tolerance=request.tolerance,
            detect=request.detect,
            seed=crc32(request.call.encode()),
            enter=(first, second),
            block_ms=VERSION_BLOCK_MS,
        )


class Host(PlainRun):
    """The host of the fixture of one version: it measures nothing by itself."""

    def __init__(
        self, torch_device: str, call: str, view: View, arrive: Arrival
    ) -> None:
        self._torch_device = torch_device
        self._call = call
        self._view = view
        self._arrive = arrive
        self._taken: list[str] = []

    def torch_device(self) -> str:
        return self._torch_device

    def measure(self, call: FixtureCall, subject: Subject) -> object:
        """Run a step of another call once, as plain pytest does."""
        nodeid = call.item.nodeid
        key = call_key(nodeid, call.name, taken=self._taken, comparisons=())
        self._taken.append(key)
        if key == self._call:
            self._view.subject = subject
            self._arrive()
        return subject.run_once()

    def last(self, item: pytest.Item) -> Measurement | None:  # noqa: ARG002
        """Return what the call measured when the version was by itself."""
        known = {m.test: m for m in self._view.guest.measured}
        return known.get(self._taken[-1]) if self._taken else None

    def added_to(self, result: TestResult, test: str) -> TestResult:  # noqa: ARG002
        return result


def _object(why: str | None) -> None:
    if why is not None:
        raise ObjectionError(why)


def _device(request: TogetherRequest) -> MeasuringDevice:
    run = request.after.run
    if run.device is DeviceKind.SCRIPTED:
        before, after = map(_script, (request.before, request.after))
        device: MeasuringDevice = scripted_device().playing_both(
            before, after, request.call
        )
        return device
    return with_clock(open_device(run.device, root=str(run.project.rootdir)))


def _script(guest: Guest) -> str:
    return str(Path(guest.run.project.directory, str(guest.run.settings.script)))
