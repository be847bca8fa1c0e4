"""The pages of an audit, a forecast and a comparison: a file to send, without a script."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from ...devices.audit_record import StepAudit
from ...model.ab import AbRun
from ...model.finding import Finding
from ...model.measurement import Forecast, Saving
from ...model.metrics import PEAK_ALLOCATED, SYNCS
from ..remedies import SAVING_REMEDIES, remedy_of
from ..screen.audit import AuditView, is_in_each_step, reason_of
from ..screen.findings import badness, explained
from .changes import MetricChange, changes_figure, changes_of_commits
from .contents import AROUND, Markup, asset, rendered
from .findings import source_rows
from .memory import memory_figures
from .page import STYLE, policy
from .step import step_figure


def audit_page(
    name: str, audit: StepAudit, view: AuditView, printed: Sequence[str]
) -> str:
    """Return the page of an *audit* of what has this *name*, and has *printed* this."""
    certain = [found for found in audit.findings if found.is_certain]
    each = [found for found in certain if is_in_each_step(found, audit.steps)]
    some = [found for found in certain if found not in each and not found.once]
    step = step_figure(replace(view.shown(found), of_steps=0) for found in each)
    groups = {
        "In each step": each,
        "In some steps": some,
        "Where it may wait": [f for f in audit.findings if not f.is_certain],
    }
    said = _groups(groups, view, lambda found: reason_of(found, view))
    return _sheet(f"{name}: {_answer(printed[:1])}", [*step, *said], printed)


LOWER: Final = "what would lower the peak"


def memory_page(
    forecast: Forecast,
    savings: Mapping[Saving, Forecast | None],
    view: AuditView,
    printed: Sequence[str],
) -> str:
    """Return the page of a *forecast*, which has *printed* this."""
    kept = sum(found.workspace_bytes for found in forecast.findings)
    peak = forecast.allocated_bytes - kept
    lower = (
        MetricChange(PEAK_ALLOCATED.name, SAVING_REMEDIES[saving], peak, least)
        for saving, again in savings.items()
        if again and (least := again.allocated_bytes - kept) < peak
    )
    groups = {"What takes the memory": [f for f in forecast.findings if f.location]}
    figures = [*memory_figures(forecast.findings), *changes_figure(lower, LOWER)]
    return _sheet(printed[0], [*figures, *_groups(groups, view, explained)], printed)


MOST_STEPS_SHOWN: Final = 3
"""Tests of a comparison of which the step is shown."""


def ab_page(found: AbRun, view: AuditView, printed: Sequence[str]) -> str:
    """Return the page of a comparison, which has *printed* this."""
    groups = {
        call.test: [f for f in call.findings if {*f.metrics} & {*call.worse_metrics}]
        for call in found.calls
    }
    waiting = [call for call in found.calls if SYNCS.name in call.worse_metrics]
    steps = (
        step_figure(call.findings, call.test) for call in waiting[:MOST_STEPS_SHOWN]
    )
    figures = [*changes_figure(changes_of_commits(found)), *chain(*steps)]
    said = f"{found.after} after {found.before}: {_answer(printed)}"
    return _sheet(said, [*figures, *_groups(groups, view, explained)], printed)


def _answer(printed: Sequence[str]) -> str:
    """Return what the last line says that begins with our name, however long it is."""
    return " ".join(" ".join(printed).rpartition("gpuperf: ")[2].split())


def _sheet(answer: str, parts: Sequence[Markup], printed: Sequence[str]) -> str:
    known = {"policy": policy(), "style": asset(STYLE)}
    text = "\n".join(printed)
    page = rendered("sheet", title=answer, parts=parts, printed=text, **known)
    return f"<!doctype html>\n{page}\n"


MOST_PLACES_OF_GROUP: Final = 12
"""Lines of a group that are shown."""


def _groups(
    groups: Mapping[str, Iterable[Finding]],
    view: AuditView,
    said: Callable[[Finding], str],
) -> Iterator[Markup]:
    """Show the lines of each group, the worst first, with their source and their fix."""
    for title, findings in groups.items():
        places: dict[str, list[Finding]] = {}
        for found in sorted(findings, key=badness):
            places.setdefault(view.where(found.location), []).append(found)
        shown = [
            (name, *_place(place, view), dict.fromkeys(map(said, place)))
            for name, place in list(places.items())[:MOST_PLACES_OF_GROUP]
        ]
        if shown:
            left = len(places) - len(shown)
            yield rendered("group", title=title, places=shown, left=left)


def _place(place: Sequence[Finding], view: AuditView) -> tuple[object, object]:
    """Return the source of a line, and what to do about what it does."""
    known = [view.shown(found) for found in place]
    at = known[0].location
    numbers = range(at.line - AROUND, at.line + AROUND + 1) if at else ()
    lines = {(at.file, n): view.line_of(at.file, n) for n in numbers if at}
    remedies = [remedy.do for found in known if (remedy := remedy_of(found))]
    return list(source_rows(known, lines)), dict.fromkeys(remedies)
