"""The line of a test that is always visible, and the table of its verdicts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from ...model.ab import Comparison
from ...model.metric import Direction, Metric
from ...model.metrics import PEAK_ALLOCATED, STEP_MS, SYNCS
from ...model.run import Ending
from ...model.verdict import Outcome, TestVerdict, Verdict
from ..headline import PEOPLE, merged_headlines, title, what_happened
from ..numbers import format_change, format_value, metric_named, texts_apart
from ..screen.comparison import speedup, step_in_words
from ..screen.explanation import decided_by
from ..screen.findings import place_of
from .contents import Contents, Section, SourceLines
from .findings import places_of
from .markup import Markup, rendered
from .pictures import Ink, lines_of


# The verdicts of one call as a table, a row a metric, the reasons below it.

VerdictRow = tuple[str, str, Sequence[str], str, str, Collection[str]]
"""A metric and its title, its numbers, the outcome, its colour, and the reasons."""


def verdict_rows(verdicts: Sequence[Verdict]) -> list[VerdictRow]:
    """Return a row for each metric that was judged, the worst first."""
    order = list(Outcome)
    judged: dict[str, list[Verdict]] = {}
    for verdict in sorted(verdicts, key=lambda verdict: order.index(verdict.outcome)):
        if verdict.outcome is not Outcome.NOT_CHECKED:
            judged.setdefault(verdict.metric, []).append(verdict)
    return [_row(name, found) for name, found in judged.items()]


def word_of(verdict: Verdict) -> str:
    """Return what people call the outcome of *verdict*, and what happened if it failed."""
    if not verdict.outcome.fails:
        return PEOPLE[verdict.outcome]
    return what_happened(verdict).lower()


def _row(name: str, found: Sequence[Verdict]) -> VerdictRow:
    """Return one row for all verdicts on a metric: by its baseline and by its budget."""
    texts = _texts(metric_named(name), found)
    reasons = dict.fromkeys(reason for v in found for reason in _reasons(v) if reason)
    word, colour = word_of(found[0]), _colour(found[0].outcome)
    return name, title(name), texts, word, colour, reasons


def _colour(outcome: Outcome) -> str:
    return (Ending.FAILED.value if outcome.fails else PEOPLE[outcome]).replace(" ", "-")


def _reasons(verdict: Verdict) -> tuple[str, ...]:
    """Say why, and which rule decided; for a pass the rule is enough."""
    rule = decided_by(verdict)
    said = bool(rule) and verdict.outcome is Outcome.PASS
    return (rule,) if said else (verdict.because, rule)


def _texts(metric: Metric, found: Sequence[Verdict]) -> list[str]:
    """Write the known numbers with as many digits as tell them apart."""
    lines = lines_of(found)
    now = next((v.now for v in found if v.now is not None), None)
    values = (now, *map(lines.get, (Ink.BASELINE, Ink.LIMIT, Ink.BUDGET)))
    text = texts_apart(metric, *values)
    texts = ["" if v is None else text[v] for v in values]
    if metric.direction is Direction.HIGHER:
        texts[2:] = [t and f"at least {t}" for t in texts[2:]]
    change = ""
    if values[0] is not None and values[1] is not None:
        change = format_change(metric, values[1], values[0])
    return [*texts[:2], change, *texts[2:]]


def unchecked(verdicts: Sequence[Verdict]) -> dict[str, list[str]]:
    """Return the titles of what was not checked, by the reason why."""
    alike: dict[str, list[str]] = {}
    for verdict in verdicts:
        if verdict.outcome is Outcome.NOT_CHECKED:
            alike.setdefault(verdict.because, []).append(title(verdict.metric))
    return alike


# The line.

SILENT: Final = frozenset({Outcome.PASS, Outcome.NOT_CHECKED, Outcome.NO_BASELINE})
"""Outcomes with a reason that is not worth a line."""


def section_of(
    section: Section, contents: Contents, body: Markup | None, *, is_open: bool
) -> Markup:
    """Return the element of *section*, found by its word; without a *body* it is empty."""
    return rendered(
        "section",
        section=section,
        badges=_badges(section),
        said=_said(section, contents.lines),
        numbers=_numbers(section),
        body=body,
        is_open=is_open,
    )


def _badges(section: Section) -> Iterator[str]:
    """Say that a test failed, and what its outcome is if that did not fail it."""
    yield section.word
    if section.failed and section.verdict and not section.verdict.outcome.fails:
        yield PEOPLE[section.verdict.outcome]


def _said(section: Section, lines: SourceLines) -> Iterator[tuple[str, str, str]]:
    """Say what happened to a test that did not simply pass, and name the line.

    Yields the class of a text, the line that it is about, and the text.
    """
    verdict = section.verdict
    if verdict is None or (section.failed and not section.failing):
        if section.record.headline:
            yield "", "", section.record.headline
        return
    if not section.failing or verdict.outcome in SILENT:
        return
    heads = [text for _, text in merged_headlines(section.failing)]
    yield "head", "", "; ".join(heads[:MOST_HEADS])
    if not verdict.outcome.fails:
        yield "", "", section.failing[0].because
    for worst, *_ in places_of(section, lines)[:1]:
        at = worst.location
        where = f"{at.file}:{at.line}" if at else place_of(worst)
        yield "line", where, f" {worst.source}"


MOST_HEADS: Final = 2
"""Metrics that are named in the line of a test."""


def _numbers(section: Section) -> tuple[str, str, str, str]:
    if section.verdict is None:
        return "", "", "", ""
    memory, syncs = _now(section.verdict, PEAK_ALLOCATED), _now(section.verdict, SYNCS)
    sides = section.verdict.sides
    return *(_compared(sides) if sides else _step(section.verdict)), memory, syncs


def _step(verdict: TestVerdict) -> tuple[str, str]:
    found = verdict.measured(STEP_MS)
    if found is None or found.now is None or found.baseline is None:
        return _now(verdict, STEP_MS), ""
    change = format_change(STEP_MS, found.baseline, found.now)
    return _now(verdict, STEP_MS), change


def _compared(sides: Comparison) -> tuple[str, str]:
    """Write both times of a comparison, and the speedup for the change."""
    step = step_in_words(sides)
    return step, speedup(sides.time) if step else ""


def _now(verdict: TestVerdict, metric: Metric) -> str:
    """Write *metric*, if it was measured."""
    found = verdict.measured(metric)
    return "" if found is None or found.now is None else format_value(metric, found.now)
