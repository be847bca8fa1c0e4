"""A run as Markdown: the worst first, within a limit, and nothing that is not text."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from builders import a_verdict
from hypothesis import given, strategies as st
from remarkable_runs import SOURCES, record, regressed, results, time

from pytest_gpuperf.model.run import Ending, Record, Results
from pytest_gpuperf.model.verdict import Outcome, Verdict
from pytest_gpuperf.report.ci.job_summary import code, preformatted, run_markdown
from pytest_gpuperf.report.judged_calls import judged_calls


def markdown(found: Results, room: int = 64_000, pending: str = "") -> str:
    return run_markdown(
        found,
        judged_calls(found, "results.json"),
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


PEAK = "peak_allocated_bytes"


def worse(metric: str, now: float, was: float) -> Verdict:
    return a_verdict(metric, Outcome.REGRESSED, now, was)


@pytest.mark.parametrize("now", [2.0000000000000004, 1 / 3, 1234.5678901, 9.99999999])
@pytest.mark.parametrize("metric", ["step_ms", "syncs", PEAK, "busy_pct"])
def test_no_number_has_more_than_five_digits(metric: str, now: float) -> None:
    verdict = a_verdict(metric, Outcome.REGRESSED, now, 2.0)

    numbers = re.findall(r"\d[\d.]*", what("t", verdict, ending=Ending.FAILED))

    assert numbers
    assert max(len(n.replace(".", "").lstrip("0")) for n in numbers) <= 5


def test_a_row_with_many_metrics_counts_those_that_do_not_fit() -> None:
    many = [a_verdict(f"metric_{n}", Outcome.REGRESSED, n + 1, n) for n in range(1, 40)]

    said = what("t", *many, ending=Ending.FAILED)

    assert len(said) < 330
    assert re.search(r" and \d\d more$", said)


def many(number: int) -> Results:
    tests = {
        f"t.py::test_{n}[é{n}]": regressed(f"t.py::test_{n}[é{n}]", 11 + n)
        for n in range(number)
    }
    return results(**tests)


@pytest.mark.parametrize("room", [3_000, 64_000])
def test_what_does_not_fit_is_left_out_from_the_end_and_counted(room: int) -> None:
    text = markdown(many(2_000), room, pending=".gpuperf/pending.json")

    rows = re.findall(r"^\| <code>.*SLOWER", text, re.MULTILINE)
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
