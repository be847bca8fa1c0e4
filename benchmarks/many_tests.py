"""What many tests cost: merging the results of many shards, and measuring one in ten.

    python benchmarks/many_tests.py [merge] [overhead]

``merge``     ``gpuperf merge`` of 100 shards of 1,000 results each, in a fresh process
``overhead``  10,000 collected tests of which 1,000 are measured on the scripted device,
              beside the same tests without the plugin, and with 100 measured
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_CHILDREN
from resource import getrusage
from subprocess import DEVNULL
from subprocess import run
from typing import Any
from typing import Final

from scripted import ON_PATH


SHARDS: Final = 100
RESULTS: Final = 1000
REAL: Final = 20
COLLECTED: Final = 10_000
MEASURED: Final = 1000
FILES: Final = 100
TIMES: Final = 3

SUITE: Final = """
import pytest
@pytest.mark.parametrize("n", range({plain}))
def test_plain(n): pass
@pytest.mark.parametrize("n", range({measured}))
def test_step(gpuperf, n): gpuperf(int)
"""

TELLS_MEMORY: Final = """
import json, resource
def pytest_unconfigure(config):
    used = resource.getrusage(resource.RUSAGE_SELF)
    told = {"mib": used.ru_maxrss / 1024, "seconds": used.ru_utime + used.ru_stime}
    with open("main.json", "w") as file: json.dump(told, file)
"""


def line(name: str, value: str, bar: str = "") -> None:
    print(f"{name:<62} {value:>14}   {bar}".rstrip(), flush=True)


@dataclass(frozen=True)
class Spent:
    """Wall and CPU seconds of a process with its children, those of itself, and its peak."""

    wall: float
    cpu: float
    main: float = 0.0
    mib: float = 0.0


def spent(command: list[str], folder: Path, *, codes: tuple[int, ...] = (0,)) -> Spent:
    start, before = time.perf_counter(), getrusage(RUSAGE_CHILDREN)
    ended = run(
        command, cwd=folder, env=environment(folder), stdout=DEVNULL, check=False
    )
    wall, after = time.perf_counter() - start, getrusage(RUSAGE_CHILDREN)
    assert ended.returncode in codes, (command, ended.returncode)
    cpu = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
    told = folder / "main.json"
    main = json.loads(told.read_text()) if told.exists() else {"mib": 0, "seconds": 0}
    return Spent(wall, cpu, main["seconds"], main["mib"])


def environment(folder: Path) -> dict[str, str]:
    kept = {name: v for name, v in os.environ.items() if name != "CI"}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return {
        **kept,
        "GPUPERF_SCRIPT": str(folder / "script.json"),
        **ON_PATH,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }


def merge(folder: Path) -> None:
    """Multiply the results of one real run, and join the copies."""
    suite(folder, files=1, collected=REAL, measured=REAL)
    for update in ("missing", "improved"):  # the second run is judged
        pytest(folder, "--gpuperf", f"--gpuperf-update={update}")
    left = folder / ".gpuperf"
    results = json.loads((left / "results.json").read_text())
    pending = json.loads((left / "pending-scripted.json").read_text())
    shards = [folder / f"shard{number}" for number in range(SHARDS)]
    for shard in shards:
        multiply(shard, results)
    size = (shards[0] / "results.json").stat().st_size / RESULTS
    line("bytes a result", f"{size:.0f}")
    merged("results", folder, shards, "bar 2 s")
    for shard in shards:
        entries = {
            name(shard, test, copy): entry
            for test, entry in pending["tests"].items()
            for copy in range(RESULTS // REAL)
        }
        write(shard / "pending-scripted.json", {**pending, "tests": entries})
    merged("results and what is pending", folder, shards)


def multiply(shard: Path, results: dict[str, Any]) -> None:
    """Write *results* with tests of other names, so many that there are enough."""
    shard.mkdir()
    tests = {}
    for test, row in results["tests"].items():
        text = json.dumps(row)
        for copy in range(RESULTS // REAL):
            named = name(shard, test, copy)
            tests[named] = json.loads(text.replace(test, named))
    ids = list(tests)
    write(
        shard / "results.json",
        {**results, "collected": ids, "selected": ids, "tests": tests},
    )


def name(shard: Path, test: str, copy: int) -> str:
    return f"{shard.name}/{copy}/{test}"


def merged(what: str, folder: Path, shards: list[Path], bar: str = "") -> None:
    names = [shard.name for shard in shards]
    command = [sys.executable, "-m", "pytest_gpuperf", "merge", *names]
    found = [spent(command, folder) for _ in range(TIMES)]
    line(
        f"merge of {SHARDS} times {RESULTS} {what}, best of {TIMES}",
        f"{min(s.wall for s in found):.2f} s",
        bar,
    )
    line("  CPU time", f"{min(s.cpu for s in found):.2f} s", bar)


def write(path: Path, raw: object) -> None:
    path.write_text(json.dumps(raw), encoding="utf-8")


def suite(folder: Path, *, files: int, collected: int, measured: int) -> None:
    """Write a suite of *collected* tests in so many *files*, of them *measured*."""
    each = SUITE.format(
        plain=(collected - measured) // files, measured=measured // files
    )
    for number in range(files):
        (folder / f"test_{number:03}.py").write_text(each)
    (folder / "conftest.py").write_text(TELLS_MEMORY)
    (folder / "script.json").write_text('{"*": {"step_ms": 10.0}}')


def pytest(folder: Path, *arguments: str) -> Spent:
    plugin = ("-p", "pytest_gpuperf.plugin", "--gpuperf-device=scripted")
    command = [sys.executable, "-m", "pytest", "-q", *plugin, *arguments]
    return spent(command, folder)


def overhead(folder: Path) -> None:
    """Run the same tests without measuring, with 100 measured, and with 1,000."""
    suite(folder, files=FILES, collected=COLLECTED, measured=MEASURED)
    plain = pytest(folder)
    line(f"{COLLECTED} tests, none measured, wall time", f"{plain.wall:.1f} s")
    line("  CPU time of pytest's process", f"{plain.main:.1f} s")
    line("  its peak memory", f"{plain.mib:.0f} MiB")
    for isolation in ("module", "test"):
        found = pytest(
            folder, "--gpuperf", f"--override-ini=gpuperf_isolation={isolation}"
        )
        line(
            f"{MEASURED} measured, isolation {isolation}: wall time",
            f"{found.wall:.1f} s",
        )
        added_ms = 1e3 * (found.main - plain.main)
        line(
            "  added CPU time of pytest's process, a collected test",
            f"{added_ms / COLLECTED:.2f} ms",
        )
        line("  the same, a measured test", f"{added_ms / MEASURED:.2f} ms", "bar 3 ms")
        children_ms = 1e3 * (found.cpu - found.main)
        line(
            "  CPU time of its children, a measured test",
            f"{children_ms / MEASURED:.1f} ms",
        )
        line("  peak memory of pytest's process", f"{found.mib:.0f} MiB")
    suite(folder, files=FILES, collected=COLLECTED, measured=MEASURED // 10)
    few = pytest(folder, "--gpuperf")
    line(
        f"{MEASURED // 10} measured: peak memory of pytest's process",
        f"{few.mib:.0f} MiB",
    )


PARTS: Final = {"merge": merge, "overhead": overhead}


def main() -> int:
    asked = sys.argv[1:] or list(PARTS)
    if unknown := set(asked) - set(PARTS):
        print(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(PARTS)}")
        return 4
    for name in asked:
        with tempfile.TemporaryDirectory() as folder:
            PARTS[name](Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
