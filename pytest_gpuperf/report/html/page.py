"""The whole page: what the run came to, and for each test a line that opens."""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import accumulate, chain, zip_longest
from typing import Final
from zlib import compress

from ...devices.audit_record import StepAudit
from ...model.ab import AbRun
from ...model.measurement import Forecast, Saving
from ...model.metrics import PEAK_ALLOCATED, SYNCS, Direction, Metric
from ...model.run import Results
from ...model.verdict import Outcome, TestVerdict, Verdict
from ..command import accept_command, at_root
from ..document import Block, Field, Place, Table, Text
from ..headline import PEOPLE, merged_headlines, title, what_happened
from ..judged_calls import WORST_FIRST_ENDINGS, JudgedCall
from ..numbers import format_change, metric_named, rates_in_words, texts_apart
from ..remedies import SAVING_REMEDIES
from ..screen.audit import AuditView, is_in_each_step
from ..screen.comparison import compared_cells, sides_blocks
from ..screen.failure import PAGE_ROOM, Failure, changed_in_words, explanation_blocks
from ..screen.findings import SharedCauses, found_blocks, place_of
from ..screen.summary import NO_VALUE, summary_cells
from .contents import COMMIT_CHARS, Contents, Markup, asset, rendered
from .findings import cause_blocks, markup_of, with_lines, words_of
from .memory import UNKNOWN_STEP, memory_figures
from .pictures import MetricChange, changes_figure, changes_of_commits, changes_of_run
from .step import step_figure


# The style and script of the page, and the content policy that forbids anything else.

STYLE: Final = "page.css"
SCRIPT: Final = "page.js"


def policy() -> str:
    """Return a Content-Security-Policy: this style, this script, and no request at all.

    A script that got in by a text that was not escaped would not run.
    """
    # By hash, not 'unsafe-inline': only exactly this text is allowed.
    style, script = _hash(asset(STYLE)), _hash(asset(SCRIPT))
    inline = f"style-src '{style}'; script-src '{script}'"
    return f"default-src 'none'; {inline}; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def page_text(contents: Contents) -> str:
    """Return the page of one run: HTML that asks nothing of any other file.

    Raises ``UsageError`` if jinja2 is missing.
    """
    contents = replace(
        contents, sections=[with_lines(s, contents.lines) for s in contents.sections]
    )
    shared = SharedCauses()
    for section in contents.sections:
        if section.verdict and section.failing:
            shared.add(section.test, section.verdict)
    bodies = [body_of(section, contents, shared) for section in contents.sections]
    inline = _inline(bodies)
    page = rendered(
        "page",
        head=contents.results.head,
        commit_chars=COMMIT_CHARS,
        count=len(contents.results.tests),
        failed=len({section.test for section in contents.sections if section.failed}),
        policy=policy(),
        style=asset(STYLE),
        script=asset(SCRIPT),
        lost=_lost(contents.results),
        counts=_counts(contents.sections),
        changes=_changes(contents.sections),
        sections=_list(contents, bodies[:inline]),
        # Without a time two columns would be empty.
        has_times=any(_numbers(s)[0] != NO_VALUE for s in contents.sections),
        is_judged=any(section.verdict for section in contents.sections),
        metrics=_explained(contents.sections),
        packed=_packed(contents.sections[inline:], bodies[inline:]),
        left=len(bodies) - inline,
    )
    return f"<!doctype html>\n{page}\n"


def _explained(sections: Sequence[JudgedCall]) -> list[Metric]:
    """Return the metrics that were judged, as far as this version measures them."""
    judged = {v.metric for s in sections if s.verdict for v in s.verdict.verdicts}
    return [m for m in map(metric_named, sorted(judged)) if m.summary]


def _changes(sections: Sequence[JudgedCall]) -> list[Markup]:
    """Draw what changed in several tests; of a single one its own page says it all."""
    changes = list(changes_of_run(sections))
    return [*changes_figure(changes)] if len({c.name for c in changes}) > 1 else []


# What tests open to: written out for the worst, compressed for all others.

MOST_INLINE_CHARS: Final = 120_000

OPEN_TESTS: Final = 3
"""Failing tests that are open from the start."""


def _inline(bodies: Sequence[Markup]) -> int:
    """Return how many *bodies*, the worst first, are there without the script."""
    lengths = accumulate(map(len, bodies))
    fitting = sum(length <= MOST_INLINE_CHARS for length in lengths)
    return max(fitting, OPEN_TESTS)


def _packed(sections: Sequence[JudgedCall], bodies: Sequence[Markup]) -> Markup:
    """Return *bodies* as one compressed block, each with the words it is found by."""
    if not bodies:
        return Markup()
    pairs = zip(sections, bodies, strict=True)
    packed = [[body, words_of(section)] for section, body in pairs]
    text = json.dumps(packed, ensure_ascii=False, separators=(",", ":"))
    # Together, as they are alike; deflate is what browsers can read by themselves.
    return Markup(b64encode(compress(text.encode(), 9)).decode())


# What the page says of the whole run.


def _lost(results: Results) -> list[str]:
    """Return the tests that make the run less than whole: those without a result."""
    head, tests = results.head, results.tests
    selected = (test for test in head.selected if test not in tests)
    return list(dict.fromkeys((*head.unreported, *selected)))


def _counts(sections: Sequence[JudgedCall]) -> list[tuple[str, int]]:
    """Count the sections by their words, the worst first."""
    counts = Counter(section.word for section in sections)
    return [(word, counts[word]) for word in WORST_FIRST_ENDINGS if counts[word]]


def _list(contents: Contents, bodies: Sequence[Markup]) -> list[Markup]:
    return [
        section_of(section, body, is_open=section.failed and n < OPEN_TESTS)
        for n, (section, body) in enumerate(zip_longest(contents.sections, bodies))
    ]


# What the line of a test opens to: an answer, pictures and all numbers.


def body_of(section: JudgedCall, contents: Contents, shared: SharedCauses) -> Markup:
    """Return what a line opens to; *shared* causes are explained once in all bodies."""
    verdict = section.verdict
    explained = verdict is not None and (verdict.outcome.fails or not section.failed)
    details = _details(section, verdict, contents, shared) if verdict else {}
    headline = "" if explained else section.record.headline
    return rendered("body", section=section, headline=headline, **details)


def _details(
    section: JudgedCall, verdict: TestVerdict, contents: Contents, shared: SharedCauses
) -> dict[str, object]:
    """Return the answer, the pictures that belong to it, and all numbers."""
    entry = contents.stored.get(section.key)
    failure = Failure(
        verdict,
        section.test,
        at_root(contents.results.head.hardware),
        shared=shared,
        accept=_accept(section, contents),
    )
    has_step = section.failing and not failure.is_shown_elsewhere
    answer = [*failure.blocks(PAGE_ROOM), *found_blocks([verdict])]
    return {
        "answer": markup_of(answer, contents.line_of),
        "pictures": (
            *(step_figure(verdict.findings) if has_step else ()),
            *memory_figures(verdict.findings, (entry and entry.step) or UNKNOWN_STEP),
        ),
        "numbers": _all_numbers(verdict, contents, answer),
    }


def _accept(section: JudgedCall, contents: Contents) -> str:
    """Return how to accept what this run measured, if it is still there."""
    hardware = contents.results.head.hardware
    if hardware is None or section.key not in contents.pending:
        return ""
    file = f"{contents.pending_folder}/pending-{hardware.key}.json"
    return accept_command(file, contents.baselines_folder, [section.key])


def _all_numbers(
    verdict: TestVerdict, contents: Contents, answer: Sequence[Block]
) -> Markup:
    shown = [block.name for block in answer if isinstance(block, Place)]
    numbers = number_blocks(verdict, explained=bool(answer))
    blocks = [*numbers, *cause_blocks(verdict.findings, shown)]
    return markup_of(blocks, contents.line_of)


# All numbers: the verdicts of one call as a table, and what decided each below it.

NUMBERS_HEADER: Final = ("metric", "now", "baseline", "change", "allowed", "outcome")


def number_blocks(verdict: TestVerdict, *, explained: bool) -> Iterator[Block]:
    """Say all that was judged, and why; without the software if that is *explained*."""
    judged = [v for v in verdict.verdicts if v.outcome is not Outcome.NOT_CHECKED]
    rows = [
        _row(v) for v in sorted(judged, key=lambda v: list(Outcome).index(v.outcome))
    ]
    if rows:
        yield Table(NUMBERS_HEADER, rows, frozenset({0}))
    yield from explanation_blocks(verdict)
    yield from map(Text, (rates_in_words(verdict.rates), *verdict.remarks))
    if verdict.sides:
        yield from sides_blocks(verdict.sides)
    if not explained and any(v.baseline is not None for v in verdict.verdicts):
        yield Field(
            "env", changed_in_words(verdict, PAGE_ROOM) or "as for the baseline"
        )
    yield Field("memory", verdict.snapshot, is_copied=True)
    yield Field("trace", verdict.trace, is_copied=True)


def _word(verdict: Verdict) -> str:
    """Return what people call the outcome of *verdict*, and what happened if it failed."""
    if not verdict.outcome.fails:
        return PEOPLE[verdict.outcome]
    return what_happened(verdict).lower()


def _row(verdict: Verdict) -> tuple[str, ...]:
    """Write the numbers of a verdict, as far as they are known."""
    metric, own = metric_named(verdict.metric), verdict.own
    values = own.now, own.baseline, own.limit
    texts = texts_apart(metric, *values)
    now, baseline, limit = (NO_VALUE if v is None else texts[v] for v in values)
    if metric.direction is Direction.HIGHER and own.limit is not None:
        limit = f"at least {limit}"
    change = NO_VALUE
    if own.now is not None and own.baseline is not None:
        change = format_change(metric, own.baseline, own.now)
    return title(metric.name), now, baseline, change, limit, _word(verdict)


# The line.

SILENT: Final = frozenset({Outcome.PASS, Outcome.NOT_CHECKED, Outcome.NO_BASELINE})
"""Outcomes with a reason that is not worth a line."""


def section_of(section: JudgedCall, body: Markup | None, *, is_open: bool) -> Markup:
    """Return the element of *section*, found by its word; without a *body* it is empty."""
    return rendered(
        "section",
        section=section,
        badges=_badges(section),
        said=_said(section),
        numbers=_numbers(section),
        body=body,
        is_open=is_open,
    )


def _badges(section: JudgedCall) -> Iterator[str]:
    """Say that a test failed, and what its outcome is if that did not fail it."""
    yield section.word
    if section.failed and section.verdict and not section.verdict.outcome.fails:
        yield PEOPLE[section.verdict.outcome]


def _said(section: JudgedCall) -> Iterator[tuple[str, str, str]]:
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
    for worst in section.causes[:1]:
        at = worst.location
        where = f"{at.file}:{at.line}" if at else place_of(worst)
        yield "line", where, f" {worst.source}"


MOST_HEADS: Final = 2
"""Metrics that are named in the line of a test."""


def _numbers(section: JudgedCall) -> tuple[str, ...]:
    """Return time, its change or the speedup, memory and syncs, as the terminal's table."""
    if section.verdict is None:
        return (NO_VALUE,) * 4
    if section.verdict.sides is not None:
        ratio, _, time, memory, syncs, *_ = compared_cells(section.verdict)
        return time, ratio, memory, syncs
    time, _, change, syncs, _, memory, *_ = summary_cells(section.verdict)
    return time, change, memory, syncs


# The pages of an audit, a forecast and a comparison: a file to send, without a script.


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
