"""The index of a history: what it answers, and when it is made anew."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import closing
from contextlib import contextmanager
from pathlib import Path

import pytest
from history_rows import H200
from history_rows import STEP
from history_rows import keep
from history_rows import keep_course
from history_rows import row

from pytest_gpuperf.errors import UsageError
from pytest_gpuperf.history.document import HISTORY_SCHEMA
from pytest_gpuperf.history.index import HistoryIndex
from pytest_gpuperf.history.place import Folder
from pytest_gpuperf.model.history import LeftOut
from pytest_gpuperf.model.history import Point
from pytest_gpuperf.model.history import Series


pytestmark = pytest.mark.slow


STEP_MS = Series(test=STEP, metric="step_ms", hardware=H200)
SYNCS = Series(test=STEP, metric="syncs", hardware=H200)


class Counted(Folder):
    """A folder that remembers which files were read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.asked: list[str] = []

    def read(self, names: Sequence[str]) -> Iterator[tuple[str, bytes | str]]:
        self.asked += names
        return super().read(names)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@contextmanager
def index(runs: Path, place: Folder | None = None) -> Iterator[HistoryIndex]:
    """Open the index of *runs* beside it."""
    path = runs.parent / ".gpuperf" / "index.sqlite3"
    with closing(HistoryIndex(place or Folder(runs), str(runs), path)) as opened:
        yield opened


def values(found: Sequence[Point]) -> list[float]:
    return [point.value for point in found]


def test_the_newest_points_of_a_series_stand_in_their_order(runs: Path) -> None:
    keep_course(runs, [12.0, 12.5, 13.0])

    with index(runs) as found:
        assert found.series() == (STEP_MS, SYNCS)
        assert found.count(STEP_MS) == 3
        assert values(found.points(SYNCS, 9)) == [0.0, 0.0, 0.0]
        assert found.points(STEP_MS, 2) == (
            Point(
                recorded_at="2026-02-26T06:13:20Z",
                commit="0000001".ljust(40, "0"),
                value=12.5,
                outcome="pass",
                versions={"torch": "2.13.0"},
            ),
            Point(
                recorded_at="2026-02-27T06:13:20Z",
                commit="0000002".ljust(40, "0"),
                value=13.0,
                outcome="pass",
                versions={"torch": "2.13.0"},
            ),
        )


def test_runs_of_a_moment_stand_beside_each_other(runs: Path) -> None:
    keep(runs, "a/1.jsonl.gz", row(0, 1.0, dirty=True, commit=None))
    keep(runs, "a/2.jsonl.gz", row(0, 2.0, outcomes={}))

    with index(runs) as found:
        first, second = found.points(STEP_MS, 9)

    assert (first.value, first.dirty, first.commit) == (1.0, True, None)
    assert (second.value, second.dirty, second.outcome) == (2.0, False, None)


def test_hardware_keeps_series_apart(runs: Path) -> None:
    keep(runs, "a/1.jsonl.gz", row(0, 1.0), row(0, 9.0, hardware="cpu-x"))

    with index(runs) as found:
        assert [s.hardware for s in found.series()] == [
            H200,
            "cpu-x",
            H200,
            "cpu-x",
        ] or sorted({s.hardware for s in found.series()}) == ["cpu-x", H200]
        assert values(found.points(STEP_MS, 9)) == [1.0]


def test_an_unknown_series_has_no_points(runs: Path) -> None:
    keep_course(runs, [1.0])
    unknown = Series(test="no", metric="step_ms", hardware=H200)

    with index(runs) as found:
        assert (found.count(unknown), found.points(unknown, 5)) == (0, ())


def test_only_new_files_are_read(runs: Path) -> None:
    keep_course(runs, [1.0, 2.0])
    place = Counted(runs)
    with index(runs, place):
        first = list(place.asked)
    keep(runs, "later/3.jsonl.gz", row(3, 3.0))

    with index(runs, place) as found:
        assert values(found.points(STEP_MS, 9)) == [1.0, 2.0, 3.0]

    assert first == [f"{H200}/0000.jsonl.gz", f"{H200}/0001.jsonl.gz"]
    assert place.asked == [*first, "later/3.jsonl.gz"]


def test_files_that_are_gone_are_forgotten_with_what_only_they_had(runs: Path) -> None:
    keep_course(runs, [1.0, 2.0])
    keep(runs, "b/1.jsonl.gz", row(0, 5.0, test="t.py::test_gone"))
    with index(runs) as found:
        assert len(found.series()) == 4
    (runs / "b" / "1.jsonl.gz").unlink()
    (runs / H200 / "0000.jsonl.gz").unlink()

    with index(runs) as found:
        assert found.series() == (STEP_MS, SYNCS)
        assert values(found.points(STEP_MS, 9)) == [2.0]


def test_what_is_no_file_of_a_history_is_left_out_with_its_reason(runs: Path) -> None:
    keep_course(runs, [1.0, 2.0])
    whole = (runs / H200 / "0001.jsonl.gz").read_bytes()
    (runs / H200 / "0001.jsonl.gz").write_bytes(whole[:-10])
    (runs / "README.md").write_text("# Runs")
    (runs / "report.jsonl.gz").write_text("{}")
    os.mkfifo(runs / "pipe.jsonl.gz")

    with index(runs) as found:
        assert found.left_out() == (
            LeftOut(
                name="README.md", why="its name does not end with .jsonl.gz [GP523]"
            ),
            LeftOut(name=f"{H200}/0001.jsonl.gz", why="it is truncated [GP523]"),
            LeftOut(
                name="report.jsonl.gz", why="it is not a gzip file, or damaged [GP523]"
            ),
        )
        assert values(found.points(STEP_MS, 9)) == [1.0]


def test_a_file_that_was_still_being_written_is_read_once_it_is_whole(
    runs: Path,
) -> None:
    keep_course(runs, [1.0, 2.0])
    path = runs / H200 / "0001.jsonl.gz"
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    with index(runs):
        path.write_bytes(whole)

    with index(runs) as found:
        assert found.left_out() == ()
        assert values(found.points(STEP_MS, 9)) == [1.0, 2.0]


def test_a_file_whose_name_is_no_text_is_left_out_time_and_again(runs: Path) -> None:
    keep_course(runs, [1.0])
    name = os.fsdecode(b"\xff.jsonl.gz")
    (runs / name).write_bytes(b"")

    for _ in range(2):
        with index(runs) as found:
            assert found.left_out() == (
                LeftOut(
                    name="\\udcff.jsonl.gz",
                    why="it cannot be read, no such file or directory [GP523]",
                ),
            )


def damage(path: Path, how: str) -> None:
    if how == "no database":
        path.write_text("this is no database" * 100)
    elif how == "cut off":
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
    elif how == "a folder":
        path.unlink()
        path.mkdir()
    else:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(how)
            connection.commit()


@pytest.mark.parametrize(
    "how",
    [
        "no database",
        "cut off",
        "a folder",
        f"pragma user_version = {1000 * HISTORY_SCHEMA + 999}",
        "update place set digest = 'another'",
        "drop table point",
    ],
)
def test_an_index_that_is_of_no_use_is_made_anew(runs: Path, how: str) -> None:
    keep_course(runs, [float(value) for value in range(1, 200)])
    with index(runs):
        pass
    damage(runs.parent / ".gpuperf" / "index.sqlite3", how)

    with index(runs) as found:
        assert values(found.points(STEP_MS, 2)) == [198.0, 199.0]
        assert found.count(STEP_MS) == 199


def test_where_no_index_can_be_stored_it_is_held_in_memory(runs: Path) -> None:
    keep_course(runs, [1.0])
    (runs.parent / ".gpuperf").write_text("")

    with index(runs) as found:
        assert values(found.points(STEP_MS, 9)) == [1.0]

    assert (runs.parent / ".gpuperf").read_text() == ""


def test_a_place_that_cannot_be_reached_is_a_usage_error(runs: Path) -> None:
    with pytest.raises(UsageError) as caught, index(runs):
        pass

    assert str(caught.value) == (
        f"{runs}: there is no such folder; expected that of a history [GP518]"
    )


def test_the_index_names_no_place_of_this_machine(runs: Path) -> None:
    keep_course(runs, [1.0])

    with index(runs):
        pass

    content = (runs.parent / ".gpuperf" / "index.sqlite3").read_bytes()
    assert str(runs.parent).encode() not in content
    assert (runs.parent / ".gpuperf" / ".gitignore").read_text() == "*\n"
