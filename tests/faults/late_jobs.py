"""Jobs that never end, each in its own way, and one that is only kept off its core."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, NoReturn


Request = Mapping[str, Any]

LOOP = "while True: pass"


def sleep(request: Request) -> NoReturn:
    while True:
        time.sleep(3600)


def wait_for_input(request: Request) -> NoReturn:
    os.read(os.pipe()[0], 1)
    raise AssertionError


def wait_for_a_lock(request: Request) -> NoReturn:
    lock = threading.Lock()
    with lock:
        lock.acquire()
    raise AssertionError


def be_stopped(request: Request) -> NoReturn:
    os.kill(os.getpid(), signal.SIGSTOP)
    raise AssertionError


def poll(request: Request) -> NoReturn:
    while True:
        time.sleep(0.01)


def wait_for_many_threads(request: Request) -> NoReturn:
    never = threading.Event()
    for _ in range(50):
        threading.Thread(target=never.wait, daemon=True).start()
    never.wait()
    raise AssertionError


def loop(request: Request) -> NoReturn:
    while True:
        pass


def loop_in_a_thread(request: Request) -> NoReturn:
    thread = threading.Thread(target=loop, args=(request,))
    thread.start()
    thread.join()
    raise AssertionError


def loop_in_a_child(request: Request) -> NoReturn:
    subprocess.run([sys.executable, "-c", LOOP], check=False)
    raise AssertionError


def loop_in_a_session_of_its_own(request: Request) -> NoReturn:
    subprocess.run([sys.executable, "-c", LOOP], check=False, start_new_session=True)
    raise AssertionError


def loop_in_children_of_every_core(request: Request) -> NoReturn:
    count = 4 * (os.cpu_count() or 1)
    children = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(count)]
    for child in children:
        child.wait()
    raise AssertionError


def compute_on_a_busy_core(request: Request) -> float:
    """Return how long it took to get so many seconds of *core*, which others have too."""
    os.sched_setaffinity(0, {request["core"]})
    began, cpu_s = time.monotonic(), time.process_time()
    while time.process_time() < cpu_s + request["cpu_s"]:
        pass
    return time.monotonic() - began
