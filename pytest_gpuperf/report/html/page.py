"""The whole page: what the run came to, and a section for each test."""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from itertools import accumulate, zip_longest
from typing import Final
from zlib import compress

from ...model.metric import Metric
from ...model.results import Results
from ..numbers import metric_named
from .contents import COMMIT_CHARS, WORST_FIRST_ENDINGS, Contents, Section
from .findings import words_of
from .markup import Markup, asset, rendered
from .row import section_of
from .section import body_of


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
    bodies = [body_of(section, contents) for section in contents.sections]
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
        sections=_list(contents, bodies[:inline]),
        is_judged=any(section.verdict for section in contents.sections),
        metrics=_explained(contents.sections),
        packed=_packed(contents.sections[inline:], bodies[inline:]),
        left=len(bodies) - inline,
    )
    return f"<!doctype html>\n{page}\n"


def _explained(sections: Sequence[Section]) -> list[Metric]:
    """Return the metrics that were judged, as far as this version measures them."""
    judged = {v.metric for s in sections if s.verdict for v in s.verdict.verdicts}
    return [m for m in map(metric_named, sorted(judged)) if m.summary]


# What tests open to: written out for the worst, compressed for all others.

MOST_INLINE_CHARS: Final = 120_000

OPEN_TESTS: Final = 3
"""Failing tests that are open from the start."""


def _inline(bodies: Sequence[Markup]) -> int:
    """Return how many *bodies*, the worst first, are there without the script."""
    lengths = accumulate(map(len, bodies))
    fitting = sum(length <= MOST_INLINE_CHARS for length in lengths)
    return max(fitting, OPEN_TESTS)


def _packed(sections: Sequence[Section], bodies: Sequence[Markup]) -> Markup:
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


def _counts(sections: Sequence[Section]) -> list[tuple[str, int]]:
    """Count the sections by their words, the worst first."""
    counts = Counter(section.word for section in sections)
    return [(word, counts[word]) for word in WORST_FIRST_ENDINGS if counts[word]]


def _list(contents: Contents, bodies: Sequence[Markup]) -> list[Markup]:
    return [
        section_of(section, contents, body, is_open=section.failed and n < OPEN_TESTS)
        for n, (section, body) in enumerate(zip_longest(contents.sections, bodies))
    ]
