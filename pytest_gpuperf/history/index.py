"""An SQLite index of the files of a history, ordered for questions about one test.

The files are the truth: an index of another version, of another place or a damaged one
is built again. If it cannot be stored it is kept in memory.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any
from typing import Final

from ..baselines.store import make_ignored
from ..model.history import LeftOut
from ..model.history import Point
from ..model.history import Series
from .document import moment_of
from .filling import fill
from .place import HistoryPlace


HISTORY_INDEX_FILE: Final = "history-index.sqlite3"
"""Name of the index in the folder of artefacts."""

INDEX_PATIENCE_SECONDS: Final = 60.0
"""How long to wait for another process that updates the same index."""

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
