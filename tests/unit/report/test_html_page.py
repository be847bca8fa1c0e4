"""The page of a run: what it says, in which order, and what can never get into it."""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
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
    MIB,
    PEAK,
    SLOWER,
    UNKNOWN,
    WAITS,
    contents,
    entry,
    hostile_page,
    record,
    told,
)

from pytest_gpuperf.errors import UsageError
from pytest_gpuperf.model.environment import DeviceKind, Hardware
from pytest_gpuperf.model.finding import Location
from pytest_gpuperf.model.results import Record, Results
from pytest_gpuperf.model.run import Ending
from pytest_gpuperf.model.verdict import Outcome, TestVerdict, Verdict
from pytest_gpuperf.report.html.contents import (
    WORST_FIRST_ENDINGS,
    locations_of,
    sections_of,
)
from pytest_gpuperf.report.html.page import page_text


INVISIBLE = {"script", "style"}

SOURCE = {
    ("train.py", 2): "    loss = model(batch)",
    ("train.py", 3): "    total += loss.item()",
    ("train.py", 4): "return total",
}


class Page(HTMLParser):
    """What a reader of HTML makes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.raw: list[str] = []
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag

    def handle_data(self, data: str) -> None:
        if self._inside in INVISIBLE:
            self.raw.append(data)
        elif data.strip():
            self.texts.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    @property
    def text(self) -> str:
        return " ".join("|".join(["", *self.texts, ""]).split())

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.elements}

    def attributes(self, name: str) -> list[str | None]:
        return [attrs[name] for _, attrs in self.elements if name in attrs]


def page(*verdicts: TestVerdict, **more: object) -> Page:
    return Page(page_text(contents(*verdicts, **more)))


def outcome(which: Outcome, name: str, now: float = 12.0) -> TestVerdict:
    return a_test(replace(SLOWER, outcome=which, now=now), test=name)


@pytest.mark.parametrize(
    ("kind", "name", "shown"),
    [
        (DeviceKind.SIMULATED, "CUDA", "simulated GPU"),
        (DeviceKind.CPU, "AMD EPYC 2 cores", "CPU AMD EPYC 2 cores"),
        (DeviceKind.SCRIPTED, "", "scripted"),
    ],
)
def test_no_other_device_looks_like_a_gpu(
    kind: DeviceKind, name: str, shown: str
) -> None:
    found = page(GOOD, head=replace(HEAD, hardware=Hardware(kind=kind, name=name)))

    assert found.texts[0] == f"gpuperf: 1 test, none failed on {shown}"


def test_the_worst_verdict_of_a_test_comes_first() -> None:
    mixed = replace(BAD, verdicts=(LEAN, UNKNOWN, WAITS, SLOWER))
    badges = re.findall(
        r'<td><b class="badge [^>]*>([^<]*)<', page_text(contents(mixed))
    )

    assert badges == ["slower", "over limit syncs", "passed"]


def test_failures_come_first_then_the_worst_outcomes_then_the_largest_excess() -> None:
    verdicts = [
        outcome(Outcome.NOT_CHECKED, "not checked"),
        outcome(Outcome.PASS, "pass"),
        outcome(Outcome.IMPROVED, "improved"),
        outcome(Outcome.INCONCLUSIVE, "inconclusive"),
        outcome(Outcome.REGRESSED, "a little slower", now=11.0),
        outcome(Outcome.REGRESSED, "much slower", now=15.0),
    ]
    died = Record(Ending.DIED, headline="killed by signal 9")
    results = contents(*verdicts, others={"died": died}).results

    assert [section.key for section in sections_of(results, "f")] == [
        "died",
        "much slower",
        "a little slower",
        "inconclusive",
        "improved",
        "pass",
        "not checked",
    ]


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


def test_a_test_that_a_setting_failed_is_among_the_failures() -> None:
    inconclusive = outcome(Outcome.INCONCLUSIVE, "t.py::strict")
    failed = record(inconclusive)._replace(
        ending=Ending.FAILED, headline="inconclusive"
    )

    found = contents(BAD, others={"t.py::strict": failed})

    assert [section.failed for section in found.sections] == [True, True]
    assert "|failed|inconclusive|t.py::strict|" in Page(page_text(found)).text


def test_a_failure_says_what_where_why_and_what_to_do_in_this_order() -> None:
    slow = replace(BAD, verdicts=(SLOWER, LEAN))
    found = page(slow, lines=SOURCE, pending={BAD.test: entry(12.0)})

    text = found.text[found.text.index("|+20.0 %|100.0 MiB|") :]
    places = [
        text.index(part)
        for part in (
            "|SLOWER|: 12.00 ms per step, was 10.00 ms (+20.0 %), allowed 10.10 ms|",
            "|train.py:3 in step|",
            "|the CPU reads one element, 500 us|",
            "|Why|20.0 % slower than the baseline",
            "|Fix|add it up on the GPU",
            "|Accept|if it is meant, store these numbers:|gpuperf accept ",
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

    assert "|Ops|+1 operation, new aten::clone at train.py:1 in step|Why|" in some
    assert (
        "|+12 operations, new aten::clone x 12 at train.py:12 in step; and 2 " in all_
    )
    assert "|Ops|" not in page(replace(GOOD, operations=tuple(changes))).text


def test_of_a_file_that_changed_since_only_the_line_that_ran_is_shown() -> None:
    ran = replace(ITEM, source="total += loss.item()")
    found = page(replace(BAD, findings=(ran,)), lines={**SOURCE, ("train.py", 3): "x"})

    assert "|3 total += loss|.item()|" in found.text
    assert "loss = model(batch)" not in found.text


def test_what_failed_leads_the_row_and_the_pictures() -> None:
    grown = replace(LEAN, outcome=Outcome.REGRESSED, now=131 * MIB, because="grown")
    heavy = replace(GOOD, verdicts=(GOOD.verdicts[0], grown), findings=(PEAK,))
    found = page(heavy, pending={GOOD.test: entry(10.0, 10.1)})

    assert "|MORE MEMORY: 131.0 MiB, was 100.0 MiB (+31.0 %), allowed" in found.text
    numbers = found.text.index("|Numbers: every metric")
    assert found.text.index("|step time of each run") > numbers


def test_a_metric_with_two_limits_has_one_row() -> None:
    budget = replace(
        SLOWER, outcome=Outcome.OVER_BUDGET, baseline=None, limit=11.0, because="over"
    )
    text = page(replace(BAD, verdicts=(SLOWER, budget))).text

    assert (
        "|step time|step_ms|12.00 ms|10.00 ms|+20.0 %|10.10 ms|11.00 ms|slower|" in text
    )
    assert text.count("|step_ms|12.00 ms|") == 1
    assert (
        "|SLOWER|: 12.00 ms per step, was 10.00 ms (+20.0 %), limit 11.00 ms|" in text
    )


def test_of_what_passed_the_rule_says_it_all() -> None:
    passed = replace(SLOWER, outcome=Outcome.PASS, because="about the same")

    assert "about the same" not in page(replace(GOOD, verdicts=(passed,))).text
    assert "|as much as the baseline|" in page(GOOD).text


def test_a_finding_of_a_test_that_passed_has_its_line_of_source() -> None:
    passed = replace(GOOD, findings=(ITEM,))
    found = page(passed, lines={("train.py", 3): "loss.item()  # < 1"})

    assert (
        "|Where the CPU waits|train.py:3 in step|: aten::item (cudaStreamSynchronize), "
        "1 per step, 500 us|loss.item() # < 1|the CPU reads one element|"
    ) in found.text


def test_a_line_that_is_only_the_function_s_shows_no_source() -> None:
    guessed = Location(file="train.py", line=3, function="step", exact=False)
    vague = replace(BAD, findings=(replace(ITEM, location=guessed),))

    assert "loss.item" not in page(vague, lines={("train.py", 3): "loss.item()"}).text


def test_many_findings_are_cut_and_counted() -> None:
    many = tuple(replace(ITEM, per_step=n) for n in range(1, 16))

    assert page(replace(GOOD, findings=many)).text.count("train.py:3") == 12
    assert "|and 3 more|" in page(replace(GOOD, findings=many)).text


def test_an_allowed_sync_says_why() -> None:
    allowed = replace(ITEM, metrics=(), allowed="the loss is logged")

    assert (
        "|allowed: the loss is logged|" in page(replace(BAD, findings=(allowed,))).text
    )


def test_what_changed_since_the_baseline_stands_in_a_table() -> None:
    found = page(BAD, stored={BAD.test: entry(10.0)})

    assert "|software|baseline|now|cudnn|absent|9.1|torch|2.6.0|2.13.0|" in found.text


def test_where_nothing_changed_it_says_so() -> None:
    assert "|Nothing recorded has changed since the baseline.|" in page(GOOD).text


def test_remarks_and_the_snapshot_are_named() -> None:
    found = page(replace(BAD, snapshot=".gpuperf/memory-t.pickle"))

    assert "|the clock of the SMs was 1980 MHz|" in found.text
    assert "|What the allocator did: |.gpuperf/memory-t.pickle|" in found.text


def test_what_is_pending_can_be_accepted() -> None:
    found = page(BAD, GOOD, pending={t.test: entry(12.0) for t in (BAD, GOOD)})

    assert (
        "|Accept|if it is meant, store these numbers:|gpuperf accept --accept-drift --only "
        "tests/test_train.py::test_step .gpuperf/pending-cuda-nvidia-h200.json|"
    ) in found.text
    assert found.text.count("gpuperf accept") == 1


def test_what_was_not_recorded_cannot_be_accepted() -> None:
    assert "gpuperf accept" not in page(BAD).text


NEW = a_verdict("launches", Outcome.NO_BASELINE, 3, None)


@pytest.mark.parametrize("lacking", [(), (NEW,)], ids=["alone", "beside another"])
def test_a_broken_budget_is_not_accepted(lacking: tuple[Verdict, ...]) -> None:
    over = replace(BAD, verdicts=(WAITS, LEAN, *lacking))
    found = page(over, pending={BAD.test: entry(12.0)})

    assert "gpuperf accept" not in found.text
    assert (
        "|Limit|it is set in the test; storing a new baseline does not change it|"
    ) in found.text


def test_a_call_names_its_test() -> None:
    call = replace(GOOD, test="t.py::t#eval")
    found = page(others={"t.py::t": record(call)})

    assert "|a call in |t.py::t|" in found.text


def test_a_call_that_passed_is_not_told_of_the_failure_of_another() -> None:
    calls = [replace(GOOD, test="t.py::t#warm"), replace(BAD, test="t.py::t#cold")]
    found = page(others={"t.py::t": record(*calls)})

    assert "failed: " not in found.text


def test_what_a_setting_failed_is_told_by_its_headline() -> None:
    inconclusive = outcome(Outcome.INCONCLUSIVE, "t.py::t")
    failed = record(inconclusive)._replace(
        ending=Ending.FAILED, headline="inconclusive"
    )

    assert "|failed: inconclusive|" in page(others={"t.py::t": failed}).text


def test_a_test_without_a_verdict_says_how_it_ended() -> None:
    failed = Record(Ending.FAILED, headline="\x1b[31mAssertionError\x1b[0m: loss")
    skipped = Record(Ending.SKIPPED)
    found = page(others={"t.py::a": failed, "t.py::b": skipped})

    assert "|failed: ␛[31mAssertionError␛[0m: loss|" in found.text
    assert "|The test skipped; nothing was judged.|" in found.text


def test_a_run_without_tests_is_a_page_all_the_same() -> None:
    found = page(head=replace(HEAD, hardware=None, commit=None, exit_status=5))

    assert found.text == (
        "|gpuperf: no test was measured|gpuperf: no test was measured|"
        "There is nothing to show.|pytest-gpuperf 0.1.0|"
    )


def test_a_run_that_did_not_finish_says_so_and_names_what_is_missing() -> None:
    head = replace(HEAD, exit_status=None, selected=(BAD.test, "t.py::lost"))
    found = page(BAD, head=head)

    assert "|This run did not finish: it died, or it is still going on.|" in found.text
    assert "|1 selected test without a result|t.py::lost|" in found.text


def test_a_finished_run_that_lost_nothing_has_no_objection() -> None:
    found = page(BAD, head=replace(HEAD, selected=(BAD.test,)))

    assert "did not finish" not in found.text
    assert "without a result" not in found.text


def test_notes_of_the_run_stand_above_its_tests() -> None:
    note = "gpuperf: all 40 tests are 6 % slower: the machine"

    assert f"|{note}|1 passed|" in page(GOOD, head=replace(HEAD, notes=(note,))).text


def test_a_verdict_of_another_shape_is_refused() -> None:
    call = {"test": "t.py::t", "verdicts": [{"metric": "syncs", "outcome": "pass"}]}
    results = Results(
        head=HEAD, tests={"t.py::t": Record(Ending.PASSED, None, "", (call,))}
    )

    with pytest.raises(UsageError) as raised:
        sections_of(results, "results.json")

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
    text = page_text(told())
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
    found = Page(page_text(told()))

    assert found.names.isdisjoint(
        {"a", "base", "iframe", "image", "img", "link", "object"}
    )
    assert not {"href", "src", "style", "srcset", "xlink:href"} & {
        name for _, attrs in found.elements for name in attrs
    }
    assert not re.search(r"https?:|//[a-z]|@import|url\(", "".join(found.raw))


def test_a_picture_has_words_unless_all_it_shows_is_told_beside_it() -> None:
    found = Page(page_text(told()))
    pictures = [attrs for name, attrs in found.elements if name == "svg"]
    labels = [picture.get("aria-label") for picture in pictures]

    assert list(filter(None, labels)) == [
        "baseline from 9.900 ms to 10.04 ms, this run from 11.90 ms to 12.10 ms"
    ]
    assert [picture.get("aria-hidden") for picture in pictures] == [
        None if label else "true" for label in labels
    ]


def test_a_metric_of_another_version_has_no_explanation() -> None:
    found = page(replace(BAD, verdicts=(replace(WAITS, metric="novel"),)))

    assert found.text.endswith("released, not in time|pytest-gpuperf 0.1.0|")
