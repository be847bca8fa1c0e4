"""What a history of three million points costs: to write, to index and to ask.

    python benchmarks/history.py [RUNS]

100 tests of three metrics each on one kind of hardware, in 10,000 runs or as many as are
asked for: a file a run, as ``pytest --gpuperf-history`` leaves it, in a temporary folder.
The index is that of ``gpuperf history``; DuckDB reads the same files, and a Parquet file
made of them.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import closing
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final
from typing import TypeVar

from pytest_gpuperf.history.document import dumps
from pytest_gpuperf.history.document import moment_of
from pytest_gpuperf.history.index import HistoryIndex
from pytest_gpuperf.history.place import Folder
from pytest_gpuperf.judge.changes import shifts
from pytest_gpuperf.model.history import CallRow


TESTS: Final = 100
RUNS: Final = 10_000
START: Final = 1_700_000_000
HOUR: Final = 3600
MIB: Final = 2**20
TIMES: Final = 3
SINCE: Final = 200
VERSIONS: Final = {"torch": "2.13.0", "python": "3.11.7", "pytest-gpuperf": "0.1.0"}

ROWS: Final = """
create view row as from read_json(
    '{folder}/*/*.jsonl.gz', format = 'newline_delimited', columns = {{
        test: 'VARCHAR', hardware: 'VARCHAR', recorded_at: 'TIMESTAMPTZ',
        commit: 'VARCHAR', dirty: 'BOOLEAN', versions: 'MAP(VARCHAR, VARCHAR)',
        metrics: 'MAP(VARCHAR, DOUBLE)', outcomes: 'MAP(VARCHAR, VARCHAR)'}})
"""
MEDIANS: Final = """
select test, hardware, median(metrics['step_ms']) as ms, count(*) as runs
from row group by all
"""
PARQUET: Final = """
copy (
    select test, hardware, recorded_at, commit, versions['torch'] as torch,
           unnest(map_keys(metrics)) as metric, unnest(map_values(metrics)) as value
    from row order by hardware, test, metric, recorded_at
) to '{file}'
"""
LAST: Final = """
select commit, value from '{file}'
where test = 't.py::test_step[7]' and metric = 'step_ms'
order by recorded_at desc limit 100
"""
ALL_MEDIANS: Final = """
select test, hardware, metric, median(value) from '{file}' group by all
"""

T = TypeVar("T")


def rows_of(run: int, random: Random) -> Iterator[CallRow]:
    """Return what 100 tests show in one run."""
    commit = f"{run:x}".rjust(40, "c")
    for test in range(TESTS):
        yield CallRow(
            test=f"t.py::test_step[{test}]",
            hardware="cuda-nvidia-h200",
            recorded_at=moment_of(START + run * HOUR),
            commit=commit,
            dirty=False,
            versions=VERSIONS,
            metrics={
                "step_ms": round(random.gauss(10 + test / 10, 0.1), 3),
                "syncs": 0,
                "peak_allocated_bytes": (100 + test) * MIB,
            },
            outcomes={
                "step_ms": "pass",
                "syncs": "pass",
                "peak_allocated_bytes": "pass",
            },
        )


@contextmanager
def told(what: str) -> Iterator[None]:
    """Print how long it took, and the CPU time of that."""
    start, cpu = time.perf_counter(), time.process_time()
    yield
    _print(what, time.perf_counter() - start, time.process_time() - cpu)


def quickest(what: str, ask: Callable[[], T]) -> T:
    """Print the shortest of three times that *ask* takes."""
    times = []
    for _ in range(TIMES):
        start, cpu = time.perf_counter(), time.process_time()
        answer = ask()
        times.append((time.perf_counter() - start, time.process_time() - cpu))
    _print(what, *map(min, zip(*times, strict=True)))
    return answer


def _print(what: str, seconds: float, cpu_seconds: float) -> None:
    print(f"{what:<46}{seconds:11.4f} s, CPU {cpu_seconds:10.4f} s", flush=True)


def write(folder: Path, runs: int) -> None:
    """Leave the files, and print their sizes."""
    random, place = Random(1), Folder(folder)  # noqa: S311 - reproducible
    with told(f"write {runs:,} files"):
        for run in range(runs):
            name = f"cuda-nvidia-h200/{run:07}-benchmark.jsonl.gz"
            place.write(name, dumps(rows_of(run, random)))
    size = sum(path.stat().st_size for path in folder.rglob("*.gz"))
    print(f"{size / MIB:.1f} MiB, {size / runs:.0f} bytes a file")


def ask_sqlite(folder: Path, file: Path) -> None:
    """Index the files, once and again, and ask what ``gpuperf history`` asks."""
    for what in ("index them (SQLite)", "open the index, nothing new"):
        with told(what):
            index = HistoryIndex(Folder(folder), str(folder), file)
        index_series = index.series()
        index.close()
    print(f"{file.stat().st_size / MIB:.1f} MiB")
    with closing(HistoryIndex(Folder(folder), str(folder), file)) as index:
        series = index_series[len(index_series) // 2]
        quickest("last 100 points of a series", lambda: index.points(series, 100))

        def changes() -> list[int]:
            return [
                len(shifts([p.value for p in points], exact=False, least=0.01))
                for points in (index.points(one, SINCE) for one in index_series)
            ]

        found = quickest(
            f"changes in {SINCE} runs of {len(index_series)} series", changes
        )
        print(f"{sum(found)} changes found, none is there")


def ask_duckdb(folder: Path, file: Path) -> None:
    """Ask the same files, and then one of Parquet."""
    try:
        import duckdb
    except ImportError:
        print("no duckdb: pip install pytest-gpuperf[history]")
        return
    with closing(duckdb.connect()) as db:
        db.execute(ROWS.format(folder=folder))
        with told("medians of all tests (DuckDB, the files)"):
            assert len(db.execute(MEDIANS).fetchall()) == TESTS
        with told("files to Parquet (DuckDB)"):
            db.execute(PARQUET.format(file=file))
        print(f"{file.stat().st_size / MIB:.1f} MiB")
        quickest(
            "last 100 points of a series (Parquet)",
            lambda: db.execute(LAST.format(file=file)).fetchall(),
        )
        found = quickest(
            "medians of all series (Parquet)",
            lambda: db.execute(ALL_MEDIANS.format(file=file)).fetchall(),
        )
        assert len(found) == 3 * TESTS


def main(runs: int) -> None:
    """Print the figures."""
    print(f"{3 * TESTS * runs:,} points")
    with tempfile.TemporaryDirectory(prefix="gpuperf-history-") as temporary:
        folder = Path(temporary, "runs")
        write(folder, runs)
        ask_sqlite(folder, Path(temporary, "index", "history.sqlite3"))
        ask_duckdb(folder, Path(temporary, "history.parquet"))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else RUNS)
