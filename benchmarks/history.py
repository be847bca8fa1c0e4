"""What a history of three million points costs: to write, to index and to ask.

    python benchmarks/history.py [RUNS [TESTS]]

100 tests of three metrics each on one kind of hardware, in 10,000 runs or as many as are
asked for: a file a run, as ``pytest --gpuperf-history`` leaves it, in a temporary folder.
The index is that of ``gpuperf history``; DuckDB reads the same files, as they are, from a
database of its own and from a Parquet file made of them. The folder is read as a folder
and through fsspec. Bytes read are those that the process asked the system for.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import closing
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING
from typing import Final
from typing import TypeVar

from pytest_gpuperf.history.document import dumps_rows
from pytest_gpuperf.history.document import moment_of
from pytest_gpuperf.history.index import HistoryIndex
from pytest_gpuperf.history.place import Folder
from pytest_gpuperf.history.place import is_url
from pytest_gpuperf.history.place import place_at
from pytest_gpuperf.judge.changepoints import shifts
from pytest_gpuperf.model.history import CallRow
from pytest_gpuperf.model.history import Series


if TYPE_CHECKING:
    import duckdb


TESTS: Final = 100
RUNS: Final = 10_000
START: Final = 1_700_000_000
HOUR: Final = 3600
MIB: Final = 2**20
TIMES: Final = 3
SINCE: Final = 200
SHOWN: Final = 20
VERSIONS: Final = {"torch": "2.13.0", "python": "3.11.7", "pytest-gpuperf": "0.1.0"}

ROWS: Final = """
create view row as from read_json(
    '{files}', format = 'newline_delimited', columns = {{
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

KEPT: Final = """
create table kept as from row order by hardware, test, recorded_at
"""
ONE_TEST: Final = """
select epoch(recorded_at), commit, dirty, versions, metrics['step_ms'], outcomes['step_ms'],
       count(*) over ()
from {table} where test = 't.py::test_step[7]' and metrics['step_ms'] is not null
order by recorded_at desc limit {shown}
"""
ALL_TESTS: Final = """
select test, hardware, epoch(recorded_at), commit, dirty, versions, metrics['step_ms'],
       outcomes['step_ms'], count(*) over (partition by test, hardware)
from {table} where metrics['step_ms'] is not null
qualify row_number() over (
    partition by test, hardware order by recorded_at desc) <= {shown}
"""
ALL_SERIES: Final = """
select test, hardware, epoch(recorded_at), commit, dirty, versions, metrics, outcomes
from {table} qualify row_number() over (
    partition by test, hardware order by recorded_at desc) <= {since}
"""

T = TypeVar("T")


def rows_of(run: int, random: Random, tests: int) -> Iterator[CallRow]:
    """Return what so many tests show in one run."""
    commit = f"{run:x}".rjust(40, "c")
    for test in range(tests):
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
    """Print how long it took, the CPU time of that, and what it read."""
    before = _spent()
    yield
    _print(what, *_since(before))


def quickest(what: str, ask: Callable[[], T]) -> T:
    """Print the shortest of three times that *ask* takes."""
    spent = []
    for _ in range(TIMES):
        before = _spent()
        answer = ask()
        spent.append(tuple(_since(before)))
    _print(what, *map(min, zip(*spent, strict=True)))
    return answer


def _spent() -> tuple[float, float, float]:
    return time.perf_counter(), time.process_time(), _read_bytes()


def _since(before: tuple[float, float, float]) -> Iterator[float]:
    """Return seconds, CPU seconds and bytes read since *before*."""
    return (now - then for now, then in zip(_spent(), before, strict=True))


def _read_bytes() -> float:
    """Return what this process has read from files, of the disk or not."""
    counters = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return float(dict(line.split(": ") for line in counters)["rchar"])


def _print(what: str, seconds: float, cpu_seconds: float, read: float) -> None:
    print(
        f"{what:<46}{seconds:11.4f} s, CPU {cpu_seconds:10.4f} s, "
        f"read {read / MIB:9.2f} MiB",
        flush=True,
    )


def write(folder: Path, runs: int, tests: int) -> None:
    """Leave the files, and print their sizes."""
    random, place = Random(1), Folder(folder)  # noqa: S311 - reproducible
    with told(f"write {runs:,} files"):
        for run in range(runs):
            name = f"cuda-nvidia-h200/{run:07}-benchmark.jsonl.gz"
            place.write(name, dumps_rows(rows_of(run, random, tests)))
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


def ask_as_commands_do(folder: Path, place: str, index: Path) -> None:
    """Ask what ``gpuperf history`` and ``gpuperf report`` ask: the index, and DuckDB.

    *place* names *folder*: itself, or as a URL for fsspec. DuckDB reads the files each
    time, or keeps them in a database, as the index does.
    """
    print(f"-- {place.replace(str(folder), 'FOLDER')}", flush=True)
    _ask_index(place, index.with_name("asked.sqlite3"))
    try:
        import duckdb
    except ImportError:
        print("no duckdb: pip install duckdb")
        return
    with closing(duckdb.connect()) as db:
        files = _readable(db, place)
        db.execute(ROWS.format(files=files))
        _ask_rows("DuckDB, the files", db, "row")
    kept = index.with_name("asked.duckdb")
    with closing(duckdb.connect(str(kept))) as db:
        files = _readable(db, place)
        db.execute(ROWS.replace("view", "temp view").format(files=files))
        with told("DuckDB, a database: store all"):
            db.execute(KEPT)
            db.execute("checkpoint")
        _ask_rows("DuckDB, a database", db, "kept")
    print(f"{kept.stat().st_size / MIB:.1f} MiB")
    with told("DuckDB, a database: open"):
        duckdb.connect(str(kept)).close()


def _ask_index(place: str, file: Path) -> None:
    for what in ("index: store all", "index: open, nothing new"):
        with told(what):
            index = HistoryIndex(place_at(place), place, file)
        index.close()
    with closing(HistoryIndex(place_at(place), place, file)) as index:
        courses = [s for s in index.series() if s.metric == "step_ms"]
        one = courses[len(courses) // 2]

        def shown(series: Series, last: int) -> int:
            return len(index.points(series, last)) + index.count(series)

        quickest("index: last 20 of a test", lambda: shown(one, SHOWN))
        quickest(
            f"index: last 20 of {len(courses)} tests",
            lambda: [shown(series, SHOWN) for series in courses],
        )
        quickest(
            f"index: last {SINCE} of all series",
            lambda: [index.points(series, SINCE) for series in index.series()],
        )
    print(f"{file.stat().st_size / MIB:.1f} MiB")


def _readable(db: duckdb.DuckDBPyConnection, place: str) -> str:
    """Return the pattern of all files at *place*, which *db* can then read."""
    if is_url(place):
        import fsspec

        db.register_filesystem(fsspec.filesystem(place.partition("://")[0]))
    return f"{place}/*/*.jsonl.gz"


def _ask_rows(who: str, db: duckdb.DuckDBPyConnection, table: str) -> None:
    for what, question in (
        ("last 20 of a test", ONE_TEST),
        ("last 20 of all tests", ALL_TESTS),
    ):
        asked = question.format(table=table, shown=SHOWN)
        quickest(f"{who}: {what}", lambda asked=asked: db.execute(asked).fetchall())
    asked = ALL_SERIES.format(table=table, since=SINCE)
    quickest(f"{who}: last {SINCE} of all series", lambda: db.execute(asked).fetchall())


def ask_duckdb(folder: Path, file: Path) -> None:
    """Ask the same files, and then one of Parquet."""
    try:
        import duckdb
    except ImportError:
        print("no duckdb: pip install duckdb")
        return
    with closing(duckdb.connect()) as db:
        db.execute(ROWS.format(files=f"{folder}/*/*.jsonl.gz"))
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


def main(runs: int, tests: int) -> None:
    """Print the figures."""
    print(f"{3 * tests * runs:,} points")
    with tempfile.TemporaryDirectory(prefix="gpuperf-history-") as temporary:
        folder, index = Path(temporary, "runs"), Path(temporary, "index")
        write(folder, runs, tests)
        for place in (str(folder), f"local://{folder}"):
            ask_as_commands_do(folder, place, index / "history.sqlite3")
            shutil.rmtree(index)
        if tests == TESTS:
            ask_sqlite(folder, index / "history.sqlite3")
            ask_duckdb(folder, Path(temporary, "history.parquet"))


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    main(*given, *(RUNS, TESTS)[len(given) :])
