"""How long two ranks take to start, through the warm fork server on the CPU device.

    python benchmarks/ranks.py [RUNS]

Asks RUNS (default 11) times for a test of two ranks whose step is empty. A run has
started when the last of the ranks is at the first line of the test, with its process
group initialised. Exits with 1 where the median is above the bar.
"""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Final

from pytest_gpuperf.model.codec import encode
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.ranks import Ranks
from pytest_gpuperf.runner.fork_server import HEAVY_MODULES
from pytest_gpuperf.runner.fork_server import ForkServer
from pytest_gpuperf.runner.fork_server import Job
from pytest_gpuperf.runner.request import Project
from pytest_gpuperf.runner.request import RunRequest


RUNS: Final = 11
COUNT: Final = 2
BAR_SECONDS: Final = 3.0

STARTED: Final = """
import time
import pytest_gpuperf as gpuperf
from torch import distributed

@gpuperf.ranks(2)
def test_step(gpuperf):
    now_ns = time.monotonic_ns()
    assert distributed.get_world_size() == 2
    with open(f"started{distributed.get_rank()}.txt", "w") as file: file.write(str(now_ns))
    gpuperf(int)
"""


def job_in(folder: Path) -> Job:
    test = folder / "test_started.py"
    test.write_text(STARTED)
    request = RunRequest(
        tests=(f"{test}::test_step",),
        device=DeviceKind.CPU,
        project=Project(
            directory=str(folder),
            search_path=tuple(sys.path),
            arguments=(f"--rootdir={folder}",),
        ),
        ranks=Ranks(count=COUNT, timeout_s=60.0),
        names=("test_started.py::test_step",),
    )
    return Job(
        entry="pytest_gpuperf.worker.ranks_child:measure", request=encode(request)
    )


def seconds_of(server: ForkServer, job: Job, folder: Path) -> tuple[float, float]:
    """Seconds from asking until the last rank is in the test, and to the result."""
    asked_ns = time.monotonic_ns()
    (result,) = server.run(job, seconds=90)
    ended_ns = time.monotonic_ns()
    assert result["ending"] == "passed", result["text"]
    started_ns = max(
        int((folder / f"started{rank}.txt").read_text()) for rank in range(COUNT)
    )
    return (started_ns - asked_ns) / 1e9, (ended_ns - asked_ns) / 1e9


def main() -> int:
    runs = int(sys.argv[1]) if sys.argv[1:] else RUNS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        job = job_in(folder)
        server = ForkServer(
            HEAVY_MODULES, warm="pytest_gpuperf.worker.child:warm_pytest"
        )
        with closing(server):
            server.wait_until_ready()
            seen = [seconds_of(server, job, folder) for _ in range(runs)]
    started, ended = zip(*seen, strict=True)
    print(f"{COUNT} ranks, {runs} runs: asked to the first line of the test on both")
    print(f"  median {median(started):.2f} s, bar {BAR_SECONDS:g} s")
    print(f"  from {min(started):.2f} to {max(started):.2f} s")
    print(f"asked to result (20 rounds of 10 ms): median {median(ended):.2f} s")
    return int(median(started) > BAR_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
