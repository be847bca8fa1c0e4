"""A run as Markdown: the worst first, within a limit, and nothing that is not text."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from remarkable_runs import MIXED
from remarkable_runs import record
from remarkable_runs import regressed
from remarkable_runs import results
from remarkable_runs import time

from pytest_gpuperf.model.results import Record
from pytest_gpuperf.model.results import Results
from pytest_gpuperf.model.run import Ending
from pytest_gpuperf.model.verdict import Outcome
from pytest_gpuperf.report.ci.job_summary import code
from pytest_gpuperf.report.ci.job_summary import preformatted
from pytest_gpuperf.report.ci.job_summary import run_markdown
from pytest_gpuperf.report.ci.job_summary import title
from pytest_gpuperf.report.ci.worst_findings import remarks
from pytest_gpuperf.report.ci.worst_findings import sentence


def markdown(found: Results, room: int = 64_000, pending: str = "") -> str:
    return run_markdown(
        found,
        remarks(found),
        baseline_file="baselines/cuda-nvidia-h200.json",
        pending=pending,
        room=room,
    )


def test_a_run_is_a_title_its_counts_and_a_table_with_the_worst_first() -> None:
    lines = markdown(MIXED).splitlines()

    assert lines[:14] == [
        "### gpuperf: 4 of 8 tests failed on cuda-nvidia-h200",
        "",
        (
            "1 passed, 2 worse, 1 failed, 1 over limit, 1 undecided, 1 no baseline, "
            "1 skipped"
        ),
        "",
        "| outcome | metric | against | now | change | test |",
        "| :-- | :-- | --: | --: | --: | :-- |",
        "| **MORE WAITS** | <code>syncs</code> | 1 | 2 | +1 | <code>t.py::waits</code> |",
        (
            "| **SLOWER** | <code>step_ms</code> | 10.00 ms | 12.00 ms | +20.0 % | "
            "<code>t.py::slow</code> |"
        ),
        (
            "| **OVER LIMIT ms** | <code>step_ms</code> | 5.000 ms | 12.00 ms | +140.0 % | "
            "<code>t.py::over</code> |"
        ),
        "| **FAILED** |  | - | - | - | <code>t.py::raises</code> |",
        (
            "| undecided | <code>step_ms</code> | 10.00 ms | 11.00 ms | +10.0 % | "
            "<code>t.py::unclear</code> |"
        ),
        (
            "| no baseline | <code>step_ms</code> | - | 3.000 ms | - | "
            "<code>t.py::new</code> |"
        ),
        (
            "| passed | <code>step_ms</code> | 10.00 ms | 10.00 ms | 0.0 % | "
            "<code>t.py::passes</code> |"
        ),
        "| skipped |  | - | - | - | <code>t.py::skipped</code> |",
    ]


def test_failures_are_explained_below_with_the_line_that_waits() -> None:
    text = markdown(MIXED)

    assert text.count("<details>") == 4
    assert "<details><summary><code>t.py::raises</code></summary>" in text
    assert "<pre>ValueError: 3</pre>" in text
    assert "<pre>MORE WAITS: 2 per step, was 1 (+1)\n" in text
    assert "  --&gt; train.py:3 in step: aten::item" in text


def test_the_command_that_accepts_names_what_a_baseline_would_settle() -> None:
    text = markdown(MIXED, pending=".gpuperf/pending-cuda-nvidia-h200.json")

    assert (
        "<pre>gpuperf accept --accept-drift --only t.py::waits --only t.py::slow "
        ".gpuperf/pending-cuda-nvidia-h200.json</pre>"
    ) in text
    assert "gpuperf accept" not in markdown(MIXED)


def test_a_change_of_the_whole_run_stands_above_the_table() -> None:
    noted = results(notes=("gpuperf: all <b>tests</b> moved",))

    assert markdown(noted).splitlines()[2] == (
        "<code>gpuperf: all &lt;b&gt;tests&lt;/b&gt; moved</code>"
    )


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (results(0), "gpuperf: no test was measured"),
        (
            results(0, a=record("a", time(Outcome.PASS))),
            "gpuperf: none of 1 test failed on cuda-nvidia-h200",
        ),
        (
            results(2, a=record("a", time(Outcome.PASS))),
            (
                "gpuperf: none of 1 test failed on cuda-nvidia-h200, pytest exited with 2"
            ),
        ),
        (
            results(4),
            "gpuperf: no result, pytest exited with 4",
        ),
    ],
)
def test_the_title_never_calls_green_what_was_not_measured(
    found: Results, said: str
) -> None:
    assert title(found) == said


def test_a_test_that_failed_although_its_metrics_pass_is_not_called_passed() -> None:
    drifted = record("a", time(Outcome.PASS), ending=Ending.FAILED)

    assert "| **FAILED** | <code>step_ms</code> |" in markdown(results(a=drifted))


def test_what_a_budget_could_not_decide_stands_against_the_budget() -> None:
    doubted = time(Outcome.INCONCLUSIVE, 12.0, None, limit=10.0)
    found = results(a=record("a", doubted))

    line = "| undecided | <code>step_ms</code> | 10.00 ms | 12.00 ms | +20.0 % |"
    assert line in markdown(found)
    assert (
        sentence(remarks(found)[0])
        == "UNDECIDED step time: 12.00 ms per step, limit 10.00 ms"
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

    rows = re.findall(r"^\| \*\*SLOWER", text, re.MULTILINE)
    assert len(text.encode()) <= room
    assert f"\n{2_000 - len(rows)} more left out, none of them worse: see" in text
    assert "test_1999[" in text.splitlines()[6].replace("&#91;", "[")
    assert len(rows) >= room / 400


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

    assert set(Tags(text).tags) == {"code", "details", "summary", "pre"}
    assert text.count("\n| ") == 4
