"""The verdicts of one call as a table, a row each, its reason below it."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from typing import Final

from ...model.metric import Direction
from ...model.metric import Metric
from ...model.verdict import Outcome
from ...model.verdict import Verdict
from ..explanation import decided_by
from ..numbers import format_apart
from ..numbers import format_change
from ..numbers import metric_named
from .markup import Markup
from .markup import tag


HEADER: Final = ("metric", "now", "baseline", "limit", "change", "outcome")

UNKNOWN: Final = "-"


def verdict_table(verdicts: Sequence[Verdict]) -> Iterator[Markup]:
    """Yield a table of what was judged, the worst first, and a sentence for what was not."""
    order = list(Outcome)
    ordered = sorted(verdicts, key=lambda verdict: order.index(verdict.outcome))
    judged = [v for v in ordered if v.outcome is not Outcome.NOT_JUDGED]
    if judged:
        head = tag("tr", *(tag("th", name) for name in HEADER))
        rows = [row for verdict in judged for row in _rows(verdict)]
        yield tag("table", tag("thead", head), tag("tbody", *rows), class_="verdicts")
    yield from _unjudged([v for v in verdicts if v.outcome is Outcome.NOT_JUDGED])


def outcome_badge(word: str) -> Markup:
    """Return *word* in the colours of what it means."""
    return tag("b", word, class_=f"badge {word.replace(' ', '-')}")


def _rows(verdict: Verdict) -> Iterator[Markup]:
    metric = metric_named(verdict.metric)
    now, baseline, limit = _texts(metric, verdict)
    cells = (now, baseline, limit, _change(metric, verdict))
    yield tag(
        "tr",
        tag("th", verdict.metric),
        *(tag("td", cell) for cell in cells),
        tag("td", outcome_badge(verdict.outcome.value)),
    )
    why = [tag("p", reason) for reason in _reasons(verdict) if reason]
    if why:
        yield tag("tr", tag("td", *why, colspan=len(HEADER)), class_="why")


def _reasons(verdict: Verdict) -> tuple[str, ...]:
    """Say why, and which rule decided; of what passed the rule says it all."""
    rule = decided_by(verdict)
    said = bool(rule) and verdict.outcome is Outcome.PASS
    return (rule,) if said else (verdict.because, rule)


def _texts(metric: Metric, verdict: Verdict) -> list[str]:
    """Write the numbers with as many digits as tell them apart."""
    values = (verdict.now, verdict.baseline, verdict.limit)
    known = [value for value in values if value is not None]
    text = dict(zip(known, format_apart(metric, *known), strict=True))
    now, baseline, limit = (UNKNOWN if v is None else text[v] for v in values)
    at_least = metric.direction is Direction.HIGHER and verdict.limit is not None
    return [now, baseline, f"at least {limit}" if at_least else limit]


def _change(metric: Metric, verdict: Verdict) -> str:
    if verdict.baseline is None or verdict.now is None:
        return UNKNOWN
    return format_change(metric, verdict.baseline, verdict.now)


def _unjudged(verdicts: Sequence[Verdict]) -> Iterator[Markup]:
    """Name what was not judged, together where the reason is the same."""
    alike: dict[str, list[str]] = {}
    for verdict in verdicts:
        alike.setdefault(verdict.because, []).append(verdict.metric)
    for because, metrics in alike.items():
        yield tag("p", f"not judged: {', '.join(metrics)}; {because}", class_="aside")
