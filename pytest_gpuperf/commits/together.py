"""What is asked of a process in which both versions stand, and what it answers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from typing import Final

from ..errors import RunError
from ..gate import Case
from ..judge.commits import judge_together
from ..judge.commits import limits_together
from ..judge.reference import Limits
from ..model.codec import decode
from ..model.codec import encode
from ..model.comparison import Comparison
from ..model.measurement import Measurement
from ..model.run import RunRequest
from ..runs.fork_server import Job
from ..runs.fork_server import moved_path
from ..runs.relocation import Relocation
from .objections import unlike
from .pairs import Both
from .pairs import Told
from .side import Side
from .side import patience


TRACEBACK: Final = "Traceback (most recent call last):"

LEAST_SHARE: Final = 0.5
"""Share of the time cap of a test that its pair leaves to both versions in turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """One version: how its test is run, and where its code stands.

    ``measured`` is what its test saw of itself when it was by itself.
    """

    run: RunRequest
    relocation: Relocation
    environment: Mapping[str, str]
    measured: tuple[Measurement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TogetherRequest:
    """Asks for a comparison of one *call* of both versions.

    ``settings`` are what both found when they made it, each by itself.
    """

    before: Guest
    after: Guest
    call: str
    tolerance: float
    detect: float
    seconds: float
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TogetherResult:
    """A comparison that took ``seconds``, or why there is none."""

    comparison: Comparison | None = None
    refused: str = ""
    seconds: float = 0.0


class Together:
    """Measures the calls of a test that passed on both sides, each in one process."""

    def __init__(self, before: Side, after: Side, seconds: float) -> None:
        """*seconds* cap what one test may cost, its first pair included."""
        self._before = before
        self._after = after
        self._seconds = seconds

    def __call__(self, both: Both) -> Mapping[str, Told]:
        """Return how each call compares that has a time, or why it does not."""
        found: dict[str, Told] = {}
        for call in both.after.calls.keys() & both.before.calls.keys():
            limits = limits_together(both.newest_pair(call), both.tolerance_of(call))
            if limits is not None:
                found[call] = self._compared(both, call, limits)
        return found

    def _compared(self, both: Both, call: str, limits: Limits) -> Told:
        alone = self._before.settings[call]
        different = unlike(alone, self._after.settings[call])
        if different:
            return different
        left = max(LEAST_SHARE * self._seconds, self._seconds - both.seconds)
        request = TogetherRequest(
            before=_guest(self._before, both.before),
            after=_guest(self._after, both.after),
            call=call,
            tolerance=limits.tolerance,
            detect=limits.detect,
            seconds=left,
            settings=alone,
        )
        return _told(self._answer(request))

    def _answer(self, request: TogetherRequest) -> TogetherResult:
        """Ask a process that is forked from the server of ``after``."""
        entry = "pytest_gpuperf.commits.meeting:compare"
        job = Job(entry=entry, request=encode(request))
        try:
            answer = self._after.ask(job, patience(self._seconds))
        except RunError as error:
            return TogetherResult(refused=_briefly(str(error)))
        return decode(TogetherResult, answer)


def _guest(side: Side, case: Case) -> Guest:
    return Guest(
        run=side.request((case.test,), 0),
        relocation=side.relocation,
        environment=moved_path(os.environ, side.relocation),
        measured=tuple(call.measurement for call in case.last.calls),
    )


def _briefly(text: str) -> str:
    """Leave out all lines of a traceback but the last."""
    first, *rest = text.splitlines()
    return f"{first.removesuffix(TRACEBACK)}{rest[-1]}" if rest else first


def _told(result: TogetherResult) -> Told:
    if result.comparison is None:
        return result.refused
    return judge_together(result.comparison, result.seconds) or result.comparison.why
