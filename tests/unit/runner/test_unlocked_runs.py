"""Only what is timed waits for a device that another run times on."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from pytest_gpuperf.devices.slots import slots_of
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.environment import DeviceSlot
from pytest_gpuperf.runner.fork_server import Job
from pytest_gpuperf.runner.pool import WorkerPool
from pytest_gpuperf.runner.progress import Progress
from pytest_gpuperf.runner.request import Planned
from pytest_gpuperf.runner.request import Project
from pytest_gpuperf.runner.reservation import Unlocked
from pytest_gpuperf.runner.reservation import turns_at
from pytest_gpuperf.settings import Settings
from pytest_gpuperf.sharing.device_lock import DeviceLock
from pytest_gpuperf.sharing.device_lock import lock_folder


TEST = "test_it.py::test_step"


class Server:
    """Answers each job at once: on a CPU, which has a lock."""

    def __init__(self) -> None:
        self.jobs: list[str] = []

    def take(self) -> Any:
        return self

    def run(self, job: Job, seconds: float) -> dict[str, object]:
        slots = [{"visible": None, "lock": "cpu-held", "board": None}]
        hardware = {"kind": "cpu", "name": "a CPU"}
        return {"environment": {"hardware": hardware, "software": {}}, "slots": slots}

    def start(self, job: Job, seconds: float) -> int:
        self.jobs.append(job.entry)
        return len(self.jobs)

    def ended(self, seconds: float) -> tuple[int, object]:
        return len(self.jobs), []

    def send_progress_to(self, on_progress: object) -> None: ...
    def wait_until_ready(self) -> None: ...
    def close(self) -> None: ...


def test_a_run_under_coverage_is_not_timed_and_waits_for_nobody() -> None:
    server: Any = Server()
    settings = Settings(lock_seconds=0.0)
    pool = WorkerPool(settings, Project(), lambda _: None, Progress(None), server)
    plan = {TEST: Planned(test=TEST, argument=TEST, module="test_it.py")}

    with closing(pool), closing(DeviceLock(lock_folder(), "cpu-held")) as lock:
        assert lock.try_exclusive()
        pool.environment()
        pool.assign([(TEST,)], lambda _: None, {}, {}, {})
        pool.cover(DeviceKind.CPU, plan, [(TEST,)], {})

    assert server.jobs == ["pytest_gpuperf.worker.unmeasured:cover"]


def test_what_is_counted_on_the_simulated_gpu_waits_for_nobody() -> None:
    (slot,) = slots_of(DeviceKind.PRETEND, None)

    assert slot == DeviceSlot()
    assert isinstance(turns_at(slot, 0.0, pytest.fail), Unlocked)
