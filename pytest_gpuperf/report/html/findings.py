"""Why a test failed: lines of source, causes, and what to do; all causes as lists."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from textwrap import dedent
from typing import Final

from ...model.finding import Diagnosis
from ...model.finding import Finding
from ...model.finding import FindingKind
from ...model.finding import Location
from ...model.verdict import Verdict
from ..headline import merged_headlines
from ..headline import title
from ..remedies import BOTTLENECK_REMEDIES
from ..remedies import METRIC_REMEDIES
from ..remedies import NONE_KNOWN
from ..remedies import remedy_of
from ..remedies import spot_of
from ..screen.bottleneck import WAITED_FOR
from ..screen.bottleneck import heading
from ..screen.bottleneck import sentences
from ..screen.findings import badness
from ..screen.findings import cause
from ..screen.findings import causes_of
from ..screen.findings import explained
from ..screen.findings import place_of
from ..screen.findings import short
from .contents import AROUND
from .contents import Section
from .contents import SourceLines
from .markup import Markup
from .markup import escaped
from .markup import joined
from .markup import tag


# The places that make a test fail, each with what happens there.

MOST_PLACES_SHOWN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A line of source, or what is known in place of it, with its causes."""

    name: str
    location: Location | None
    causes: tuple[Finding, ...]

    @property
    def source(self) -> str:
        """The text of the line, nothing if only the function is known."""
        return self.causes[0].source


def places_of(section: Section, lines: SourceLines) -> list[Place]:
    """Return where what failed has its causes, the worst first."""
    findings = section.verdict.findings if section.verdict else ()
    found: dict[str, list[Finding]] = {}
    failing = {verdict.metric for verdict in section.failing}
    for finding in sorted(causes_of(findings, failing), key=badness):
        known = replace(finding, source=line_of(finding, lines))
        found.setdefault(place_of(finding), []).append(known)
    return [
        Place(name=name, location=group[0].location, causes=tuple(group))
        for name, group in found.items()
    ]


def line_of(finding: Finding, lines: SourceLines) -> str:
    """Return the text of its line; nothing if only the function is known."""
    at = finding.location
    if at is None or not at.exact:
        return ""
    # As it ran first: the file may have changed since.
    return finding.source or lines.get((at.file, at.line), "").strip()


# What, where, why and what to do.


def answer(section: Section, lines: SourceLines, *accept: Markup) -> Iterator[Markup]:
    """Yield what failed, where, why, what to do, and how to *accept* it."""
    failing = section.failing
    if not failing:
        return
    places = places_of(section, lines)
    heads = list(merged_headlines(failing))
    yield from (_what(text) for _, text in heads)
    yield from (_where(place, lines) for place in places[:MOST_PLACES_SHOWN])
    left = len(places) - MOST_PLACES_SHOWN
    if left > 0:
        yield tag(
            "p",
            f"and {left} more place{'' if left == 1 else 's'}, in the numbers below",
            class_="aside",
        )
    why = [_why(verdict, many=len(heads) > 1) for verdict, _ in heads]
    diagnosis = section.verdict.diagnosis if section.verdict else None
    yield from _listed("Why", [text for text in why if text])
    yield from _listed("Fix", _fixes(failing, places, diagnosis))
    yield from accept


def _what(text: str) -> Markup:
    what, colon, numbers = text.partition(": ")
    return tag("p", tag("b", what), f"{colon}{numbers}", class_="what")


def _why(verdict: Verdict, *, many: bool) -> str:
    name = f"{title(verdict.metric)}: " if many and verdict.because else ""
    return f"{name}{verdict.because}"


def _fixes(
    failing: Sequence[Verdict], places: Sequence[Place], diagnosis: Diagnosis | None
) -> list[str]:
    """Name what ends it: that of the lines first, then that of the metrics."""
    causes = [cause for place in places[:MOST_PLACES_SHOWN] for cause in place.causes]
    remedies = (remedy_of(finding) for finding in causes)
    fixes = [remedy.do for remedy in remedies if remedy is not None]
    metrics = {verdict.metric for verdict in failing}
    fixes += [fix for metric, fix in METRIC_REMEDIES.items() if metric in metrics]
    if not fixes and diagnosis is not None and metrics & WAITED_FOR:
        first = BOTTLENECK_REMEDIES.get(diagnosis.first.bottleneck)
        fixes += [first] if first else []
    return [fix for fix in dict.fromkeys(fixes) if fix != NONE_KNOWN] or fixes[:1]


def _listed(name: str, texts: Collection[str]) -> Iterator[Markup]:
    if texts:
        items = (tag("p", text) for text in texts)
        yield tag("div", tag("h2", name), *items, class_="said")


def _where(place: Place, lines: SourceLines) -> Markup:
    said = dict.fromkeys(explained(finding) for finding in place.causes)
    inside = dict.fromkeys(
        f"inside {short(f.innermost)}" for f in place.causes if f.innermost
    )
    return tag(
        "figure",
        tag("figcaption", tag("code", place.name)),
        *_source(place, lines),
        *(tag("p", text) for text in (*said, *inside)),
        class_="place",
    )


def _source(place: Place, lines: SourceLines) -> Iterator[Markup]:
    """Yield the line with those around it, and mark what it is about."""
    at, text = place.location, place.source
    if at is None or not text:
        return
    now = lines.get((at.file, at.line), "")
    # Where the file was changed since, its lines beside this one mislead.
    beside = AROUND if now.strip() == text else 0
    numbers = range(at.line - beside, at.line + beside + 1)
    found = {n: lines.get((at.file, n), "") if beside else text for n in numbers}
    shown = {n: " ".join(line.split("\n")) for n, line in found.items() if line}
    width = len(str(at.line + AROUND))
    texts = dedent("\n".join(shown.values())).split("\n")
    rows = (
        _row(f"{number:>{width}}", line, place if number == at.line else None)
        for number, line in zip(shown, texts, strict=True)
    )
    yield tag("pre", *rows, class_="source")


def _row(number: str, line: str, place: Place | None) -> Markup:
    if place is None:
        return tag("span", f"{number}  {line}\n")
    start, length = spot_of(remedy_of(place.causes[0]), line.strip())
    start += len(line) - len(line.lstrip())
    parts = (
        escaped(f"{number}  {line[:start]}"),
        tag("mark", line[start : start + length]),
        escaped(f"{line[start + length :]}\n"),
    )
    return tag("span", joined(parts), class_="here")


# All causes, each with its place.

MOST_PAGE_FINDINGS: Final = 12
"""Findings of a group that are listed."""

FINDING_GROUPS: Final[Mapping[str, tuple[FindingKind, ...]]] = {
    "Where the time is spent": (FindingKind.TIME,),
    "Where the CPU waits": (FindingKind.SYNC, FindingKind.COPY),
    "Where it may wait: only a GPU can show": (FindingKind.MAYBE,),
    "What goes between CPU and GPU": (FindingKind.TRANSFER,),
    "What torch.compile does with the code": (
        FindingKind.BREAK,
        FindingKind.RECOMPILE,
    ),
    "What takes the memory": (
        FindingKind.LEFT,
        FindingKind.GARBAGE,
        FindingKind.PEAK,
        FindingKind.MEMORY,
    ),
    "What runs more operations than before": (FindingKind.WORK,),
}


def diagnosis_list(diagnosis: Diagnosis | None) -> Iterator[Markup]:
    """Yield a titled list of the parts; nothing if there is no diagnosis."""
    if diagnosis is None:
        return
    items = [
        tag("li", tag("b", amount), f" {text}") for amount, text in sentences(diagnosis)
    ]
    name = heading(diagnosis).rstrip(":")
    yield tag("h2", f"{name[0].upper()}{name[1:]}")
    yield tag("ol", *items, class_="findings diagnosis")


def findings_list(
    findings: Sequence[Finding], lines: SourceLines, shown: Collection[str] = ()
) -> Iterator[Markup]:
    """Yield a titled list for each group, what is worst first.

    The source of places that were *shown* above is not printed again.
    """
    printed = set(shown)
    for name, kinds in FINDING_GROUPS.items():
        group = sorted((f for f in findings if f.kind in kinds), key=badness)
        if group:
            items = [_item(f, lines, printed) for f in group[:MOST_PAGE_FINDINGS]]
            left = len(group) - len(items)
            more = [tag("li", f"and {left} more")] if left else []
            yield tag("h2", name)
            yield tag("ul", *items, *more, class_="findings")


def _item(finding: Finding, lines: SourceLines, printed: set[str]) -> Markup:
    return tag("li", *_parts(finding, lines, printed))


def _parts(finding: Finding, lines: SourceLines, printed: set[str]) -> Iterator[Markup]:
    name = place_of(finding)
    yield tag("code", name)
    yield escaped(f": {cause(finding)}")
    line = line_of(finding, lines)
    if line and name not in printed:
        yield tag("pre", line)
    printed.add(name)
    if finding.innermost:
        yield tag("p", f"inside {short(finding.innermost)}")
    if finding.reason:
        yield tag("p", finding.reason)
    if finding.allowed is not None:
        yield tag("p", f"allowed: {finding.allowed}")


def words_of(section: Section) -> str:
    """Return the words by which *section* is found, beside those of its line."""
    findings = section.verdict.findings if section.verdict else ()
    known = (f"{place_of(f)} {cause(f)} {f.source}" for f in findings)
    return " ".join(dict.fromkeys(known))
