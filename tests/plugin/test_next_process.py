"""The next measuring process starts pytest while a test runs, and reads no file of it."""

from __future__ import annotations

import os
from pathlib import Path

from scripted_project import ScriptedProject


READS_AHEAD = """
import os
fifo = os.open({fifo!r}, os.O_RDWR)
os.write(fifo, b".")
os.close(fifo)
"""

CONFTEST = """
import pytest
from pathlib import Path

LOG = Path(__file__).with_name("log.txt")

def log(line):
    with LOG.open("a") as file:
        file.write(line + "\\n")

log("conftest")

@pytest.fixture
def logged(request):
    yield
    log(f"end of {request.node.name}")
"""

WAITS_FOR_THE_NEXT = """
import os

@pytest.mark.parametrize("starts", [3, 1, 0])
def test_step(gpuperf, logged, starts):
    fifo = os.open("fifo", os.O_RDWR)
    for _ in range(starts):
        assert os.read(fifo, 1) == b"."
    gpuperf(lambda: None)
"""
"""Each test but the last waits for the next process: of three starts the first is that of
the controlling process, and the second its own."""


def test_the_next_process_starts_beside_a_test_and_reads_the_project_after_it(
    project: ScriptedProject,
) -> None:
    os.mkfifo(project.path / "fifo")
    kept = os.open(project.path / "fifo", os.O_RDWR)
    source = READS_AHEAD.format(fifo=str(project.path / "fifo"))
    project.pytester.makepyfile(reads_ahead=source)
    project.pytester.syspathinsert()
    project.pytester.makeconftest(CONFTEST)
    project.file(WAITS_FOR_THE_NEXT)

    project.run("-p", "reads_ahead", "--gpuperf-seconds=1").assert_outcomes(passed=3)

    os.close(kept)
    controlling, *measuring = Path(project.path, "log.txt").read_text().splitlines()
    assert controlling == "conftest"
    assert measuring == [
        "conftest",
        "end of test_step[3]",
        "conftest",
        "end of test_step[1]",
        "conftest",
        "end of test_step[0]",
    ]
