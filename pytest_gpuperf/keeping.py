"""Keeps what a run showed in the history that its project names: a file a run."""

from __future__ import annotations

import os
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from secrets import token_hex
from time import time
from typing import Any
from typing import Protocol

import pytest

from .assessed import Assessment
from .commits.head import commit_of
from .errors import GpuperfError
from .history.document import dumps
from .history.document import moment_of
from .history.place import SUFFIX
from .history.place import place_at
from .history.place import shown
from .model.history import CallRow
from .model.verdict import TestVerdict
from .model.verdict import worst_of
from .report.wrapping import wrapped


SHORT = 12
"""Digits of a commit in the name of a file."""

DIGITS = 6
"""Significant digits of a number that is no whole one, as in ``results.json``."""


class Run(Protocol):
    """The plugin that measures."""

    @property
    def assessment(self) -> Assessment | None:
        """What came of it, once it has measured."""


class HistoryKeeper:
    """Writes the file of one run when it is over; what cannot be written is said."""

    def __init__(
        self,
        location: str,
        root: Path,
        run: Run,
        *,
        now: Callable[[], float] = time,
        token: Callable[[int], str] = token_hex,
    ) -> None:
        self._location = location
        self._root = root
        self._run = run
        self._now = now
        self._token = token
        self._kept = ""
        self._failure = ""

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Write before pytest begins its summary; nothing where nothing was measured."""
        found = self._run.assessment
        rows = list(self._rows(found)) if found else []
        if not rows:
            return
        name = name_of(rows[0], self._token(4))
        try:
            place_at(self._location).write(name, dumps(rows))
            self._kept = f"history: {name} in {shown(self._location)}"
        except GpuperfError as error:
            self._failure = f"the history lacks this run: {error}"

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._failure:
            for line in wrapped(f"gpuperf: {self._failure}"):
                terminalreporter.write_line(line, yellow=True)
        elif self._kept and terminalreporter.config.get_verbosity() > 0:
            terminalreporter.write_line(self._kept)

    def _rows(self, found: Assessment) -> Iterator[CallRow]:
        origin = found.origin
        commit = origin.commit if origin else commit_of(self._root, os.environ)
        for verdict in found.verdicts:
            row = CallRow(
                test=verdict.test.encode(errors="backslashreplace").decode(),
                hardware=found.hardware.key,
                recorded_at=moment_of(self._now()),
                commit=commit,
                dirty=origin.dirty if origin else None,
                versions=found.software,
                metrics=dict(values_of(verdict)),
                outcomes=dict(outcomes_of(verdict)),
            )
            if row.metrics:
                yield row


def name_of(row: CallRow, token: str) -> str:
    """Return a name that no other run gives its file: hardware, time, commit, chance."""
    when = row.recorded_at.replace("-", "").replace(":", "")
    commit = "".join(filter(str.isalnum, row.commit or ""))[:SHORT] or "nocommit"
    return f"{row.hardware}/{when}-{commit}-{token}{SUFFIX}"


def values_of(verdict: TestVerdict) -> Iterator[tuple[str, float]]:
    """Yield each metric's value as the verdict has it; counts and bytes are whole."""
    for v in verdict.verdicts:
        if v.now is not None and isfinite(v.now):
            is_whole = float(v.now).is_integer()
            yield v.metric, v.now if is_whole else float(f"{v.now:.{DIGITS}g}")


def outcomes_of(verdict: TestVerdict) -> Iterator[tuple[str, str]]:
    """Yield the worst outcome of each metric that has a value."""
    for metric in _measured(verdict):
        worst = worst_of(v.outcome for v in verdict.verdicts if v.metric == metric)
        if worst:
            yield metric, worst.value


def _measured(verdict: TestVerdict) -> Iterable[str]:
    return dict.fromkeys(metric for metric, _ in values_of(verdict))
