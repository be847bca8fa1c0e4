"""The page of a run: what it says, in which order, and what can never get into it."""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from dataclasses import replace
from hashlib import sha256
from zlib import decompress

import pytest
from builders import a_test, a_verdict, line_change
from pages import (
    BAD,
    COURSE,
    GOOD,
    HEAD,
    HOSTILE,
    ITEM,
    LEAN,
    PEAK,
    SLOWER,
    Page,
    contents,
    entry,
    full_contents,
    hostile_page,
    page,
)

from pytest_gpuperf.errors import UsageError
from pytest_gpuperf.model.run import Ending, Record, Results
from pytest_gpuperf.model.verdict import Outcome, TestVerdict
from pytest_gpuperf.report.html.contents import locations_of
from pytest_gpuperf.report.html.page import page_text
from pytest_gpuperf.report.judged_calls import WORST_FIRST_ENDINGS, judged_calls


SOURCE = {
    ("train.py", 2): "    loss = model(batch)",
    ("train.py", 3): "    total += loss.item()",
    ("train.py", 4): "return total",
}


def outcome(which: Outcome, name: str, now: float = 12.0) -> TestVerdict:
    return a_test(replace(SLOWER, outcome=which, now=now), test=name)


def test_a_thousand_tests_are_less_than_a_megabyte() -> None:
    peak = replace(PEAK, course=COURSE)
    full = replace(GOOD, findings=(ITEM, peak))
    calls = [
        replace(call, test=f"tests/test_train.py::test_step[{n}]")
        for n in range(1000)
        for call in [BAD if n < 20 else full]
    ]
    text = page_text(
        contents(
            *calls,
            stored={call.test: entry(*[10.0, 10.01] * 4) for call in calls},
            pending={call.test: entry(10.0) for call in calls},
        )
    )

    assert len(text) < 600_000


def test_what_is_compressed_is_what_the_other_tests_open_to() -> None:
    calls = [replace(BAD, test=f"t.py::t[{n}]") for n in range(90)]
    text = page_text(contents(*calls))

    (block,) = re.findall(r'<script type="application/zlib" id="bodies">([^<]*)<', text)
    bodies = json.loads(decompress(b64decode(block)))
    assert len(bodies) == text.count('data-lazy=""') > 0
    assert all("NEW SYNC" in body or "OVER LIMIT" in body for body, _ in bodies)
    assert all("train.py:3 in step" in words for _, words in bodies)


def test_the_worst_failures_are_written_out_and_three_are_open() -> None:
    calls = [replace(BAD, test=f"t.py::t[{n}]") for n in range(40)]
    opened = re.findall(r"<details class=\"test\"[^>]*>", page_text(contents(*calls)))

    assert [" open" in element for element in opened[:5]] == [True] * 3 + [False] * 2
    assert not any("lazy" in element for element in opened[:10])


def test_nothing_is_open_where_nothing_failed() -> None:
    assert " open=" not in page_text(contents(GOOD))


def test_every_word_that_a_section_can_have_has_its_place() -> None:
    verdicts = {
        section.word
        for o in Outcome
        for section in contents(outcome(o, "t.py::t")).sections
    }

    assert set(WORST_FIRST_ENDINGS) == verdicts | {e.value for e in Ending}


def test_a_failure_says_what_where_what_to_do_and_why_in_this_order() -> None:
    slow = replace(BAD, verdicts=(SLOWER, LEAN))
    found = page(slow, lines=SOURCE, pending={BAD.test: entry(12.0)})

    text = found.text[found.text.index("|+20.0 %|100.0 MiB|") :]
    places = [
        text.index(part)
        for part in (
            "|SLOWER|: 12.00 ms per step, was 10.00 ms (+20.0 %), allowed 10.10 ms|",
            "|train.py:3 in step|",
            "|the CPU reads one element, 500 us|",
            "|fix|add it up on the GPU",
            "|sure|20.0 % slower than the baseline",
            "|accept|gpuperf accept ",
            "|Numbers: every metric",
        )
    ]
    assert places == sorted(places)


def test_a_failure_says_which_lines_run_other_operations_as_the_terminal_does() -> None:
    changes = [line_change({"aten::clone": (0, n)}, line=n) for n in range(1, 15)]
    some, all_ = (
        page(replace(BAD, operations=tuple(changes[:n])), lines=SOURCE).text
        for n in (1, 14)
    )

    assert "|ops|+1 operation, new aten::clone at train.py:1 in step|" in some
    assert (
        "|+12 operations, new aten::clone x 12 at train.py:12 in step; and 2 " in all_
    )
    assert "|ops|" not in page(replace(GOOD, operations=tuple(changes))).text


def test_a_line_that_fails_five_tests_is_explained_once_with_five_names() -> None:
    tests = [f"tests/test_train.py::test_step[{n}]" for n in range(5)]
    names = [test.partition("::")[2] for test in tests]

    text = page(*(replace(BAD, test=test) for test in tests), lines=SOURCE).text

    assert text.count("|3 total += loss|.item()") == 1
    assert text.count(f"5 fail here: {', '.join(names)}|") == 1
    assert text.count(f"see {tests[0]}") == 4


NEW = a_verdict("launches", Outcome.NO_BASELINE, 3, None)


def test_a_verdict_of_another_shape_is_refused() -> None:
    call = {"test": "t.py::t", "verdicts": [{"metric": "syncs", "outcome": "pass"}]}
    results = Results(
        head=HEAD, tests={"t.py::t": Record(Ending.PASSED, None, "", (call,))}
    )

    with pytest.raises(UsageError) as raised:
        judged_calls(results, "results.json")

    assert str(raised.value).startswith(
        "results.json: a verdict of t.py::t has another shape, "
    )


def test_the_places_of_findings_are_known_with_the_lines_around() -> None:
    assert [str(at) for at in locations_of(contents(BAD, GOOD).sections)] == [
        f"train.py:{line} in step" for line in (2, 3, 4, 4, 5, 6)
    ]


def page_of(evil: str) -> str:
    return page_text(hostile_page(evil)).encode("utf-8").decode("utf-8")


@pytest.mark.parametrize("evil", HOSTILE, ids=range(len(HOSTILE)))
def test_no_text_becomes_markup(evil: str) -> None:
    plain, hostile = (Page(page_of(text)) for text in ("harmless", evil))

    assert [name for name, _ in hostile.elements] == [n for n, _ in plain.elements]
    assert [set(a) for _, a in hostile.elements] == [set(a) for _, a in plain.elements]
    assert hostile.raw == plain.raw


def test_only_this_script_and_this_style_are_let_in() -> None:
    text = page_text(full_contents())
    (policy,) = re.findall(
        r'http-equiv="Content-Security-Policy" content="([^"]*)"', text
    )
    hashes = [
        b64encode(sha256(raw.encode()).digest()).decode() for raw in Page(text).raw
    ]

    assert policy.replace("&#x27;", "'") == (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; "
        f"script-src 'sha256-{hashes[1]}'; base-uri 'none'; form-action 'none'"
    )


def test_nothing_points_out_of_the_page() -> None:
    found = Page(page_text(full_contents()))

    assert {name for name, _ in found.elements}.isdisjoint(
        {"a", "base", "iframe", "image", "img", "link", "object"}
    )
    assert not {"href", "src", "style", "srcset", "xlink:href"} & {
        name for _, attrs in found.elements for name in attrs
    }
    assert not re.search(r"https?:|//[a-z]|@import|url\(", "".join(found.raw))


def test_all_that_a_picture_shows_is_written_next_to_it() -> None:
    found = Page(page_text(full_contents()))
    pictures = [attrs for name, attrs in found.elements if name == "svg"]

    assert {picture.get("aria-hidden") for picture in pictures} == {"true"}
