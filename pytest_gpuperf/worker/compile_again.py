"""Compiles the calls of a run once more in a new process, with the caches of the first.

A step that is compiled again in the same process finds more than its caches on disk:
modules, code and answers that are in memory. Only a process of its own starts as the
next training run does. It is started once the tests have ended, so that the GPU's memory
is not needed twice.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from subprocess import DEVNULL
from subprocess import TimeoutExpired
from tempfile import TemporaryDirectory
from typing import Any
from typing import Final

from ..devices.compile import release_unused_memory
from ..devices.process_time import patience_for
from ..files import scratch_folder
from ..measure.plan import longest_run
from ..model.codec import decode
from ..model.compile_metrics import COMPILE_S
from ..model.compile_metrics import COMPILE_TIMES
from ..model.compile_metrics import COMPILE_WARM_S
from ..model.known_calls import nodeid_of
from ..model.measurement import Measurement
from ..model.run import CompileTiming
from ..model.run import Ending
from ..model.run import RunMode
from ..model.run import StepCall
from ..model.run import TestResult
from ..runner.request import RunRequest
from ..sharing.processes import Reply
from ..sharing.processes import death
from ..sharing.processes import last_words
from ..sharing.processes import spawn


# Folders of what each call compiles.

NAME_LENGTH: Final = 16
"""Characters of a call's folder: keys have slashes and may be long."""

IN_ONE_PROCESS: Final = (
    "only a second process can compile it again, and --gpuperf-inline has none"
)

ON_RANKS: Final = "the compiler is timed only without gpuperf.ranks"


class CompileFolders:
    """Says of which calls the compiler is timed, and in which folder each has its caches.

    They are below *root* where an earlier process has filled them, else new ones.
    """

    def __init__(self, timing: CompileTiming, root: str = "") -> None:
        self._timing = timing
        self._root = root
        self._scratch: TemporaryDirectory[str] | None = None
        self.again: list[str] = []
        """Calls that a second process is to compile, by key."""

    @property
    def root(self) -> Path:
        """The folder of all; a new one is made when it is first asked for."""
        if not self._root:
            self._scratch = scratch_folder()
            self._root = self._scratch.name
        return Path(self._root)

    def folder(self, call: str, asked: Collection[str]) -> Path | None:
        """Return the folder of *call*, if its compiler is timed."""
        if not self._asked(asked):
            return None
        return self.root / hashlib.sha256(call.encode()).hexdigest()[:NAME_LENGTH]

    def completed(
        self, measurement: Measurement, asked: Collection[str]
    ) -> Measurement:
        """Say why *measurement* lacks a time that was *asked* for."""
        names = self._asked(asked)
        found = measurement.times
        if COMPILE_S.name in found and COMPILE_WARM_S.name in names:
            self.again.append(measurement.test)
            return measurement.missing({COMPILE_WARM_S.name: IN_ONE_PROCESS})
        unsaid = [n for n in names if n not in found and not measurement.why_none(n)]
        return measurement.lacking(dict.fromkeys(unsaid, ON_RANKS))

    def _asked(self, asked: Collection[str]) -> list[str]:
        if self._timing is CompileTiming.NEVER:
            return []
        is_always = self._timing is CompileTiming.ALWAYS
        return [m.name for m in COMPILE_TIMES if is_always or m.name in asked]

    def close(self) -> None:
        """Remove the folders, unless another process made them."""
        if self._scratch is not None:
            self._scratch.cleanup()


# The second process, and what it found.

ENDING_SECONDS: Final = 10.0
"""What this process has left to report, before it would be killed itself."""


def compiled_again(
    request: RunRequest,
    results: Sequence[TestResult],
    folders: CompileFolders,
    spent_s: float,
) -> Sequence[TestResult]:
    """Return *results* with what a second process takes to compile their calls.

    It has what *spent_s*, the seconds of this process so far, leave of a run.
    """
    if not folders.again:
        return results
    wanted = set(map(nodeid_of, folders.again))
    arguments = [
        argument
        for name, argument in zip(request.names, request.tests, strict=True)
        if name in wanted
    ]
    release_unused_memory()
    second = replace(
        request,
        tests=tuple(arguments),
        names=tuple(name for name in request.names if name in wanted),
        mode=RunMode.COMPILE_AGAIN,
        caches=str(folders.root),
        visible=None,  # this process sees no other GPU either
    )
    left_s = (
        longest_run(len(request.tests), request.settings.seconds)
        - spent_s
        - ENDING_SECONDS
    )
    found = _in_second_process(second, folders.root, left_s)
    if isinstance(found, str):
        return [_joined(result, folders.again, {}, found) for result in results]
    by_test = {result.test: result for result in found}
    return [
        _joined(result, folders.again, *_seen(by_test.get(result.test)))
        for result in results
    ]


def _in_second_process(
    request: RunRequest, folder: Path, left_s: float
) -> list[TestResult] | str:
    """Return the results of *request*, or why there are none after *left_s* seconds."""
    output = folder / "output.txt"
    try:
        with output.open("wb") as written:
            code, answers = spawn(
                "pytest_gpuperf.worker.compile_again:be_second_process",
                request,
                outlasted=patience_for(max(0.0, left_s)).outlasted_by,
                stdin=DEVNULL,
                stdout=written,
                stderr=written,
            )
    except TimeoutExpired:
        return "no time was left to compile it again: raise --gpuperf-seconds"
    if code or answers is None:
        words = last_words(output)
        return f"the process to compile it again {death(code)}: {words}"
    return [decode(TestResult, one) for one in answers]


def be_second_process(request: Mapping[str, Any], reply: Reply) -> None:
    """Measure what a ``RunRequest`` names, where the project finds its modules."""
    sys.path[:] = request["project"]["search_path"]
    # Late: it imports this module.
    from .child import measure

    reply(measure(request))


def _seen(found: TestResult | None) -> tuple[Mapping[str, Measurement], str]:
    """Return what a second process measured, and why anything is missing."""
    if found is None:
        return {}, "the test did not run in the process to compile it again"
    calls = {call.measurement.test: call.measurement for call in found.calls}
    if found.ending is Ending.PASSED:
        return (
            calls,
            "the test did not make this call in the process to compile it again",
        )
    words = found.headline or found.text
    return calls, f"the test {found.ending.value} where it was compiled again: {words}"


def _joined(
    result: TestResult,
    again: Collection[str],
    found: Mapping[str, Measurement],
    why_none: str,
) -> TestResult:
    calls = tuple(
        _with_time(call, found.get(call.measurement.test), why_none)
        if call.measurement.test in again
        else call
        for call in result.calls
    )
    return replace(result, calls=calls)


def _with_time(call: StepCall, found: Measurement | None, why_none: str) -> StepCall:
    name, first = COMPILE_WARM_S.name, call.measurement
    if found is None or name not in found.times:
        why = (found.why_none(name) if found else "") or why_none
        return replace(call, measurement=first.missing({name: why}))
    return replace(
        call,
        measurement=replace(
            first,
            times={**first.times, name: found.times[name]},
            samples={**first.samples, name: found.samples[name]},
            unwaited={**first.unwaited, name: found.unwaited[name]},
            missed={key: why for key, why in first.missed.items() if key != name},
        ),
    )
