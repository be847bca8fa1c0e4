"""An SQLite index of the files of a history, ordered for questions about one test.

The files are the truth: an index of another version, of another place or a damaged one
is built again. If it cannot be stored it is kept in memory.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any
from typing import Final

from ..baselines.store import make_ignored
from ..errors import ErrorId
from ..model.history import CallRow
from ..model.history import LeftOut
from ..model.history import Point
from ..model.history import Series
from .document import HISTORY_SCHEMA
from .document import MOST_PACKED_BYTES
from .document import UnreadableError
from .document import loads
from .document import moment_of
from .document import seconds_of
from .place import PART_SUFFIX
from .place import TOO_LARGE
from .place import HistoryPlace


HISTORY_INDEX_FILE: Final = "history-index.sqlite3"
"""Name of the index in the folder of artefacts."""

INDEX_PATIENCE_SECONDS: Final = 600.0
"""How long to wait for another process that updates the same index.

It lives, or the kernel would have freed its lock, and may have no core for long.
"""

POINTS: Final = """
select at, sha, value, outcome, dirty, versions from (
    select at, run, value, outcome from point where series = ?
    order by at desc, run desc limit ?)
join run on run.id = run join software on software.id = run.software
order by at, run.id
"""


class HistoryIndex:
    """Answers questions about the history at *place*, which *location* names.

    Raises ``UsageError`` if the place cannot be reached.
    """

    def __init__(self, place: HistoryPlace, location: str, path: Path) -> None:
        """Bring the index at *path* up to date."""
        self._place = place
        self._digest = sha256(location.encode(errors="backslashreplace")).hexdigest()
        self._path = path
        self._connection = self._brought_up_to_date()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def left_out(self) -> tuple[LeftOut, ...]:
        """Return the files that do not belong to a history, by name."""
        found = self._ask("select name, why from file where why is not null")
        return tuple(LeftOut(name=name, why=why) for name, why in sorted(found))

    def series(self) -> tuple[Series, ...]:
        """Return everything that there are points of, sorted."""
        found = self._ask("select test, metric, hardware from series")
        return tuple(sorted(Series(test=t, metric=m, hardware=h) for t, m, h in found))

    def count(self, series: Series) -> int:
        """Return how many points there are of *series*."""
        number = self._number(series)
        ((count,),) = self._ask("select count(*) from point where series = ?", number)
        return int(count)

    def points(self, series: Series, last: int) -> tuple[Point, ...]:
        """Return the *last* points of *series*, the newest at the end."""
        found = self._ask(POINTS, self._number(series), last)
        versions = {text: json.loads(text) for text in {row[-1] for row in found}}
        return tuple(
            Point(
                recorded_at=moment_of(at),
                commit=commit,
                value=value,
                outcome=outcome,
                dirty=bool(dirty),
                versions=versions[text],
            )
            for at, commit, value, outcome, dirty, text in found
        )

    def _number(self, series: Series) -> int:
        found = self._ask(
            "select id from series where test = ? and metric = ? and hardware = ?",
            series.test,
            series.metric,
            series.hardware,
        )
        return int(found[0][0]) if found else 0

    def _ask(self, question: str, *values: object) -> list[Any]:
        """Answer; if the index turns out to be damaged it is built again, once."""
        try:
            return self._connection.execute(question, values).fetchall()
        except sqlite3.DatabaseError:
            self.close()
            _remove(self._path)
            self._connection = self._brought_up_to_date()
            return self._connection.execute(question, values).fetchall()

    def _brought_up_to_date(self) -> sqlite3.Connection:
        """Try the existing file, then a new one, then memory."""
        # The first failure removes a damaged file, so the second try begins with a new
        # one.
        return self._stored() or self._stored() or self._filled(":memory:")

    def _stored(self) -> sqlite3.Connection | None:
        """Bring the file up to date; remove one that is of no use."""
        if self._path.parent.is_symlink():
            return None  # what is behind it is not ours to replace
        if self._path.is_symlink():
            _remove(self._path)
        try:
            make_ignored(self._path.parent)
            return self._filled(str(self._path))
        except (sqlite3.Error, OSError):
            _remove(self._path)
            return None

    def _filled(self, path: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            path, timeout=INDEX_PATIENCE_SECONDS, isolation_level=None
        )
        try:
            # Without waiting for the disk: a damaged index is built again anyway.
            connection.execute("pragma synchronous = off")  # the files are the truth
            fill(connection, self._place, self._digest)
        except BaseException:
            connection.close()
            raise
        return connection


def _remove(path: Path) -> None:
    # A journal without its database would be rolled back into the next one.
    for name in (path.name, f"{path.name}-journal"):
        with suppress(OSError):
            path.with_name(name).unlink(missing_ok=True)


# The tables of the index, filled from new files of a history and only from those.

VERSION: Final = 1000 * HISTORY_SCHEMA + 1
"""Version of the tables below and of the readable files; a change rebuilds all."""

TABLES: Final = """
create table place (digest text not null);
create table software (id integer primary key, versions text not null unique);
create table file (
    id integer primary key, name text not null unique, size integer not null, why text);
create table run (
    id integer primary key, file integer not null references file, sha text,
    dirty integer not null, software integer not null references software);
create table series (
    id integer primary key, test text not null, metric text not null,
    hardware text not null, unique (test, metric, hardware));
create table point (
    series integer not null references series, at integer not null,
    run integer not null references run, value real not null, outcome text,
    primary key (series, at, run)) without rowid;
create index run_of_file on run (file);
"""

FORGET: Final = """
delete from point where run in (select id from run where file in gone);
delete from run where file in gone;
delete from file where id in gone;
delete from gone;
delete from series where not exists (select 1 from point where series = series.id);
"""


def fill(connection: sqlite3.Connection, place: HistoryPlace, digest: str) -> None:
    """Store what is new at *place*, in one transaction, and forget what is gone.

    *digest* names the place. Raises ``UsageError`` if it cannot be reached.
    """
    with connection:
        # Takes the write lock now: two processes that both read first could not both
        # upgrade.
        connection.execute("begin immediate")
        _make_sure_of_tables(connection, digest)
        there = {_plain(name): size for name, size in place.files().items()}
        known = dict(connection.execute("select name, size from file"))
        # Files are written once and never changed: another size is another file.
        _forget(connection, [n for n, size in known.items() if there.get(n) != size])
        new = [name for name in sorted(there) if known.get(name) != there[name]]
        _take_over(connection, place, {name: there[name] for name in new})


def _make_sure_of_tables(connection: sqlite3.Connection, digest: str) -> None:
    ((version,),) = connection.execute("pragma user_version")
    if version == VERSION:
        places = connection.execute("select digest from place").fetchall()
        if places == [(digest,)]:
            return
    found = connection.execute("select name from sqlite_master where type = 'table'")
    # Fetched whole: a table must not be dropped while the list of tables is read.
    for (table,) in found.fetchall():
        connection.execute(f'drop table "{table}"')
    for statement in TABLES.split(";"):
        connection.execute(statement)
    connection.execute("insert into place values (?)", (digest,))
    connection.execute(f"pragma user_version = {VERSION}")


def _forget(connection: sqlite3.Connection, names: Sequence[str]) -> None:
    if not names:
        return
    connection.execute(
        "create temp table if not exists gone (file integer primary key)"
    )
    connection.executemany(
        "insert into gone select id from file where name = ?", [(n,) for n in names]
    )
    for statement in FORGET.split(";"):
        connection.execute(statement)


def _take_over(
    connection: sqlite3.Connection, place: HistoryPlace, sizes: Mapping[str, int]
) -> None:
    writer = Writer(connection, sizes)
    ours = [name for name in sizes if name.endswith(PART_SUFFIX)]
    huge = [name for name in ours if sizes[name] > MOST_PACKED_BYTES]
    for name in huge:  # a remote one is not even asked for
        writer.leave_out(name, TOO_LARGE)
    for name in sizes.keys() - ours:
        writer.leave_out(name, f"its name does not end with {PART_SUFFIX}")
    for name, content in place.read([name for name in ours if name not in huge]):
        if isinstance(content, str):
            writer.leave_out(name, content)
        else:
            writer.take(name, content)


class Writer:
    """Writes files into the tables and remembers what has a number there."""

    def __init__(
        self, connection: sqlite3.Connection, sizes: Mapping[str, int]
    ) -> None:
        self._connection = connection
        self._sizes = sizes
        self._software: dict[tuple[tuple[str, str], ...], int] = {}
        self._series: dict[tuple[str, str, str], int] = {}

    def leave_out(self, name: str, why: str) -> None:
        """Remember that a file does not belong to the history, and why."""
        refusal = UnreadableError(why, ErrorId.GP523)
        self._file(name, _plain(str(refusal)))

    def take(self, name: str, content: bytes) -> None:
        """Store the rows of a file, or why there are none."""
        try:
            rows = loads(content)
        except UnreadableError as error:
            self.leave_out(name, error.text)
            return
        self._connection.executemany(
            # A file may have the same call twice in a second; the primary key would
            # refuse it.
            "insert or replace into point values (?, ?, ?, ?, ?)",
            self._points(rows, self._file(name, None)),
        )

    def _points(self, rows: Iterable[CallRow], file: int) -> list[tuple[object, ...]]:
        found: list[tuple[object, ...]] = []
        runs: dict[tuple[object, ...], int] = {}
        for row in rows:
            run = (row.commit, bool(row.dirty), self._versions(row.versions))
            if run not in runs:
                runs[run] = self._number(
                    "insert into run (file, sha, dirty, software) values (?, ?, ?, ?)",
                    (file, *run),
                )
            at = seconds_of(row.recorded_at)
            found.extend(
                (self._named(row, name), at, runs[run], value, row.outcomes.get(name))
                for name, value in row.metrics.items()
            )
        return found

    def _file(self, name: str, why: str | None) -> int:
        return self._number(
            "insert into file (name, size, why) values (?, ?, ?)",
            (name, self._sizes[name], why),
        )

    def _versions(self, versions: Mapping[str, str]) -> int:
        key = tuple(sorted(versions.items()))
        if key not in self._software:
            self._software[key] = self._known_or_new(
                "select id from software where versions = ?",
                "insert into software (versions) values (?)",
                (json.dumps(dict(key)),),
            )
        return self._software[key]

    def _named(self, row: CallRow, metric: str) -> int:
        key = (row.test, metric, row.hardware)
        if key not in self._series:
            self._series[key] = self._known_or_new(
                "select id from series where test = ? and metric = ? and hardware = ?",
                "insert into series (test, metric, hardware) values (?, ?, ?)",
                key,
            )
        return self._series[key]

    def _known_or_new(self, ask: str, insert: str, values: Sequence[object]) -> int:
        found = self._connection.execute(ask, values).fetchone()
        return int(found[0]) if found else self._number(insert, values)

    def _number(self, insert: str, values: Sequence[object]) -> int:
        return int(self._connection.execute(insert, values).lastrowid or 0)


def _plain(text: str) -> str:
    """Return *text* for the database: names of files may be no UTF-8."""
    return text.encode(errors="backslashreplace").decode()
