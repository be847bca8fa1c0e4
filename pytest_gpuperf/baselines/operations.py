"""What the lines of a step ran when its baseline was recorded, in a file next to it.

Each test has a file of its own, ``operations/<hardware>/<test>.json``, with a row for each
line of source. It only explains a failure: one that is missing, broken, or of another
test explains nothing, and is no error. It has no numbers of lines, so it changes with
the operations alone.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from ..errors import BaselineError, ErrorId
from ..files import file_name, read_regular_text
from ..judge.operations import Digest
from ..model.baseline import Entry
from ..model.codec import decode
from ..model.environment import Hardware
from ..model.finding import CALLED, Location
from ..model.operations import LineWork, Tally
from .format import LINE, key_of_source, line_of
from .store import write


OPERATIONS_SCHEMA: Final = 2
"""Version of the format; a file of another one is replaced by the next refresh."""


def operations_path(folder: Path, hardware: Hardware, test: str) -> Path:
    """File with the operations of *test*, in the *folder* of the baselines."""
    return folder / "operations" / hardware.key / f"{file_name(test)}.json"


def read_operations(
    folder: Path, hardware: Hardware, test: str, entry: Entry | None
) -> tuple[LineWork, ...]:
    """Return what was stored with *entry*; nothing if that is not there, or is broken."""
    if entry is None:
        return ()
    try:
        raw = json.loads(read_regular_text(operations_path(folder, hardware, test)))
        if (raw["schema"], raw["test"]) != (OPERATIONS_SCHEMA, test):
            return ()
        return _read(raw)
    except (OSError, ValueError, TypeError, KeyError):
        return ()


def keep_operations(
    folder: Path,
    hardware: Hardware,
    entries: Mapping[str, Entry],
    digests: Mapping[str, Digest],
    removed: Collection[str] = (),
) -> None:
    """Store what was run when *entries* were recorded; raises ``BaselineError``.

    A file that cannot be read is deleted, and those of *removed* tests.
    """
    for planted in (folder / "operations", folder / "operations" / hardware.key):
        if planted.is_symlink():
            msg = (
                f"{planted}: expected a folder of this project, found a link: remove it"
            )
            raise BaselineError(msg, ErrorId.GP526)
    for test, entry in entries.items():
        digest = digests.get(test, ())
        known = read_operations(folder, hardware, test, entry)
        path = operations_path(folder, hardware, test)
        if digest:
            write(path, _text(test, digest))
        elif not known:
            path.unlink(missing_ok=True)
    for test in removed:
        operations_path(folder, hardware, test).unlink(missing_ok=True)


def _text(test: str, digest: Digest) -> str:
    """Give each line of source a row, so that a diff of the file shows what changed."""
    raw: dict[str, Any] = {"schema": OPERATIONS_SCHEMA, "test": test}
    for line in digest:
        at, inner = line.location, line.innermost
        key = key_of_source(
            at.file if at else "", at.function if at else "", line.source
        )
        where = f" | {inner.file} | {inner.function}" if inner else ""
        # A call runs more wherever what it calls does: that it is there is enough.
        ops = {CALLED: (1, 0)} if CALLED in line.ops else dict(line.ops)
        raw.setdefault(key, {})[f"{line.module}{where}"] = ops
    rows = (f"{_row(key)}: {_row(value)}" for key, value in sorted(raw.items()))
    return "{\n" + ",\n".join(f" {row}" for row in rows) + "\n}\n"


_row: Final = json.JSONEncoder(sort_keys=True).encode


def _read(raw: Mapping[str, Any]) -> tuple[LineWork, ...]:
    return tuple(
        LineWork(
            module=module,
            location=_place(file, function),
            innermost=_place(*inner.split(" | ", 1)) if inner else None,
            source=text,
            ops=decode(dict[str, Tally], ops),
        )
        for key, row in raw.items()
        if key.startswith(LINE)
        for file, function, text in [line_of(key)]
        for at, ops in dict(row).items()
        for module, _, inner in [at.partition(" | ")]
    )


def _place(file: str, function: str) -> Location | None:
    return Location(file=file, line=0, function=function) if file else None
