"""What the line of a test opens to: an answer, pictures and all numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...model.environment import Hardware
from ...model.verdict import Outcome, TestVerdict, Verdict
from ..command import ACCEPTABLE, ab_command, accept_command, at_root
from ..numbers import metric_named, rates_in_words
from ..screen.comparison import comparison_texts
from ..screen.findings import place_of
from .contents import Contents, Section
from .findings import MOST_PLACES_SHOWN, answer, findings_list, places_of
from .markup import Markup, rendered
from .memory import UNKNOWN_STEP, memory_figures
from .pictures import lines_of
from .row import unchecked, verdict_rows
from .samples import Runs, interval_of, samples_figure, strips_of


# Commands to copy.


def _again(verdict: TestVerdict, test: str, hardware: Hardware | None) -> str:
    """Return how to compare with the baseline's code, if that is known."""
    commit = verdict.recorded
    return ab_command(commit, at_root(hardware), [test]) if commit else ""


def _accept(verdict: TestVerdict, contents: Contents) -> str:
    """Return how to accept what is pending, if that would help."""
    hardware = contents.results.head.hardware
    outcomes = {v.outcome for v in verdict.verdicts}
    # Storing what has no baseline does not end a failure.
    failing = {outcome for outcome in outcomes if outcome.fails} or outcomes
    if hardware is None or not failing & ACCEPTABLE:
        return ""
    file = f"{contents.pending_folder}/pending-{hardware.key}.json"
    return accept_command(file, contents.baselines_folder, [verdict.test])


def body_of(section: Section, contents: Contents) -> Markup:
    """Return what a line opens to."""
    verdict = section.verdict
    explained = verdict is not None and (verdict.outcome.fails or not section.failed)
    details = _details(section, verdict, contents) if verdict else {}
    headline = "" if explained else section.record.headline
    return rendered("body", section=section, headline=headline, **details)


def _details(
    section: Section,
    verdict: TestVerdict,
    contents: Contents,
) -> dict[str, object]:
    """Return the answer, the pictures that belong to it, and all numbers."""
    leading, others = _parted(section, verdict)
    if contents.is_large and not section.failing:
        # The table has their numbers: what passed needs no picture of each of them.
        others = []
    entry = contents.stored.get(section.key)
    return {
        "answer": answer(section, contents.lines),
        "again": _again(verdict, section.test, contents.results.head.hardware),
        "is_over_budget": any(
            v.outcome is Outcome.OVER_BUDGET for v in verdict.verdicts
        ),
        "accept": _accept(verdict, contents) if section.key in contents.pending else "",
        "pictures": (
            *memory_figures(verdict.findings, (entry and entry.step) or UNKNOWN_STEP),
            *_pictures(leading, verdict, contents),
        ),
        "numbers": _numbers(
            section, verdict, contents, _pictures(others, verdict, contents)
        ),
    }


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
    pictures: Iterator[Markup],
) -> Markup:
    places = places_of(section, contents.lines) if section.failing else ()
    shown = [place_of(worst) for worst, *_ in places[:MOST_PLACES_SHOWN]]
    return rendered(
        "numbers",
        verdict=verdict,
        judged=verdict_rows(verdict.verdicts),
        unchecked=unchecked(verdict.verdicts),
        said=(rates_in_words(verdict.rates), *verdict.remarks),
        sides=comparison_texts(verdict.sides) if verdict.sides else (),
        pictures=pictures,
        findings=findings_list(verdict.findings, contents.lines, shown),
        has_baseline=any(v.baseline is not None for v in verdict.verdicts),
    )


def _pictures(
    names: Sequence[str],
    verdict: TestVerdict,
    contents: Contents,
) -> Iterator[Markup]:
    by_metric = _by_metric(verdict.verdicts)
    for name in names:
        yield samples_figure(_runs(name, by_metric[name], contents, verdict.test))


def _by_metric(verdicts: Sequence[Verdict]) -> dict[str, list[Verdict]]:
    """Return what was judged with a number, by metric."""
    found: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.now is not None:
            found.setdefault(verdict.metric, []).append(verdict)
    return found


def _runs(name: str, judged: Sequence[Verdict], contents: Contents, key: str) -> Runs:
    return Runs(
        metric=metric_named(name),
        stored=strips_of(name, contents.stored.get(key), contents.kind),
        fresh=strips_of(name, contents.pending.get(key), contents.kind),
        lines=lines_of(judged),
        interval=interval_of(judged),
    )
