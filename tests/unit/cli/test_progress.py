"""What takes seconds says what it is at."""

from __future__ import annotations

from threading import Event

import pytest

from pytest_gpuperf.cli.progress import LOG_SECONDS
from pytest_gpuperf.cli.progress import TERMINAL_SECONDS
from pytest_gpuperf.cli.progress import ElapsedLine
from pytest_gpuperf.cli.progress import elapsed_shown


class _Due(Event):
    """Comes due so many times at once, and notes how long it would have waited."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.waited: list[float | None] = []
        self.was_shown = Event()
        self._times = times

    def wait(self, timeout: float | None = None) -> bool:
        self.waited.append(timeout)
        if len(self.waited) <= self._times:
            return False
        self.was_shown.set()
        return super().wait()


@pytest.mark.parametrize(
    ("is_terminal", "seconds", "written"),
    [
        (
            True,
            TERMINAL_SECONDS,
            [
                "gpuperf: memory: train.py, 2 s\r",
                "gpuperf: memory: train.py, 31 s\r",
                f"{' ' * 31}\r",
            ],
        ),
        (
            False,
            LOG_SECONDS,
            ["gpuperf: memory: train.py, 2 s\n", "gpuperf: memory: train.py, 31 s\n"],
        ),
    ],
    ids=["terminal", "log"],
)
def test_a_line_says_what_is_going_on_and_for_how_long(
    *,
    is_terminal: bool,
    seconds: float,
    written: list[str],
) -> None:
    found: list[str] = []
    line = ElapsedLine("memory: train.py", found.append, is_terminal=is_terminal)
    due, clock = _Due(2), iter((100.0, 102.0, 131.0))

    with elapsed_shown(line, due, lambda: next(clock)):
        due.was_shown.wait()

    assert found == written
    assert due.waited == [seconds] * 3


def test_what_is_over_at_once_writes_nothing() -> None:
    found: list[str] = []

    with elapsed_shown(ElapsedLine("audit", found.append, is_terminal=True), Event()):
        pass

    assert found == []
