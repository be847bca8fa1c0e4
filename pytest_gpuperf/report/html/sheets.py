"""The pages of an audit, a forecast and a comparison: a file to send, without a script."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from ...devices.audit_record import StepAudit
from ...model.ab import AbRun
from ...model.measurement import Forecast, Saving
from ...model.metrics import PEAK_ALLOCATED, SYNCS
from ..document import Block
from ..remedies import SAVING_REMEDIES
from ..screen.audit import AuditView, is_in_each_step
from .blocks import markup_of
from .changes import MetricChange, changes_figure, changes_of_commits
from .contents import Markup, asset, rendered
from .memory import memory_figures
from .page import STYLE, policy
from .step import step_figure


def audit_page(
    name: str, audit: StepAudit, view: AuditView, blocks: Sequence[Block]
) -> str:
    """Return the page of an *audit* of what has this *name*: its step, and its *blocks*."""
    certain = [found for found in audit.findings if found.is_certain]
    each = [found for found in certain if is_in_each_step(found, audit.steps)]
    step = step_figure(replace(view.shown(found), of_steps=0) for found in each)
    return _sheet(f"{name}: {_answer(blocks[0])}", step, blocks[1:], view)


LOWER: Final = "what would lower the peak"


def memory_page(
    forecast: Forecast,
    savings: Mapping[Saving, Forecast | None],
    view: AuditView,
    blocks: Sequence[Block],
) -> str:
    """Return the page of a *forecast*: its memory, what lowers it, and its *blocks*."""
    kept = sum(found.workspace_bytes for found in forecast.findings)
    peak = forecast.allocated_bytes - kept
    lower = (
        MetricChange(PEAK_ALLOCATED.name, SAVING_REMEDIES[saving], peak, least)
        for saving, again in savings.items()
        if again and (least := again.allocated_bytes - kept) < peak
    )
    figures = [*memory_figures(forecast.findings), *changes_figure(lower, LOWER)]
    return _sheet(_answer(blocks[0]), figures, blocks[1:], view)


MOST_STEPS_SHOWN: Final = 3
"""Tests of a comparison of which the step is shown."""


def ab_page(found: AbRun, view: AuditView, blocks: Sequence[Block]) -> str:
    """Return the page of a comparison: what changed, steps that wait more, and its *blocks*."""
    waiting = [call for call in found.calls if SYNCS.name in call.worse_metrics]
    steps = (
        step_figure(call.findings, call.test) for call in waiting[:MOST_STEPS_SHOWN]
    )
    figures = chain(changes_figure(changes_of_commits(found)), *steps)
    said = f"{found.after} after {found.before}: {_answer(blocks[-1])}"
    return _sheet(said, figures, blocks[:-1], view)


def _answer(block: Block) -> str:
    """Return what a block says that may begin with our name."""
    return str(getattr(block, "text", "")).removeprefix("gpuperf: ")


def _sheet(
    answer: str, figures: Iterable[Markup], blocks: Sequence[Block], view: AuditView
) -> str:
    parts = [*figures, markup_of(blocks, view.line_of)]
    known = {"policy": policy(), "style": asset(STYLE)}
    page = rendered("sheet", title=answer, parts=parts, **known)
    return f"<!doctype html>\n{page}\n"
