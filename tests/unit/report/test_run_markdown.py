"""A run as Markdown: the worst first, within a limit, and nothing that is not text."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from builders import MIB, SIMULATED, a_verdict
from hypothesis import given, strategies as st
from remarkable_runs import SOURCES, SYNC, record, regressed, results, time

from pytest_gpuperf.model.environment import DeviceKind, Hardware
from pytest_gpuperf.model.run import Ending, Record, Results
from pytest_gpuperf.model.verdict import Outcome, Verdict
from pytest_gpuperf.report.ci.job_summary import code, preformatted, run_markdown, title
from pytest_gpuperf.report.ci.worst_findings import Sources, remarks, sentence


def markdown(found: Results, room: int = 64_000, pending: str = "") -> str:
    return run_markdown(
        found,
        remarks(found),
        SOURCES,
        baseline_file="baselines/cuda-nvidia-h200.json",
        pending=pending,
        room=room,
    )


def what(test: str, *verdicts: Verdict, **more: object) -> str:
    """The cell that says what came of a test."""
    text = markdown(results(**{test: record(test, *verdicts, **more)}))
    (line,) = (x for x in text.splitlines() if x.startswith("| <code>"))
    return line.split(" | ")[1].removesuffix(" |")


def page(file: str, line: int) -> str:
    address = f"https://ci/blob/4f2a/{file}#L{line}"
    return f'<a href="{address}"><code>{file}:{line}</code></a>'


PEAK = "peak_allocated_bytes"


def worse(metric: str, now: float, was: float) -> Verdict:
    return a_verdict(metric, Outcome.REGRESSED, now, was)


def over(metric: str, now: float, limit: float) -> Verdict:
    return a_verdict(metric, Outcome.OVER_BUDGET, now, None, limit=limit)


ROWS = {
    "mixed": (
        [
            time(Outcome.REGRESSED, 12.03),
            worse("syncs", 1, 0),
            over(PEAK, 95 * MIB, 90.0 * MIB),
            a_verdict(PEAK, Outcome.PASS, 95 * MIB, 80 * MIB),
        ],
        (
            "step time 10.00 → 12.03 ms (+20.3 %); new sync; peak memory 80.00 → "
            "95.00 MiB (+18.8 %, limit 90.00 MiB)"
        ),
    ),
    "two limits": (
        [worse("step_ms", 6.2, 4.2), over("step_ms", 6.2, 5.0)],
        "step time 4.200 → 6.200 ms (+47.6 %, limit 5.000 ms)",
    ),
    "new": ([worse("syncs", 3, 0)], "3 new syncs"),
    "copies": ([worse("pageable_copies", 2, 0)], "2 new unpinned copies"),
    "limit": ([over("syncs", 3, 0)], "syncs 3 per step (limit 0)"),
    "share": (
        [over("busy_pct", 71.0, 85.0)],
        "busy_pct 71.00 % (limit at least 85.00 %)",
    ),
    "growth": (
        [worse("growth_bytes", 4096, 0)],
        "memory growth 0 B → 4.000 KiB per step (+4.000 KiB)",
    ),
    "bytes": (
        [worse(PEAK, MIB + 512, MIB)],
        "peak memory 1.0000 → 1.0005 MiB (+512 B)",
    ),
    "dust": (
        [worse("launches", 4 / 3, 1.1 + 0.1)],
        "kernel launches 1.2 → 1.3333 per step (+0.13333)",
    ),
}


@pytest.mark.parametrize(("verdicts", "said"), ROWS.values(), ids=ROWS)
def test_a_row_says_of_each_failed_metric_how_it_moved(
    verdicts: list[Verdict], said: str
) -> None:
    assert what("t", *verdicts, ending=Ending.FAILED) == said


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (time(Outcome.PASS, 2.0000000000000004, 2.0), "passed: step time 2.000 ms"),
        (time(Outcome.IMPROVED, 8.0), "improved: step time 10.00 → 8.000 ms (-20.0 %)"),
        (
            a_verdict("syncs", Outcome.PASS, 0.1 + 0.2, 0.1 + 0.2),
            "passed: syncs 0.3 per step",
        ),
        (time(Outcome.NOT_CHECKED, None, None), "not checked: step time: so it was"),
        (
            time(Outcome.INCONCLUSIVE, 12.0, None, limit=10.0),
            "inconclusive: step time 12.00 ms (limit 10.00 ms)",
        ),
        (
            time(Outcome.INCONCLUSIVE, None, None),
            "inconclusive: not measured: step time: so it was",
        ),
    ],
)
def test_a_row_of_the_others_begins_with_what_came_of_it(
    verdict: Verdict, said: str
) -> None:
    assert what("t", verdict) == said


@pytest.mark.parametrize("now", [2.0000000000000004, 1 / 3, 1234.5678901, 9.99999999])
@pytest.mark.parametrize("metric", ["step_ms", "syncs", PEAK, "busy_pct"])
def test_no_number_has_more_than_five_digits(metric: str, now: float) -> None:
    verdict = a_verdict(metric, Outcome.REGRESSED, now, 2.0)

    numbers = re.findall(r"\d[\d.]*", what("t", verdict, ending=Ending.FAILED))

    assert numbers
    assert max(len(n.replace(".", "").lstrip("0")) for n in numbers) <= 5


def test_two_calls_of_a_test_share_its_row() -> None:
    calls = [
        record(name, time(Outcome.REGRESSED, now), ending=Ending.FAILED).verdicts[0]
        for name, now in (("t.py::t", 11.0), ("t.py::t#eval|", 12.0))
    ]
    both = Record(Ending.FAILED, Outcome.REGRESSED, "", tuple(calls), "t.py:3")

    text = markdown(results(**{"t.py::t": both}))

    assert "### gpuperf: 1 test got worse (NVIDIA H200)" in text
    assert (
        "| <code>t</code> | <code>eval&#124;</code>: step time 10.00 → 12.00 ms "
        "(+20.0 %); step time 10.00 → 11.00 ms (+10.0 %) | "
    ) in text


def test_a_row_with_many_metrics_counts_those_that_do_not_fit() -> None:
    many = [a_verdict(f"metric_{n}", Outcome.REGRESSED, n + 1, n) for n in range(1, 40)]

    said = what("t", *many, ending=Ending.FAILED)

    assert len(said) < 330
    assert re.search(r"; and \d\d more$", said)


def test_a_test_is_named_with_its_file_where_two_have_its_name() -> None:
    text = markdown(results(**{f"{f}.py::t": regressed(f"{f}.py::t") for f in "ab"}))

    assert "| <code>a.py::t</code> |" in text
    assert "| <code>b.py::t</code> |" in text


def test_the_line_that_waits_is_linked_although_the_time_is_worse() -> None:
    waits = a_verdict("syncs", Outcome.REGRESSED, 1, 0)
    found = record(
        "t",
        time(Outcome.REGRESSED, 30.0),
        waits,
        ending=Ending.FAILED,
        findings=(SYNC,),
    )

    assert page("train.py", 3) in markdown(results(t=found))


def test_a_line_without_a_page_is_named() -> None:
    found = results(t=regressed("t"))
    text = run_markdown(
        found,
        remarks(found),
        Sources(is_ours=lambda _: False),
        baseline_file="",
        pending="",
        room=9_000,
    )

    assert " | <code>test_it.py:3</code> |" in text
    assert "<a " not in text


PASSES = record("a", time(Outcome.PASS))


def on(hardware: Hardware, found: Results) -> Results:
    return replace(found, head=replace(found.head, hardware=hardware))


INCONCLUSIVE = record("b", time(Outcome.INCONCLUSIVE))
UNKNOWN = record("a", time(Outcome.NO_BASELINE, 1, None), ending=Ending.FAILED)
BROKEN = record("a", time(Outcome.PASS), ending=Ending.FAILED)
NAMELESS = Hardware(kind=DeviceKind.SCRIPTED, name="")


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (results(0), "no test was measured"),
        (results(0, a=PASSES), "1 test passed (NVIDIA H200)"),
        (results(2, a=PASSES), "1 test passed (NVIDIA H200), pytest exited with 2"),
        (results(1, a=PASSES), "1 test passed (NVIDIA H200), pytest exited with 1"),
        (results(1, a=regressed("a")), "1 test got worse (NVIDIA H200)"),
        (
            results(3, a=regressed("a"), b=regressed("b")),
            "2 tests got worse (NVIDIA H200), pytest exited with 3",
        ),
        (
            results(0, a=PASSES, b=INCONCLUSIVE),
            "1 test inconclusive, 1 passed (NVIDIA H200)",
        ),
        (results(a=UNKNOWN, b=PASSES), "1 test without baseline (NVIDIA H200)"),
        (results(a=BROKEN, b=PASSES), "1 test failed (NVIDIA H200)"),
        (on(SIMULATED, results(0, a=PASSES)), "1 test passed (simulated GPU)"),
        (on(NAMELESS, results(0, a=PASSES)), "1 test passed (scripted)"),
        (results(4), "no result, pytest exited with 4"),
    ],
)
def test_the_title_never_calls_green_what_was_not_measured(
    found: Results, said: str
) -> None:
    assert title(found) == f"gpuperf: {said}"


def test_a_test_that_failed_although_its_metrics_pass_is_not_called_passed() -> None:
    failed = record("a", time(Outcome.PASS), ending=Ending.FAILED)
    drifted = failed._replace(headline="DRIFTED step time: 2.068 ms")

    assert "| <code>a</code> | failed | " in markdown(results(a=failed))
    assert "| <code>DRIFTED step time: 2.068 ms</code> | " in markdown(
        results(a=drifted)
    )


def test_what_a_budget_could_not_decide_stands_against_the_budget() -> None:
    doubted = time(Outcome.INCONCLUSIVE, 12.0, None, limit=10.0)

    assert (
        sentence(remarks(results(a=record("a", doubted)))[0])
        == "INCONCLUSIVE step time: 12.00 ms per step, limit 10.00 ms"
    )


def many(number: int) -> Results:
    tests = {
        f"t.py::test_{n}[é{n}]": regressed(f"t.py::test_{n}[é{n}]", 11 + n)
        for n in range(number)
    }
    return results(**tests)


@pytest.mark.parametrize("room", [3_000, 64_000])
def test_what_does_not_fit_is_left_out_from_the_end_and_counted(room: int) -> None:
    text = markdown(many(2_000), room, pending=".gpuperf/pending.json")

    rows = re.findall(r"^\| <code>.*step time 10", text, re.MULTILINE)
    assert len(text.encode()) <= room
    assert f"\n{2_000 - len(rows)} more left out, none is worse: see" in text
    assert "test_1999[" in text.splitlines()[4].replace("&#91;", "[")
    assert len(rows) >= room / 400


def test_folded_rows_that_do_not_fit_are_counted_and_the_block_is_closed() -> None:
    tests = {
        f"t.py::test_{n}": record(f"t.py::test_{n}", time(Outcome.PASS))
        for n in range(999)
    }

    text = markdown(results(0, **tests), 3_000)

    rows = text.count("| <code>")
    assert 0 < rows < 60
    assert len(text.encode()) <= 3_000
    assert f"\n{999 - rows} more left out, none is worse: see" in text
    assert text.endswith("\n</details>\n")


def test_names_that_are_longer_than_the_room_leave_no_more_than_fits() -> None:
    long = results(notes=("x" * 5_000,) * 5, **{"y" * 5_000: regressed("y" * 5_000)})

    assert len(markdown(long, 3_000).encode()) <= 3_000


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("t.py::test_a[x]", "t.py::test_a&#91;x]"),
        ("a|b", "a&#124;b"),
        (
            "<script>alert('x')</script>",
            "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;",
        ),
        ('"&amp;', "&quot;&amp;amp;"),
        ("a\nb\r\tc", "a&#92;nb&#92;r&#92;tc"),
        ("`code`*bold*~", "&#96;code&#96;&#42;bold&#42;&#126;"),
        ("__init__", "&#95;&#95;init&#95;&#95;"),
        ("snake_case_name", "snake_case_name"),
        ("https://x.org www.x.org", "https&#58;//x.org www&#46;x.org"),
        ("@octocat", "&#64;octocat"),
        ("🚀 é 日本", "🚀 é 日本"),
        ("\x1b[31m\u202e\x00", "&#92;x1b&#91;31m&#92;u202e&#92;x00"),
        ("\udc80", "&#92;udc80"),
    ],
)
def test_a_name_is_shown_and_never_interpreted(name: str, shown: str) -> None:
    assert code(name) == f"<code>{shown}</code>"


def test_a_name_of_5000_characters_keeps_both_ends() -> None:
    shown = code(f"begin{'x' * 5_000}end")

    assert shown.startswith("<code>beginxxx")
    assert shown.endswith("xxxend</code>")
    assert len(shown) == len("<code></code>") + 303


class Tags(HTMLParser):
    """The tags of a text, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text(st.characters(codec="utf-8"), max_size=80))
def test_no_name_makes_a_tag_a_cell_or_a_line(name: str) -> None:
    shown = code(name)

    assert Tags(shown).tags == ["code"]
    assert not {"|", "\n", "`"} & set(shown)
    if name.isprintable():
        assert Tags(shown).text == name


@given(st.text(st.characters(codec="utf-8"), max_size=80))
def test_no_message_leaves_its_block(message: str) -> None:
    assert Tags(preformatted([message, "</pre><img>"])).tags == ["pre"]


def test_a_whole_run_of_hostile_names_has_only_our_tags() -> None:
    name = "</pre></code><img src=x onerror=alert(1)>|\n@all [a](b) `"
    raised = Record(Ending.FAILED, headline=f"ValueError: {name}")

    text = markdown(
        results(**{name: raised, "b" + name: regressed("b" + name)}), pending=name
    )

    assert set(Tags(text).tags) == {"a", "code", "details", "summary", "pre"}
    assert text.count("\n| ") == 4
