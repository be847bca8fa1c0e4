"""The whole page: what the run came to, and a section for each test."""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from itertools import accumulate
from itertools import zip_longest
from typing import Final
from zlib import compress

from ...model.results import Head
from ..numbers import metric_named
from .contents import WORST_FIRST_ENDINGS
from .contents import Contents
from .contents import Section
from .findings import words_of
from .history import COMMIT_CHARS
from .history import Moment
from .history import moment_of
from .markup import Markup
from .markup import tag
from .row import header
from .section import body_of
from .section import points_of
from .section import section_of


# The style and script of the page, and the content policy that forbids anything else.

STYLE: Final = "page.css"
SCRIPT: Final = "page.js"


@cache
def asset(name: str) -> Markup:
    """Return the text of a file beside this module."""
    return Markup(files(__package__).joinpath(name).read_text(encoding="utf-8"))


def policy() -> str:
    """Return a Content-Security-Policy: this style, this script, and no request at all.

    A script that got in by a text that was not escaped would not run.
    """
    return "; ".join(
        (
            "default-src 'none'",
            # By hash, not 'unsafe-inline': only exactly this text is allowed.
            f"style-src '{_hash(asset(STYLE))}'",
            f"script-src '{_hash(asset(SCRIPT))}'",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


# The guide to the page.

PICTURES: Final = (
    (
        "each run",
        (
            "a row for all runs of the baseline, one for each of this run, one for the "
            "95 % range of the change. A bold tick is the run, thin ones are its "
            "timed rounds; if those were not kept, a bar reaches from the first decile "
            "to the median"
        ),
    ),
    (
        "the last runs",
        (
            "a point a run, the newest at the right, with commits below; runs that failed "
            "are shaded, a vertical line marks a change of level. A few runs far off may "
            "be outside of the picture. The pointer, or the arrow keys, name a run"
        ),
    ),
    (
        "one profiled step",
        (
            "from the end of the step before it on the GPU to its own end. While the CPU "
            "waits, it prepares no work for the GPU. The profiler makes the CPU slower than "
            "it is in the timed rounds"
        ),
    ),
    (
        "memory over one step",
        (
            "from the left to the right each time that memory is taken or released, not "
            "in time"
        ),
    ),
    (
        "trend",
        (
            "the last 25 runs, from 10 % less than the baseline to 10 % more, the same "
            "for all tests; grey is what is allowed"
        ),
    ),
)


def guide(metrics: Collection[str]) -> Markup:
    """Explain the pictures, and those *metrics* that this version measures."""
    terms = (
        part for term in (*PICTURES, *_summaries(metrics)) for part in _term(*term)
    )
    return tag("details", tag("summary", "How to read this page"), tag("dl", *terms))


def _summaries(metrics: Collection[str]) -> Iterator[tuple[str, str]]:
    for name in sorted(metrics):
        metric = metric_named(name)
        if metric.summary:
            yield name, metric.summary


def _term(term: str, text: str) -> Iterator[Markup]:
    yield tag("dt", term)
    yield tag("dd", text)


def page_text(contents: Contents) -> str:
    """Return the page of one run: HTML that asks nothing of any other file.

    Raises ``UsageError`` if a point of the history is no number.
    """
    numbered = _numbered(contents)
    head, title = contents.results.head, _title(contents)
    bodies = [body_of(section, contents, numbered) for section in contents.sections]
    inline = _inline(bodies)
    body = tag(
        "body",
        tag("header", tag("h1", title), *_facts(head), *_objections(contents)),
        *_list(contents, bodies[:inline]),
        tag("footer", *_guide(contents), f"pytest-gpuperf {head.version}"),
        *_packed(contents.sections[inline:], bodies[inline:]),
        # At the end: it works on the elements before it.
        tag("script", asset(SCRIPT)),
        # Once for the page: the histories of thousands of tests name the same runs by
        # number.
        data_moments=",".join(" ".join(moment) for moment in numbered),
    )
    page = tag("html", _head(title), body, lang="en")
    return f"<!doctype html>\n{page}\n"


# What tests open to: written out for the worst, compressed for all others.

MOST_INLINE_CHARS: Final = 120_000

OPEN_TESTS: Final = 3
"""Failing tests that are open from the start."""


def _inline(bodies: Sequence[Markup]) -> int:
    """Return how many *bodies*, the worst first, are there without the script."""
    lengths = accumulate(map(len, bodies))
    fitting = sum(length <= MOST_INLINE_CHARS for length in lengths)
    return max(fitting, OPEN_TESTS)


def _packed(sections: Sequence[Section], bodies: Sequence[Markup]) -> Iterator[Markup]:
    """Yield *bodies* as one compressed block, each with the words it is found by."""
    if not bodies:
        return
    packed = [
        [body, words_of(section)]
        for section, body in zip(sections, bodies, strict=True)
    ]
    text = json.dumps(packed, ensure_ascii=False, separators=(",", ":"))
    # Together, as they are alike; deflate is what browsers can read by themselves.
    block = b64encode(compress(text.encode(), 9)).decode()
    yield tag("script", Markup(block), type="application/zlib", id="bodies")
    count = f"{len(bodies)} more tests" if len(bodies) > 1 else "1 more test"
    yield tag("noscript", tag("p", f"Without scripts {count} cannot be opened."))


def _head(title: str) -> Markup:
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        # Before style and script: a policy in a meta element applies to what follows
        # it.
        tag("meta", http_equiv="Content-Security-Policy", content=policy()),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", asset(STYLE)),
    )


def _numbered(contents: Contents) -> Mapping[Moment, int]:
    """Number the runs of all histories, the oldest first."""
    moments = {
        moment_of(point)
        for section in contents.sections
        for point in points_of(section, contents)
    }
    return {moment: number for number, moment in enumerate(sorted(moments))}


def _title(contents: Contents) -> str:
    tests = contents.results.tests
    failed = len({section.test for section in contents.sections if section.failed})
    hardware = contents.results.head.hardware
    where = f" on {hardware.in_words}" if hardware else ""
    counted = f"{len(tests)} test{'' if len(tests) == 1 else 's'}"
    came_to = f"{failed} of {counted} failed" if failed else f"{counted}, none failed"
    return f"gpuperf: {came_to if tests else 'no test was measured'}{where}"


def _facts(head: Head) -> Iterator[Markup]:
    """Yield facts about the whole run."""
    commit = f"commit {head.commit[:COMMIT_CHARS]}" if head.commit else ""
    strict = "strict" if head.strict else ""
    said = ", ".join(filter(None, (commit, strict)))
    if said:
        yield tag("p", said, class_="aside")
    for note in head.notes:
        yield tag("p", note, class_="note")


def _objections(contents: Contents) -> Iterator[Markup]:
    """Yield what makes the run less than whole."""
    head, tests = contents.results.head, contents.results.tests
    if head.exit_status is None:
        yield tag(
            "p",
            "This run did not finish: it died, or it is still going on.",
            class_="bad",
        )
    lost = dict.fromkeys(
        (*head.unreported, *(t for t in head.selected if t not in tests))
    )
    if lost:
        items = (tag("li", tag("code", test)) for test in lost)
        count = (
            f"{len(lost)} selected test{'' if len(lost) == 1 else 's'} without a result"
        )
        yield tag("details", tag("summary", count), tag("ul", *items), class_="bad")


def _list(contents: Contents, bodies: Sequence[Markup]) -> Iterator[Markup]:
    sections = contents.sections
    if not sections:
        yield tag("main", tag("p", "There is nothing to show."))
        return
    counts = Counter(section.word for section in sections)
    chips = (_chip(word, counts[word]) for word in WORST_FIRST_ENDINGS if counts[word])
    yield tag("div", *chips, *_tools(), class_="tools", role="search")
    shown = (
        section_of(section, contents, body, is_open=section.failed and n < OPEN_TESTS)
        for n, (section, body) in enumerate(zip_longest(sections, bodies))
    )
    yield tag("main", header(), *shown)


def _guide(contents: Contents) -> Iterator[Markup]:
    judged = [s.verdict.verdicts for s in contents.sections if s.verdict]
    if judged:
        yield guide({verdict.metric for verdicts in judged for verdict in verdicts})


def _chip(word: str, count: int) -> Markup:
    """Return a button that shows these tests only; the script enables it."""
    return tag(
        "button",
        f"{count} {word}",
        type="button",
        class_=f"chip {word.replace(' ', '-')}",
        data_word=word,
        aria_pressed="false",
        disabled="",
    )


def _tools() -> Iterator[Markup]:
    """Yield the controls that need the script; they are hidden without it."""
    yield tag(
        "input",
        id="words",
        type="search",
        placeholder="words of a test, a reason or a line",
        aria_label="show tests with these words",
        hidden="",
    )
    yield tag("button", "open all", id="open", type="button", hidden="")
    yield tag("output", id="shown", aria_live="polite")
