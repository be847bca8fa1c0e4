"""Workers, measuring processes and fork servers that are killed: is a verdict lost?

    python benchmarks/kills.py run [--kills 1000] [--minutes 60] [--out FILE]
    python benchmarks/kills.py show [FILE]

``pytest --gpuperf -n2`` measures twelve tests on the scripted device, beside ordinary
ones that wait for its lock. At random moments a random one of its processes gets
SIGKILL: a worker of pytest-xdist, a process that measures, or the fork server. In every
second run one test has become slower; in half of them the tests of a file share a
process. After each run: it exited with another status than 0, or nothing had become slower,
all twelve verdicts stand in ``results.json`` and are counted in the terminal, and pytest
counts every test; ``results.json`` does not say that a failed run passed; no process,
lock or temporary folder is left. Two runs go on at once, until ``--kills`` processes were
killed or ``--minutes`` have passed. A file that is there is continued. Exits with 1 where
anything else was found. Linux only.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from contextlib import suppress
from dataclasses import asdict
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL
from threading import Lock
from typing import Any
from typing import Final

import continued
from continued import load
from scripted import ON_PATH

from pytest_gpuperf.sharing.device_lock import DeviceLock


RESULTS: Final = Path(__file__).parent / "results" / "kills.jsonl"
LANES: Final = 2
WEIGHTS: Final = {"worker": 3, "child": 9, "server": 1}
"""How often a process of a kind is chosen of those that are there: few measure at a time,
and without its server a run is soon over."""

MOST_KILLS: Final = 5
"""Processes that are to be killed in one run: one to so many, if it lasts."""

HANGS_SECONDS: Final = 120.0
ORPHAN_SECONDS: Final = 5.0

FILES: Final = 4
MEASURED: Final = 3
ORDINARY: Final = 5
"""Files, and tests in each."""

SUITE: Final = """
import pytest

@pytest.mark.parametrize("n", range({first}, {first} + {measured}))
def test_step(gpuperf, n): gpuperf(int)

@pytest.mark.parametrize("n", range({ordinary}))
def test_plain(n): pass
"""
TESTS: Final = frozenset(
    f"test_{n // MEASURED}.py::test_step[{n}]" for n in range(FILES * MEASURED)
)
SLOWER: Final = "test_step[7]"
PASSED: Final = f"{FILES * (MEASURED + ORDINARY)} passed"
COUNTED: Final = f"gpuperf: {len(TESTS)} pass on scripted"

MARK: Final = "KILLS_RUN"
"""Environment variable by which every process of a run is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run: what was killed in it and when, how it ended, and what is wrong."""

    number: int
    slower: bool
    killed: list[str]
    at: list[float]
    seconds: float
    code: int
    faults: list[str]


def suite(number: int) -> str:
    return SUITE.format(first=number * MEASURED, measured=MEASURED, ordinary=ORDINARY)


class Project:
    """A folder with the tests and their baselines, its own locks and temporary files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.temporary = folder / "temporary"
        self.temporary.mkdir(parents=True)
        for number in range(FILES):
            (folder / f"test_{number}.py").write_text(suite(number), encoding="utf-8")
        self.script(slower=False)
        with self.start("none", "--gpuperf-update=missing") as process:
            code = process.wait()
        if code:
            sys.exit(f"the baselines could not be recorded, pytest ended with {code}")

    def script(self, *, slower: bool) -> None:
        played = {"*": {"step_ms": 10.0}, "slots": ["gpu-a"]}
        if slower:
            played[SLOWER] = {"step_ms": 12.0}
        (self.folder / "script.json").write_text(json.dumps(played), encoding="utf-8")

    def start(self, mark: str, *arguments: str) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            MARK: mark,
            "GPUPERF_ALLOW_CI_UPDATE": "1",
            "GPUPERF_SCRIPT": "script.json",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_PLUGINS": "pytest_gpuperf.plugin,xdist.plugin",
            **ON_PATH,
            "TMPDIR": str(self.temporary),
            "XDG_RUNTIME_DIR": str(self.folder),
        }
        options = (
            "--gpuperf",
            "--gpuperf-device=scripted",
            "--override-ini=gpuperf_lock=all",
        )
        with (self.folder / "output.txt").open("wb") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "pytest", "-q", "-n2", *options, *arguments],
                cwd=self.folder,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def output(self) -> str:
        return (self.folder / "output.txt").read_text(errors="replace")

    @property
    def results(self) -> dict[str, Any]:
        """What the run left; nothing where it left no file."""
        path = self.folder / ".gpuperf" / "results.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def is_free(self) -> bool:
        """Whether the device's lock can be had."""
        with closing(DeviceLock(self.folder / "gpuperf", "gpu-a")) as lock:
            return lock.try_exclusive()


def pids() -> Iterator[int]:
    return (int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal())


def read(pid: int, name: str) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
    return ""


def parents() -> dict[int, int]:
    stats = {pid: read(pid, "stat") for pid in pids()}
    return {
        pid: int(stat.rpartition(")")[2].split()[1])
        for pid, stat in stats.items()
        if stat
    }


def targets(pytest: int) -> dict[str, list[int]]:
    """Return the processes of a run that may be killed, by what they are."""
    parent_of = parents()
    found: dict[str, list[int]] = {}
    for pid, parent in parent_of.items():
        command = read(pid, "cmdline")
        if parent == pytest and "sys.stdin.readline" in command:
            found.setdefault("worker", []).append(pid)
        if parent == pytest and "pytest_gpuperf.runner.fork_server_process" in command:
            found.setdefault("server", []).append(pid)
        if parent_of.get(parent) == pytest and "runs.server" in command:
            found.setdefault("child", []).append(pid)
    return found


def marked(mark: str) -> list[int]:
    return [pid for pid in pids() if f"{MARK}={mark}\0" in read(pid, "environ")]


def kill_one(pytest: int, draw: random.Random) -> str | None:
    """Kill a process of a run, of a kind that is drawn; return the kind."""
    found = targets(pytest)
    if not found:
        return None
    kinds = sorted(found)
    (kind,) = draw.choices(kinds, [WEIGHTS[kind] for kind in kinds])
    try:
        os.kill(draw.choice(found[kind]), SIGKILL)
    except ProcessLookupError:
        return None
    return kind


def once(project: Project, number: int, seconds: float) -> Row:
    """Run, kill at random moments of so many *seconds*, and look at what is left."""
    draw, slower = random.Random(number), bool(number % 2)  # noqa: S311
    moments = [draw.uniform(0, seconds) for _ in range(draw.randint(1, MOST_KILLS))]
    project.script(slower=slower)
    mark = f"{os.getpid()}-{number}"
    begun = time.monotonic()
    isolation = ("test", "module")[number // 2 % 2]
    process = project.start(mark, f"--override-ini=gpuperf_isolation={isolation}")
    killed, at = [], []
    for moment in sorted(moments):
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(begun + moment - time.monotonic(), 0))
            break
        kind = kill_one(process.pid, draw)
        if kind:
            killed.append(kind)
            at.append(round(time.monotonic() - begun, 3))
    code = end_of(process)
    took = round(time.monotonic() - begun, 3)
    return Row(
        number=number,
        slower=slower,
        killed=killed,
        at=at,
        seconds=took,
        code=code,
        faults=[*faults(project, code, slower=slower), *left(project, mark)],
    )


def end_of(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(HANGS_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def faults(project: Project, code: int, *, slower: bool) -> Iterator[str]:
    """Say what is wrong with a run that ended with *code*."""
    results = project.results
    told = results.get("exit_status")
    if code < 0:
        yield "it hung" if code == -SIGKILL else f"it was killed by signal {-code}"
    if told not in {code, None}:
        yield f"it exited with {code}, and results.json says {told}"
    if code == 1:
        named = {*results["tests"], *results["unreported"]}
        yield from (f"{test} is not accounted for" for test in TESTS - named)
    if code == 0:
        yield from lost(results, project.output, slower=slower)


def lost(results: dict[str, Any], output: str, *, slower: bool) -> Iterator[str]:
    """Say which verdict of a green run is missing."""
    if slower:
        yield f"{SLOWER} is slower and the run is green"
    tests = results.get("tests", {})
    for test in TESTS:
        if tests.get(test, {}).get("outcome") != "pass":
            yield f"{test} has no verdict and the run is green"
    if results.get("unreported") or set(results.get("selected", ())) != TESTS:
        yield "results.json does not list every test"
    if COUNTED not in output:
        yield "the terminal does not count every verdict"
    if not re.search(rf"^{PASSED}", output, re.MULTILINE):
        yield "pytest does not count every test"


def left(project: Project, mark: str) -> Iterator[str]:
    """Say what a run left behind that has ended."""
    until = time.monotonic() + ORPHAN_SECONDS
    while (orphans := marked(mark)) and time.monotonic() < until:
        time.sleep(0.02)
    for pid in orphans:
        yield f"left: {' '.join(read(pid, 'cmdline').split(chr(0)))[:60]}"
        with suppress(ProcessLookupError):
            os.kill(pid, SIGKILL)
    if not project.is_free():
        yield "the lock is held"
    for path in project.temporary.glob("gpuperf-*"):
        yield f"left: {path.name}"
        subprocess.run(["rm", "-rf", path], check=True)  # noqa: S607


def run(kills: int, minutes: float, out: Path) -> None:
    end = time.monotonic() + 60 * minutes
    out.parent.mkdir(exist_ok=True)
    rows = load(out, Row)
    turn = Lock()
    numbers = iter(range(len(rows), sys.maxsize))

    def lane(folder: Path) -> None:
        project = Project(folder)
        seconds = alone(project)
        while time.monotonic() < end and sum(len(r.killed) for r in rows) < kills:
            with turn:
                number = next(numbers)
            row = once(project, number, seconds)
            with turn, out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(row)) + "\n")
                rows.append(row)
            if row.faults:
                keep(project, out, row)

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(LANES) as pool:
        lanes = [pool.submit(lane, Path(folder, str(n))) for n in range(LANES)]
        for one in lanes:
            one.result()


def alone(project: Project) -> float:
    """Return how many seconds a run takes in which nothing is killed."""
    begun = time.monotonic()
    mark = f"{os.getpid()}-alone-{project.folder.name}"
    with project.start(mark) as process:
        code = process.wait()
    found = [*faults(project, code, slower=False), *left(project, mark)]
    if code or found:
        sys.exit(f"a run in which nothing was killed ended with {code}: {found}")
    return time.monotonic() - begun


def keep(project: Project, out: Path, row: Row) -> None:
    """Keep what a faulty run printed beside the results."""
    path = out.with_name(f"{out.stem}-{row.number}.txt")
    path.write_text(project.output, encoding="utf-8")


def show(rows: Sequence[Row]) -> bool:
    """Print the table; say whether every run is without a fault."""
    killed = Counter(kind for row in rows for kind in row.killed)
    kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(killed.items()))
    seconds = sum(row.seconds for row in rows)
    print(f"{len(rows)} runs in {seconds:.0f} s, {killed.total()} kills: {kinds}")
    print("exit status   nothing slower   one test slower")
    for code in sorted({row.code for row in rows}):
        same, slower = (
            sum(row.code == code and row.slower is which for row in rows)
            for which in (False, True)
        )
        print(f"{code:11}   {same:14}   {slower:15}")
    green = [row for row in rows if row.code == 0 and row.killed]
    print(f"green although processes were killed: {len(green)}, with every verdict")
    wrong = [row for row in rows if row.faults]
    for row in wrong:
        print(f"run {row.number}, killed {row.killed}: {'; '.join(row.faults)}")
    print(f"runs with a fault: {len(wrong)}, bar 0")
    return bool(rows) and not wrong


def main() -> int:
    return continued.main(
        str(__doc__),
        RESULTS,
        1000,
        run,
        lambda path: show(load(path, Row)),
        counted="kills",
    )


if __name__ == "__main__":
    sys.exit(main())
