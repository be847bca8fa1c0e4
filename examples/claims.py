"""The claims that the examples show: ``claims.toml`` as values, and what is made of them.

python examples/claims.py --write    # renews README.md
python examples/claims.py            # fails where README.md is not what it would be
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it there


HERE: Final = Path(__file__).parent
FILE: Final = HERE / "claims.toml"
PAGE: Final = HERE / "README.md"

E = TypeVar("E", bound=Enum)


class ClaimsError(Exception):
    """A file of claims that cannot be used; the text says what to do."""


class Unit(Enum):
    """What the numbers of a claim count."""

    SECONDS = "s"
    MILLISECONDS = "ms"
    MEBIBYTES = "MiB"
    GIBIBYTES = "GiB"
    GIGABYTES = "GB"
    MILLIONS = "M"
    PERCENT = "%"
    RATIO = "x"
    SYNCS = "syncs"
    LOSS = "loss"


class Gate(Enum):
    """What an example is judged by."""

    ACCURACY = "accuracy"
    ADVICE = "advice"
    BANDWIDTH = "bandwidth"
    BREAK_EVEN = "break-even"
    BREAKS = "graph breaks"
    BUSY = "GPU busy"
    BYTES_READ = "bytes read"
    COLLECTIVES = "collectives"
    COPIED_BYTES = "copied bytes"
    COPIES = "copies"
    EQUAL = "equal results"
    EXPOSED = "exposed communication"
    FILES = "files opened"
    IDLE = "idle steps"
    LARGEST = "largest model"
    LOADER_WAIT = "loader wait"
    MEMORY = "memory"
    NONE = "none"
    OPERATIONS = "operations"
    PHASE = "phase of the peak"
    PLUGIN = "plugin rule"
    RESERVED = "reserved memory"
    SKIP = "skip rule"
    STEPS = "steps"
    SYNCS = "syncs"
    THREADS = "threads"
    TIME = "time"
    TRACE = "trace"


class Tier(Enum):
    """Where a claim can be shown."""

    CPU = "cpu"
    SIMULATED = "simulated"
    CUDA = "cuda"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One row. ``before`` and ``after`` are the note's own numbers, in ``unit``.

    ``notes`` are keys of ``Claims.notes``. ``today`` says, where the note's form no longer
    holds, what took its place. One of the last two is set: the test that shows it, or why
    there is none.
    """

    id: str
    notes: tuple[str, ...]
    text: str
    gates: tuple[Gate, ...]
    tiers: tuple[Tier, ...]
    unit: Unit | None = None
    before: float | None = None
    after: float | None = None
    today: str | None = None
    example: str | None = None
    not_shown: str | None = None

    @property
    def numbers(self) -> str:
        """What the note measured: ``80 -> 57 ms``, or nothing."""
        both = [f"{n:g}" for n in (self.before, self.after) if n is not None]
        return " ".join([" -> ".join(both), self.unit.value]) if self.unit else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One rung of the ladder of memory, as it was published and as it was found here.

    ``predicted_mib`` is for the published size, on the simulated GPU.
    """

    name: str
    published_mib: float
    published_s: float
    predicted_mib: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedRung:
    """One rung of the ladder of speed, and what a machine without a GPU shows of it.

    That is a count ``before`` and ``after``, of ``what``, or how many times as fast it is
    at ``least``, on a CPU; ``least_on_a_gpu`` is the same at the published size.
    """

    name: str
    published_s: float
    before: int | None = None
    after: int | None = None
    what: str = ""
    least: float | None = None
    least_on_a_gpu: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """All rows in the order of the file, the rungs of both ladders, and titles of notes."""

    rows: tuple[Claim, ...]
    ladder: tuple[Rung, ...]
    speed: tuple[SpeedRung, ...] = ()
    notes: Mapping[str, str]

    def __getitem__(self, name: str) -> Claim:
        """Return the row of that id; raise ``ClaimsError`` where there is none."""
        found = [row for row in self.rows if row.id == name]
        if not found:
            msg = f"no claim is called {name!r}: expected an id of {FILE.name}"
            raise ClaimsError(msg)
        return found[0]


def read_claims(path: Path = FILE) -> Claims:
    """Read *path*; raise ``ClaimsError`` where a row says something else than it may."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        msg = f"{path.name}: the file is no TOML ({error}); correct it there"
        raise ClaimsError(msg) from None
    notes = raw.get("seed", {})
    rows = tuple(_claim(row, notes, path.name) for row in raw.get("claim", ()))
    _refuse_twins(rows, path.name)
    ladder = tuple(Rung(**rung) for rung in raw.get("rung", ()))
    speed = tuple(SpeedRung(**rung) for rung in raw.get("speed", ()))
    return Claims(rows=rows, ladder=ladder, speed=speed, notes=notes)


FIELDS: Final = frozenset(
    [
        "id",
        "seed",
        "claim",
        "before",
        "after",
        "unit",
        "gate",
        "tiers",
        "today",
        "example",
        "not_shown",
    ]
)
ENDS: Final = ("example", "not_shown")


def _claim(row: Mapping[str, Any], notes: Mapping[str, str], source: str) -> Claim:
    where = f"{source}: claim {row.get('id', '(without id)')}"
    _check_fields(row, where)
    return Claim(
        id=row["id"],
        notes=tuple(_note(key, notes, where) for key in row["seed"]),
        text=row["claim"],
        gates=tuple(_member(Gate, word, where) for word in row["gate"]),
        tiers=tuple(_member(Tier, word, where) for word in row["tiers"]),
        unit=_member(Unit, row["unit"], where) if "unit" in row else None,
        before=row.get("before"),
        after=row.get("after"),
        today=row.get("today"),
        example=row.get("example"),
        not_shown=row.get("not_shown"),
    )


def _check_fields(row: Mapping[str, Any], where: str) -> None:
    missing = [
        name for name in ("id", "seed", "claim", "gate", "tiers") if name not in row
    ]
    unknown = sorted(set(row) - FIELDS)
    if missing or unknown:
        found = (
            f"has no {', '.join(missing)}" if missing else f"has {', '.join(unknown)}"
        )
        _refuse(f"{where} {found}", f"the fields {', '.join(sorted(FIELDS))}")
    ends = [name for name in ENDS if row.get(name)]
    if len(ends) != 1:
        _refuse(
            f"{where} has {' and '.join(ends) or 'none'}", f"one of {', '.join(ENDS)}"
        )
    if ("unit" in row) != ("before" in row or "after" in row):
        _refuse(f"{where} has numbers or a unit", "both, or neither")


def _note(key: str, notes: Mapping[str, str], where: str) -> str:
    if key not in notes:
        _refuse(f"{where} names the seed {key!r}", f"one of {', '.join(notes)}")
    return key


def _member(kind: type[E], word: str, where: str) -> E:
    known: dict[str, E] = {member.value: member for member in kind}
    if word not in known:
        name = kind.__name__.lower()
        _refuse(f"{where} has the {name} {word!r}", f"one of {', '.join(known)}")
    return known[word]


def _refuse(found: str, expected: str) -> NoReturn:
    msg = f"{found}: expected {expected}"
    raise ClaimsError(msg)


def _refuse_twins(rows: tuple[Claim, ...], source: str) -> None:
    names = [row.id for row in rows]
    for name in names:
        if names.count(name) > 1:
            _refuse(f"{source}: {names.count(name)} claims have the id {name}", "one")


def main(arguments: list[str] | None = None) -> int:
    """Write the page, or say whether it is as it would be written."""
    from claims_page import page

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    try:
        text = page(read_claims())
    except ClaimsError as error:
        sys.stderr.write(f"claims: {error}\n")
        return 1
    if parser.parse_args(arguments).write:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        sys.stderr.write(
            f"claims: {PAGE.name} is not what {FILE.name} says: expected the tables of "
            "all its rows; run python examples/claims.py --write\n"
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
