"""What else a baseline was measured with than this run."""

from __future__ import annotations

from collections.abc import Iterator

from ...model.baseline import Entry
from ...model.verdict import TestVerdict
from .history import COMMIT
from .markup import Markup
from .markup import tag


HEADER = ("software", "baseline", "now")
ABSENT = "absent"


def environment_table(verdict: TestVerdict, stored: Entry | None) -> Iterator[Markup]:
    """Yield what changed since the baseline, or that nothing did that is recorded."""
    if all(v.baseline is None for v in verdict.verdicts):
        return
    yield tag("h3", "Environment")
    if verdict.changed:
        head = tag("tr", *(tag("th", name, scope="col") for name in HEADER))
        rows = [
            tag(
                "tr",
                tag("th", name, scope="row"),
                *(tag("td", v or ABSENT) for v in both),
            )
            for name, both in sorted(verdict.changed.items())
        ]
        table = tag("table", tag("thead", head), tag("tbody", *rows))
        yield tag("div", table, class_="wide")
    else:
        yield tag("p", "nothing recorded has changed since the baseline")
    if stored is not None and stored.origin is not None:
        dirty = ", with changes" if stored.origin.dirty else ""
        commit = stored.origin.commit[:COMMIT]
        yield tag("p", "the baseline was recorded at ", tag("code", commit), dirty)
