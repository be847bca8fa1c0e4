"""What else a baseline was measured with than this run."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from typing import Final

from ...model.baseline import Entry
from ...model.verdict import TestVerdict
from .history import COMMIT
from .markup import Markup
from .markup import tag


HEADER: Final = ("software", "baseline", "now")
ABSENT: Final = "absent"


def environment_table(verdict: TestVerdict, stored: Entry | None) -> Iterator[Markup]:
    """Yield what changed since the baseline, or that nothing did that is recorded."""
    if all(v.baseline is None for v in verdict.verdicts):
        return
    if verdict.changed:
        yield tag("h3", "Environment")
        yield _table(verdict.changed)
    else:
        yield tag("p", "Nothing recorded has changed since the baseline.")
    if stored is not None and stored.origin is not None:
        dirty = ", with changes" if stored.origin.dirty else ""
        commit = stored.origin.commit[:COMMIT]
        yield tag("p", "The baseline is that of ", tag("code", commit), dirty)


def _table(changed: Mapping[str, tuple[str, str]]) -> Markup:
    head = tag("tr", *(tag("th", name) for name in HEADER))
    rows = [
        tag("tr", tag("th", name), *(tag("td", version or ABSENT) for version in both))
        for name, both in sorted(changed.items())
    ]
    table = tag("table", tag("thead", head), tag("tbody", *rows))
    return tag("div", table, class_="wide")
