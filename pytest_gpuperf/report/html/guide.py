"""How to read the page, said once."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterator
from typing import Final

from ..numbers import metric_named
from .markup import Markup
from .markup import tag


PICTURES: Final = (
    (
        "runs of a time",
        (
            "a row for all stored runs, one for each fresh run, one for the interval. A bold "
            "tick is where a run lies, thin ones are its timed rounds; where those were not "
            "kept, a bar reaches from the first decile to the median"
        ),
    ),
    (
        "history",
        (
            "a point a run, the newest at the right; runs that failed are shaded. The "
            "pointer, or the arrow keys, name a run"
        ),
    ),
)


def guide(metrics: Collection[str]) -> Markup:
    """Explain the pictures, and those *metrics* that this version measures."""
    terms = (
        part for term in (*PICTURES, *_summaries(metrics)) for part in _told(*term)
    )
    return tag("details", tag("summary", "How to read this page"), tag("dl", *terms))


def _summaries(metrics: Collection[str]) -> Iterator[tuple[str, str]]:
    for name in sorted(metrics):
        metric = metric_named(name)
        if metric.summary:
            yield name, metric.summary


def _told(term: str, text: str) -> Iterator[Markup]:
    yield tag("dt", term)
    yield tag("dd", text)
