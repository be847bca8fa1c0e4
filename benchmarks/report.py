"""What the page of a large run costs: its size, making it, and the first paint.

    python benchmarks/report.py [tests] [points]

A run of 1,000 tests with 200 points of history each, unless other numbers are given.
Nine of ten passed at their first run of 20 samples, beside eight stored ones; one of ten
regressed in five, with a sync, a peak of memory and a changed environment. The first
paint is measured in a headless Chromium, from the start of the navigation, in a fresh
page each time.
"""

from __future__ import annotations

import gzip
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import median
from typing import Final


ROOT: Final = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "browser")]

from chromium import Chromium  # noqa: E402
from chromium import program  # noqa: E402
from pages import BAD  # noqa: E402
from pages import GOOD  # noqa: E402
from pages import contents  # noqa: E402
from pages import entry  # noqa: E402
from pages import points  # noqa: E402

from pytest_gpuperf.model.baseline import ENOUGH_RUNS  # noqa: E402
from pytest_gpuperf.model.history import Point  # noqa: E402
from pytest_gpuperf.model.verdict import TestVerdict  # noqa: E402
from pytest_gpuperf.report.html.contents import Contents  # noqa: E402
from pytest_gpuperf.report.html.page import page_text  # noqa: E402


TESTS: Final = 1000
POINTS: Final = 200
TIMES: Final = 7
WORSE: Final = 10
MEGABYTE: Final = 1e6

PAINTED: Final = """
new Promise((tell) => new PerformanceObserver((list) => {
  for (const entry of list.getEntries())
    if (entry.name === "first-contentful-paint") tell(entry.startTime);
}).observe({ type: "paint", buffered: true }))
"""

LOADED: Final = "performance.getEntriesByType('navigation')[0].loadEventEnd"


def line(name: str, value: str, bar: str = "") -> None:
    print(f"{name:<44} {value:>12}   {bar}".rstrip(), flush=True)


def large_run(tests: int, count: int) -> Contents:
    """A run of so many *tests*, each with *count* points of history."""
    random = Random(0)  # noqa: S311 - noise, no secret
    verdicts = [verdict(number) for number in range(tests)]
    names = [verdict.test for verdict in verdicts]
    return contents(
        *verdicts,
        stored={name: entry(*around(random, 10.0, 8)) for name in names},
        pending={
            name: entry(*around(random, 10.0, fresh(number)))
            for number, name in enumerate(names)
        },
        samples={
            name: [{"step_ms": around(random, 10.0, 20)} for _ in range(fresh(number))]
            for number, name in enumerate(names)
        },
        history={name: {"step_ms": past(random, count)} for name in names},
        lines={("train.py", 3): "loss.item()"},
    )


def verdict(number: int) -> TestVerdict:
    kind = BAD if number % WORSE == 0 else GOOD
    test = f"tests/test_train.py::test_step[block-{number:04}-bfloat16]"
    return replace(kind, test=test)


def fresh(number: int) -> int:
    """Runs that it takes: those that look worse are confirmed."""
    return ENOUGH_RUNS if number % WORSE == 0 else 1


def around(random: Random, ms: float, count: int) -> list[float]:
    return [ms * random.gauss(1.0, 0.01) for _ in range(count)]


def past(random: Random, count: int) -> tuple[Point, ...]:
    return tuple(
        replace(point, value=point.value * random.gauss(1.0, 0.01))
        for point in points(count)
    )


def painted(page: Path) -> tuple[float, float]:
    """Milliseconds to the first paint and to the end of loading, medians."""
    found = []
    with Chromium(str(program())) as browser:
        browser.resize(1280, 900)
        for _ in range(TIMES):
            browser.open(page)
            found.append((browser.value(PAINTED), browser.value(LOADED)))
        assert browser.complaints == []
    first, loaded = zip(*found, strict=True)
    return median(first), median(loaded)


def main() -> None:
    tests, count = (*map(int, sys.argv[1:]), TESTS, POINTS)[:2]
    run = large_run(tests, count)
    start, cpu = time.perf_counter(), time.process_time()
    text = page_text(run).encode()
    wall, spent = time.perf_counter() - start, time.process_time() - cpu
    line(f"{tests} tests of {count} points, load average", f"{os.getloadavg()[0]:.1f}")
    line("size", f"{len(text) / MEGABYTE:.2f} MB", "bar 4 MB")
    line("the same, compressed", f"{len(gzip.compress(text)) / MEGABYTE:.2f} MB")
    line("making it, wall time", f"{wall:.2f} s")
    line("the same, CPU time", f"{spent:.2f} s")
    if program() is None:
        line("first paint", "-", "no Chromium is installed")
        return
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        page.write_bytes(text)
        first, loaded = painted(page)
    line(f"first paint, median of {TIMES}", f"{first:.0f} ms", "bar 1 s")
    line("loaded", f"{loaded:.0f} ms")


if __name__ == "__main__":
    main()
