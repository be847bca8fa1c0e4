"""The contents of the page: one section for each call of a test, the worst first.

Templates are filled in here, so that no text can become markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from html import escape
from importlib.resources import files
from math import isfinite
from typing import Any, Final

from ...errors import ErrorId, UsageError
from ...model.baseline import Entry
from ...model.finding import Location
from ...model.run import Ending, Record, Results
from ...model.verdict import Outcome, TestVerdict, Verdict
from ..headline import PEOPLE, TITLES, excess, telling
from ..json import EXPECTED_RESULTS, refuse, verdict_of


SourceLines = Mapping[tuple[str, int], str]
"""By file and line."""

COMMIT_CHARS: Final = 10
"""Characters that name a commit."""

PASSING: Final = frozenset({Outcome.IMPROVED, Outcome.PASS, Outcome.NOT_CHECKED})


WORST_FIRST_ENDINGS: Final = (
    *(Ending.DIED.value, Ending.FAILED.value, Ending.WARNED.value),
    *(PEOPLE[o] for o in (Outcome.INCONCLUSIVE, Outcome.NO_BASELINE, Outcome.IMPROVED)),
    *(Ending.XFAILED.value, Ending.PASSED.value),
    *(PEOPLE[Outcome.NOT_CHECKED], Ending.SKIPPED.value),
)
"""Words that a section can be counted as; people call all that fails the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One call of a test, or a test that came to no verdict."""

    key: str
    test: str
    record: Record
    verdict: TestVerdict | None = None

    @property
    def word(self) -> str:
        """What it is counted as."""
        ending = self.record.ending
        if self.verdict is None or ending is Ending.DIED:
            return ending.value
        if not self._is_accused:
            return PEOPLE[self.verdict.outcome]
        return Ending.WARNED.value if ending is Ending.WARNED else Ending.FAILED.value

    @property
    def failed(self) -> bool:
        """Whether its test failed because of it, as far as that is known."""
        if self.verdict is None:
            return self.record.ending.fails
        return self._is_accused and self.record.ending is not Ending.WARNED

    @property
    def _is_accused(self) -> bool:
        outcome = self.verdict.outcome if self.verdict else None
        is_worst = outcome is self.record.outcome and self.record.ending.accuses
        return outcome is not None and (outcome.fails or is_worst)

    @property
    def failing(self) -> Sequence[Verdict]:
        """What failed it, or was inconclusive; nothing if all passed.

        Times, memory and syncs come first: what else grew is mostly why they did.
        """
        if self.verdict is None or self.verdict.outcome in PASSING:
            return ()
        worst = telling(self.verdict)
        return sorted(worst, key=lambda v: (_familiarity(v.metric), -excess(v)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """A run, its *sections*, and what else is known of its tests.

    ``stored`` are the baselines, ``pending`` is what this run measured, both by call,
    from the folders named.
    """

    results: Results
    sections: Sequence[Section]
    stored: Mapping[str, Entry] = field(default_factory=dict)
    pending: Mapping[str, Entry] = field(default_factory=dict)
    lines: SourceLines = field(default_factory=dict)
    pending_folder: str = ".gpuperf"
    baselines_folder: str = ""

    def line_of(self, file: str, line: int) -> str:
        """Return the text of a line as it is now; nothing if that is not known."""
        return self.lines.get((file, line), "")


def sections_of(results: Results, source: str) -> list[Section]:
    """Sort what came of a run: failures, the worst outcome, the largest excess first.

    Raises ``UsageError``, which names the *source*, where a verdict cannot be read.
    """
    sections = [
        section
        for test, record in results.tests.items()
        for section in _sections(test, record, source)
    ]
    return sorted(sections, key=_place)


AROUND: Final = 1
"""Lines of source that are shown on either side of one."""


def locations_of(sections: Sequence[Section]) -> Iterator[Location]:
    """Yield where their findings are, and the lines around."""
    for section in sections:
        for finding in section.verdict.findings if section.verdict else ():
            at = finding.location
            if at is not None:
                for line in range(at.line - AROUND, at.line + AROUND + 1):
                    yield replace(at, line=line)


def _sections(test: str, record: Record, source: str) -> Iterator[Section]:
    if not record.verdicts:
        yield Section(key=test, test=test, record=record)
    for call in record.verdicts:
        verdict = verdict_of(call, source)
        # JSON can spell 1e999, which Python reads as infinity.
        _refuse_infinite(verdict, source)
        yield Section(key=verdict.test, test=test, record=record, verdict=verdict)


def _refuse_infinite(verdict: TestVerdict, source: str) -> None:
    """Raise ``UsageError`` if a number, such as 1e999, has no place in a picture."""
    for judged in verdict.verdicts:
        evidence = judged.evidence
        bounds = (evidence.low, evidence.high) if evidence else ()
        numbers = (judged.now, judged.baseline, judged.limit, *bounds)
        if any(number is not None and not isfinite(number) for number in numbers):
            found = f"a number of {verdict.test} is infinite"
            refuse(source, found, EXPECTED_RESULTS)


def _place(section: Section) -> tuple[bool, int, int, float]:
    outcome = section.verdict.outcome if section.verdict else Outcome.REGRESSED
    return (
        not section.failed,
        WORST_FIRST_ENDINGS.index(section.word),
        list(Outcome).index(outcome),
        -_excess(section),
    )


def _familiarity(metric: str) -> int:
    """Return the place of a metric among those that people have a name for."""
    known = list(TITLES)
    return known.index(metric) if metric in known else len(known)


def _excess(section: Section) -> float:
    """Return how far the worst metric is beyond its baseline or limit, as a ratio."""
    if section.verdict is None:
        return 0.0
    return max(map(excess, telling(section.verdict)), default=0.0)


# Templates that are filled in so that no text can become markup.
#
# They lie in `templates`. Their lines are layout: a line end, with the blanks around
# it, is written as a blank between two words, and not at all next to a tag.


_BIDI: Final = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_INVISIBLE: Final = (*range(0x7F, 0xA0), *_BIDI, 0x2028, 0x2029, 0xFFFE, 0xFFFF)

VISIBLE_CHARS: Final = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"},
    **{code: f"\\u{code:04x}" for code in (*_INVISIBLE, *range(0xD800, 0xE000))},
}
"""Replaces characters that are no text: those that control a terminal, turn the
direction of writing, end a line of a script, or cannot be written as UTF-8."""


class Markup(str):
    """HTML that goes into the page unchanged."""

    __slots__ = ()

    def __html__(self) -> str:
        """Return it as it is: by this name templates know what needs no escaping."""
        return self


def escaped(value: object) -> Markup:
    """Escape a text or number so that it reads as it is; return markup unchanged."""
    # The type marks text that is escaped already, so that nothing is escaped twice or never.
    if isinstance(value, Markup):
        return value
    if hasattr(value, "__html__"):  # what a macro or a block of a template gave
        return Markup(value)
    if not isinstance(value, str | int | float):
        msg = f"{value}: no text for a page"
        raise TypeError(msg)
    text = str(value)
    shown = text if text.isprintable() else text.translate(VISIBLE_CHARS)
    return Markup(escape(shown))


def rendered(template: str, /, **values: object) -> Markup:
    """Return the *template* of this name with its *values* filled in, each escaped.

    Raises ``UsageError`` if jinja2 is not installed.
    """
    return Markup(_environment().get_template(f"{template}.html.j2").render(values))


@cache
def asset(name: str) -> Markup:
    """Return the text of a file next to this module."""
    return Markup(files(__package__).joinpath(name).read_text(encoding="utf-8"))


_NEXT_TO_TAG: Final = re.compile(r"(?<=[>}])\s*\n\s*|\s*\n\s*(?=[<{])")
_LINE_END: Final = re.compile(r"\s*\n\s*")


def without_layout(source: str) -> str:
    """Return the *source* of a template as one line."""
    return _LINE_END.sub(" ", _NEXT_TO_TAG.sub("", source.strip()))


@cache
def _environment() -> Any:
    try:
        # Imported here: torch requires it, and this room alone needs it.
        import jinja2
    except ModuleNotFoundError:
        msg = "a page needs jinja2, which is not installed; run `pip install jinja2`"
        raise UsageError(msg, ErrorId.GP528) from None
    return jinja2.Environment(
        loader=jinja2.FunctionLoader(
            lambda name: without_layout(asset(f"templates/{name}"))
        ),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        # Before its own escaping, to which an escaped text is markup.
        finalize=escaped,
    )
