"""One call of a test: a line that is always visible, and its details below."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Final

from ...model.ab import Sides
from ...model.baseline import Entry
from ...model.baseline import StepSummary
from ...model.history import Point
from ...model.metric import Metric
from ...model.metric import MetricKind
from ...model.metrics import STEP_MS
from ...model.units import Unit
from ...model.verdict import Outcome
from ...model.verdict import TestVerdict
from ...model.verdict import Verdict
from ..command import ACCEPTABLE
from ..command import ab_command
from ..command import accept_command
from ..command import at_root
from ..numbers import metric_named
from ..numbers import rates_in_words
from ..screen.comparison import comparison_texts
from .contents import PASSING
from .contents import Contents
from .contents import Section
from .findings import MOST_PLACES_SHOWN
from .findings import answer
from .findings import diagnosis_list
from .findings import findings_list
from .findings import places_of
from .history import Curve
from .history import Moment
from .history import environment_table
from .history import history_figure
from .history import newest
from .markup import Markup
from .markup import joined
from .markup import tag
from .one_step import Stored
from .one_step import lanes_figure
from .one_step import memory_figures
from .one_step import time_figure
from .pictures import lines_of
from .row import row
from .row import verdict_table
from .samples import Runs
from .samples import interval_of
from .samples import samples_figure
from .samples import strips_of


# Commands to copy.


def commands(
    verdict: TestVerdict, test: str, contents: Contents, *, pending: bool
) -> Iterator[Markup]:
    """Yield how to compare again, and how to accept what is *pending*."""
    hardware = contents.results.head.hardware
    settled = [v.settlement for v in verdict.verdicts if v.settlement]
    commits = [s.commit for s in settled if s.time is not None]
    if commits:
        again = ab_command(commits[0], at_root(hardware), test)
        yield _command("Again", "compare with the other code once more:", again)
    outcomes = {v.outcome for v in verdict.verdicts}
    if Outcome.OVER_BUDGET in outcomes:
        yield tag(
            "div",
            tag("h2", "Limit"),
            tag(
                "p", "it is set in the test; storing a new baseline does not change it"
            ),
            class_="said",
        )
    # Storing what has no baseline does not end a failure.
    failing = {outcome for outcome in outcomes if outcome.fails} or outcomes
    if hardware is not None and pending and failing & ACCEPTABLE:
        file = f"{contents.pending_folder}/pending-{hardware.key}.json"
        command = accept_command(file, contents.baselines_folder, [verdict.test])
        yield _command("Accept", "if it is meant, store these numbers:", command)


def _command(title: str, why: str, command: str) -> Markup:
    typed = tag("pre", command, class_="command")
    return tag("div", tag("h2", title), tag("p", why), typed, class_="said")


LEAST_POINTS: Final = 2
"""Points that make a line."""


def section_of(
    section: Section, contents: Contents, body: Markup | None, *, is_open: bool
) -> Markup:
    """Return the element of *section*, found by its word; without a *body* it is empty."""
    points = contents.history.get(section.key, {}).get(section.metric, ())
    return tag(
        "details",
        row(section, points, contents.lines, contents.spark_points),
        tag("div", body or Markup(), class_="body"),
        class_="test",
        data_word=section.word,
        data_lazy="" if body is None else None,
        open="" if is_open else None,
    )


def body_of(
    section: Section, contents: Contents, moments: Mapping[Moment, int]
) -> Markup:
    """Return what a line opens to."""
    verdict = section.verdict
    details = _verdict(section, verdict, contents, moments) if verdict else ()
    return joined((*_headline(section), *details))


def _headline(section: Section) -> Iterator[Markup]:
    if section.key != section.test:
        yield tag("p", "a call in ", tag("code", section.test))
    verdict = section.verdict
    explained = verdict is not None and (verdict.outcome.fails or not section.failed)
    if section.record.headline and not explained:
        ending = section.record.ending.value
        yield tag("p", f"{ending}: {section.record.headline}", class_="headline")
    elif verdict is None:
        yield tag("p", f"The test {section.record.ending.value}; nothing was judged.")


def _verdict(
    section: Section,
    verdict: TestVerdict,
    contents: Contents,
    moments: Mapping[Moment, int],
) -> Iterator[Markup]:
    """Yield the answer, the pictures that belong to it, and all numbers, closed."""
    pending = section.key in contents.pending
    typed = list(commands(verdict, section.test, contents, pending=pending))
    yield from answer(section, contents.lines, *typed)
    leading, others = _parted(section, verdict)
    if contents.is_large and not section.failing:
        # The table has their numbers: what passed needs no picture of each of them.
        others = []
    entry = contents.stored.get(section.key)
    yield from _step_figures(verdict, metric_named(section.metric), entry)
    yield from _pictures(leading, verdict, contents, moments)
    numbers = _numbers(section, verdict, contents, moments, others)
    if not section.failing:
        yield from (*numbers, *typed)
        return
    summary = tag("summary", "Numbers: every metric, every cause, what changed")
    yield tag("details", summary, *numbers, class_="numbers")


def _step_figures(
    verdict: TestVerdict, about: Metric, entry: Entry | None
) -> Iterator[Markup]:
    """Yield the pictures of one step, that of what failed first."""
    diagnosis = verdict.diagnosis
    timed = [
        v for v in verdict.verdicts if v.metric == STEP_MS.name and v.now is not None
    ]
    now = next((v.now for v in timed), None)
    before = next((v.baseline for v in timed if v.baseline is not None), None)
    step = entry.step if entry and entry.step else StepSummary()
    stored = Stored(
        spent_pct=step.spent_pct, step_ms=before, peak_bytes=step.peak_bytes
    )
    memory = memory_figures(verdict.findings, stored)
    time = (
        *time_figure(diagnosis, now, stored),
        *lanes_figure(diagnosis.timeline if diagnosis else None),
    )
    yield from (*memory, *time) if about.unit is Unit.BYTES else (*time, *memory)


def _parted(section: Section, verdict: TestVerdict) -> tuple[list[str], list[str]]:
    """Divide the metrics with numbers into those it is about, and the others."""
    names = list(_by_metric(verdict.verdicts))
    about = {v.metric for v in section.failing} or {section.metric}
    leading = [name for name in names if name in about]
    leading.sort(key=lambda name: name != section.metric)
    return leading, [name for name in names if name not in about]


def _numbers(
    section: Section,
    verdict: TestVerdict,
    contents: Contents,
    moments: Mapping[Moment, int],
    others: Sequence[str],
) -> Iterator[Markup]:
    yield from verdict_table(verdict.verdicts)
    said = (rates_in_words(verdict.rates), *verdict.remarks)
    yield from (tag("p", text) for text in said if text)
    yield from _comparison(verdict.sides)
    yield from _pictures(others, verdict, contents, moments)
    yield from diagnosis_list(verdict.diagnosis)
    places = places_of(section, contents.lines)[:MOST_PLACES_SHOWN]
    shown = [place.name for place in places]
    yield from findings_list(
        verdict.findings, contents.lines, shown if section.failing else ()
    )
    if verdict.snapshot:
        yield tag("p", "What the allocator did: ", tag("code", verdict.snapshot))
    if verdict.trace:
        yield tag("p", "A trace of a few steps: ", tag("code", verdict.trace))
    yield from environment_table(verdict, contents.stored.get(section.key))


def _comparison(sides: Sides | None) -> Iterator[Markup]:
    if sides is not None:
        rows = (
            tag("tr", tag("th", name), tag("td", text))
            for name, text in comparison_texts(sides)
        )
        yield tag("table", tag("tbody", *rows), class_="sides")


def _pictures(
    names: Sequence[str],
    verdict: TestVerdict,
    contents: Contents,
    moments: Mapping[Moment, int],
) -> Iterator[Markup]:
    by_metric = _by_metric(verdict.verdicts)
    for name in names:
        judged = by_metric[name]
        samples = _samples(name, judged, contents, verdict.test)
        points = contents.history.get(verdict.test, {}).get(name, ())
        if len(points) >= LEAST_POINTS:
            curve = Curve(
                metric=metric_named(name),
                points=newest(points, verdict.test, name, contents.most_points),
                lines=lines_of(judged),
                band=_band(name, contents, verdict.test),
            )
            yield history_figure(curve, moments, explained=bool(samples))
        yield samples


def _band(name: str, contents: Contents, key: str) -> tuple[float, float] | None:
    """Return where the stored runs of a time lie; a count is the same in each."""
    stored = strips_of(name, contents.stored.get(key), (), contents.kind)
    places = [strip.location for strip in stored]
    return (min(places), max(places)) if len(set(places)) > 1 else None


def _by_metric(verdicts: Sequence[Verdict]) -> dict[str, list[Verdict]]:
    """Return what was judged with a number, by metric."""
    found: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.now is not None:
            found.setdefault(verdict.metric, []).append(verdict)
    return found


def _samples(
    name: str, judged: Sequence[Verdict], contents: Contents, key: str
) -> Markup:
    """Draw the runs of a time; a count or size is the same in each."""
    metric = metric_named(name)
    if metric.kind is MetricKind.EXACT:
        return Markup()
    passed = all(v.outcome in PASSING for v in judged)
    samples = () if contents.is_large and passed else contents.samples.get(key, ())
    return samples_figure(
        Runs(
            metric=metric,
            stored=strips_of(name, contents.stored.get(key), (), contents.kind),
            fresh=strips_of(name, contents.pending.get(key), samples, contents.kind),
            lines=lines_of(judged),
            interval=interval_of(judged),
        )
    )


def points_of(section: Section, contents: Contents) -> Iterator[Point]:
    """Yield the points that the pictures of *section* show."""
    by_metric = contents.history.get(section.key, {})
    for name in _by_metric(section.verdict.verdicts if section.verdict else ()):
        points = by_metric.get(name, ())
        if len(points) >= LEAST_POINTS:
            yield from newest(points, section.key, name, contents.most_points)
