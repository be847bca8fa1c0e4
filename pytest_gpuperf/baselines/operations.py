"""What the lines of a step ran when its baseline was recorded, in a file beside it.

Each test has a file of its own, ``operations/<hardware>/<test>.json``. It only explains a
failure: one that is missing, broken, or of another baseline explains nothing, and is no
error. It is written if the operations or the counts changed, not for other line numbers.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from ..errors import BaselineError, ErrorId
from ..files import file_name, read_regular_text
from ..judge.operations import Digest, is_alike
from ..model.baseline import Entry
from ..model.codec import decode, encode_briefly
from ..model.environment import Hardware
from ..model.operations import LineWork
from .store import write


OPERATIONS_SCHEMA: Final = 1
"""Version of the format."""


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
        about = raw["schema"], raw["test"], raw["exact"]
        if about != (OPERATIONS_SCHEMA, test, _exact(entry)):
            return ()
        return decode(tuple[LineWork, ...], raw["lines"])
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

    A file that says nothing of its entry any more is deleted, and those of what is
    *removed*.
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
        if digest and not (known and is_alike(known, digest)):
            write(path, _text(test, entry, digest))
        elif not digest and not known:
            path.unlink(missing_ok=True)
    for test in removed:
        operations_path(folder, hardware, test).unlink(missing_ok=True)


def _exact(entry: Entry) -> dict[str, Any]:
    """Return the counts and sizes by which a file knows the baseline that it is of."""
    return dict(entry.runs[-1].exact)


def _text(test: str, entry: Entry, digest: Digest) -> str:
    """Give each line a line, so that a diff of the file shows what changed."""
    head = {"schema": OPERATIONS_SCHEMA, "test": test, "exact": _exact(entry)}
    rows = [f' "{name}": {json.dumps(value)}' for name, value in head.items()]
    lines = ",\n".join(f"  {json.dumps(encode_briefly(line))}" for line in digest)
    return "{\n" + ",\n".join([*rows, f' "lines": [\n{lines}\n ]']) + "\n}\n"
