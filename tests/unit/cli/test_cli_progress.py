"""What takes seconds says what it is at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from pytest_gpuperf.cli import main, script_process, script_process as progress
from pytest_gpuperf.cli.script import Program
from pytest_gpuperf.cli.script_process import (
    FIRST_LOG_SECONDS,
    LOG_SECONDS,
    TERMINAL_SECONDS,
    Asked,
    ElapsedLine,
    ScriptRequest,
    elapsed_shown,
    standard_error,
)


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
    ("is_terminal", "waited", "written"),
    [
        (
            True,
            [TERMINAL_SECONDS] * 4,
            [
                "gpuperf: memory: train.py, 2 s\r",
                "gpuperf: memory: train.py, 8,192 operations, 31 s\r",
                "gpuperf: memory: train.py, step 2 of 4, 61 s     \r",
                f"{' ' * 49}\r",
            ],
        ),
        (
            False,
            [FIRST_LOG_SECONDS, *[LOG_SECONDS] * 3],
            [
                "gpuperf: memory: train.py, 2 s\n",
                "gpuperf: memory: train.py, 8,192 operations, 31 s\n",
                "gpuperf: memory: train.py, step 2 of 4, 61 s\n",
            ],
        ),
    ],
    ids=["terminal", "log"],
)
def test_a_line_says_what_is_going_on_and_where_and_for_how_long(
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_terminal: bool,
    waited: list[float],
    written: list[str],
) -> None:
    monkeypatch.setattr(progress, "FIRST_LOG_SECONDS", FIRST_LOG_SECONDS)
    found: list[str] = []
    doing = iter(
        f"memory: train.py{where}"
        for where in ("", ", 8,192 operations", ", step 2 of 4")
    )
    line = ElapsedLine(doing.__next__, found.append, is_terminal=is_terminal)
    due, clock = _Due(3), iter((100.0, 102.0, 131.0, 161.0))

    with elapsed_shown(line, due, lambda: next(clock)):
        due.was_shown.wait()

    assert found == written
    assert due.waited == waited


def test_what_is_over_at_once_writes_nothing() -> None:
    found: list[str] = []
    line = ElapsedLine(lambda: "audit", found.append, is_terminal=True)

    with elapsed_shown(line, Event()):
        pass

    assert found == []


PROGRAM = Program(name="train.py", is_module=False, arguments=())


@pytest.mark.parametrize(
    ("asked", "step", "ops", "said"),
    [
        (Asked.MEMORY, 2, 640, "memory: train.py, step 2 of 4"),
        (Asked.AUDIT, 17, 640, "audit: train.py, step 17"),
        (Asked.MEMORY, 0, 12_288, "memory: train.py, 12,288 operations"),
        (Asked.AUDIT, 0, 0, "audit: train.py"),
    ],
)
def test_a_program_is_in_a_step_or_some_operations_from_its_start(
    asked: Asked, step: int, ops: int, said: str
) -> None:
    request = ScriptRequest(program=PROGRAM, root="", asked=asked, steps=4)

    assert request.doing(step, ops) == said


TRAINING = """\
import torch

weight = torch.ones(1, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([weight])
for _ in range(9):
    (weight * 2).sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["audit"], "audit: train.py, step 10"),
        (["memory", "--no-values", "--steps=3"], "memory: train.py, step 3 of 3"),
    ],
    ids=["audit", "memory"],
)
def test_a_command_knows_where_its_program_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: list[str], said: str
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TRAINING, encoding="utf-8")
    doing: list[Callable[[], str]] = []

    def line(of: Callable[[], str]) -> ElapsedLine:
        doing.append(of)
        return standard_error(of)

    monkeypatch.setattr(script_process, "standard_error", line)

    assert main([*command, "train.py"]) == 0
    assert [each() for each in doing] == [said]
