"""One call of a test: a line that is always visible, and its details below."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Final

from ...model.ab import Sides
from ...model.history import Point
from ...model.metrics import STEP_MS
from ...model.metrics import MetricKind
from ...model.verdict import Outcome
from ...model.verdict import TestVerdict
from ...model.verdict import Verdict
from ..command import ACCEPTABLE
from ..command import ab_command
from ..command import accept_command
from ..command import at_root
from ..numbers import metric_named
from ..screen.comparison import comparison_texts
from .contents import Contents
from .contents import Section
from .findings import diagnosis_list
from .findings import findings_list
from .history import Curve
from .history import Moment
from .history import environment_table
from .history import history_figure
from .history import newest
from .markup import Markup
from .markup import tag
from .memory import memory_figures
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
        yield _command("Compare again with the other code", again)
    outcomes = {v.outcome for v in verdict.verdicts}
    if Outcome.OVER_BUDGET in outcomes:
        yield tag(
            "p",
            "The budget is set in the test's mark or call; accepting does not move it.",
        )
    if hardware is not None and pending and outcomes & ACCEPTABLE:
        file = f"{contents.pending_folder}/pending-{hardware.key}.json"
        command = accept_command(file, contents.baselines_folder, [verdict.test])
        yield _command("Accept these numbers as the baseline", command)


def _command(title: str, command: str) -> Markup:
    return tag("div", tag("h3", title), tag("pre", command, class_="command"))


LEAST_POINTS: Final = 2
"""Points that make a line."""


def section_of(
    section: Section, contents: Contents, moments: Mapping[Moment, int]
) -> Markup:
    """Return the element of *section*: closed, found by its word."""
    points = contents.history.get(section.key, {}).get(STEP_MS.name, ())
    verdict = section.verdict
    details = _verdict(section, verdict, contents, moments) if verdict else ()
    return tag(
        "details",
        row(section, points),
        tag("div", *_headline(section), *details, class_="body"),
        class_="test",
        data_word=section.word,
    )


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
    yield from verdict_table(verdict.verdicts)
    yield from (tag("p", remark) for remark in verdict.remarks)
    yield from _comparison(verdict.sides)
    yield from _pictures(verdict, contents, moments)
    yield from diagnosis_list(verdict.diagnosis)
    yield from memory_figures(verdict.findings)
    yield from findings_list(verdict.findings, contents.lines)
    if verdict.snapshot:
        yield tag("p", "What the allocator did: ", tag("code", verdict.snapshot))
    yield from environment_table(verdict, contents.stored.get(section.key))
    yield from commands(
        verdict,
        section.test,
        contents,
        pending=section.key in contents.pending,
    )


def _comparison(sides: Sides | None) -> Iterator[Markup]:
    if sides is not None:
        rows = (
            tag("tr", tag("th", name), tag("td", text))
            for name, text in comparison_texts(sides)
        )
        yield tag("table", tag("tbody", *rows), class_="sides")


def _pictures(
    verdict: TestVerdict, contents: Contents, moments: Mapping[Moment, int]
) -> Iterator[Markup]:
    for name, judged in _by_metric(verdict.verdicts).items():
        samples = _samples(name, judged, contents, verdict.test)
        yield samples
        points = contents.history.get(verdict.test, {}).get(name, ())
        if len(points) >= LEAST_POINTS:
            curve = Curve(
                metric=metric_named(name),
                points=newest(points, verdict.test, name),
                lines=lines_of(judged),
            )
            yield history_figure(curve, moments, explained=bool(samples))


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
    samples = contents.samples.get(key, ())
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
            yield from newest(points, section.key, name)
