"""Threads of Python share one lock, processes do not: workers of a loader are processes.

No clock shows it here. While this thread computes and never waits, another thread does not
get to its one line, and another process does.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from mmap import mmap

import pytest


OTHER = """\
import sys
from mmap import mmap
with open(sys.argv[1], "r+b") as file, mmap(file.fileno(), 1) as done:
    sys.stdin.readline()
    done[0] = 1
"""


@pytest.fixture
def uninterrupted():
    """Let no thread ask for the lock: it is handed on where its holder waits."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        pytest.skip("this Python has no such lock")
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(interval)


def compute_until(done, most):
    """Count up to *most*, or until somebody else sets *done*; return what it is."""
    count = 0
    while not done[0] and count < most:
        count += 1
    return done[0]


def done_beside_a_thread():
    done, start = bytearray(1), threading.Event()

    def work():
        start.wait()
        done[0] = 1

    thread = threading.Thread(target=work)
    thread.start()
    start.set()
    beside = compute_until(done, most=1_000_000)
    thread.join()
    assert done[0] == 1
    return beside


def done_beside_a_process(path):
    path.write_bytes(b"\0")
    command = [sys.executable, "-c", OTHER, str(path)]
    with (
        path.open("r+b") as file,
        mmap(file.fileno(), 1) as done,
        subprocess.Popen(command, stdin=subprocess.PIPE) as process,  # noqa: S603
    ):
        process.stdin.write(b"start\n")
        process.stdin.flush()
        return compute_until(done, most=2_000_000_000)  # minutes: it never came


@pytest.mark.claim("C15")
@pytest.mark.usefixtures("uninterrupted")
def test_a_process_goes_on_where_a_thread_waits(tmp_path, shown):
    beside_a_thread = done_beside_a_thread()
    beside_a_process = done_beside_a_process(tmp_path / "done")

    shown(beside_a_thread, beside_a_process, "done beside")
    assert (beside_a_thread, beside_a_process) == (0, 1)
