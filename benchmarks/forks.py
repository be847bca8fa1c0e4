"""Functions run in forks of this process, several at a time, each for so long at most."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A call with a result that a pipe can carry."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """A task's result, or why it has none."""

    name: str
    result: Any
    failure: str = ""


@dataclass(frozen=True, slots=True)
class _Fork:
    task: Task
    process: Any
    results: Connection
    deadline_s: float

    def end(self) -> Ended:
        """Take the result, or the process's life."""
        try:
            if self.results.poll():
                return self.results.recv()  # type: ignore[no-any-return]
        except EOFError:
            self.process.join()
            return Ended(self.task.name, None, f"exit status {self.process.exitcode}")
        else:
            return Ended(self.task.name, None, "it did not end")
        finally:
            self.process.kill()
            self.process.join()
            self.results.close()


def _run(task: Task, results: Connection) -> None:
    try:
        ended = Ended(task.name, task.function(*task.arguments))
    except Exception as error:  # noqa: BLE001, of whatever kind
        first, *_ = str(error).splitlines() or [""]
        ended = Ended(task.name, None, f"{type(error).__name__}: {first[:110]}")
    results.send(ended)
    results.close()
    os._exit(0)  # libraries that were loaded have nothing to tidy up


def _begun(task: Task, most_seconds: float) -> _Fork:
    context = multiprocessing.get_context("fork")
    results, ours = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(task, ours), daemon=True)
    process.start()
    ours.close()
    return _Fork(task, process, results, time.monotonic() + most_seconds)


def each_in_a_fork(
    tasks: Iterable[Task], *, jobs: int, most_seconds: float
) -> Iterator[Ended]:
    """Run *tasks*, *jobs* of them at a time; yield each as it ends."""
    waiting = iter(tasks)
    running: list[_Fork] = []
    while True:
        while len(running) < jobs and (task := next(waiting, None)) is not None:
            running.append(_begun(task, most_seconds))
        if not running:
            return
        left_s = min(fork.deadline_s for fork in running) - time.monotonic()
        ready = wait([fork.results for fork in running], max(0.0, left_s))
        for fork in list(running):
            if fork.results in ready or time.monotonic() >= fork.deadline_s:
                running.remove(fork)
                yield fork.end()
