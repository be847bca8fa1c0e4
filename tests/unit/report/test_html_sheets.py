"""The pages of an audit, a forecast and a comparison, and the bars of what changed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from builders import MIB, a_regression, a_test
from golden_audits import FORECAST, FORECAST_BLOCKS, HERE, SAVINGS, WAITING, line_of
from golden_commands import COMPARED, exact
from pages import BAD, GOOD, HOSTILE, Page, page

from pytest_gpuperf.model.ab import Comparison, Turn
from pytest_gpuperf.report.document import terminal
from pytest_gpuperf.report.html.page import ab_page, audit_page, memory_page
from pytest_gpuperf.report.html.pictures import MOST_ROWS, MetricChange, changes_figure
from pytest_gpuperf.report.screen.audit import AuditView, audit_blocks
from pytest_gpuperf.report.screen.commits import comparison_blocks


VIEW = AuditView(here=HERE, line_of=line_of, steps=WAITING.steps)


def pages() -> list[str]:
    return [
        audit_page("train.py", WAITING, VIEW, audit_blocks(WAITING, (), VIEW)),
        memory_page(FORECAST, SAVINGS, VIEW, FORECAST_BLOCKS),
        ab_page(COMPARED, VIEW, comparison_blocks(COMPARED)),
    ]


@pytest.mark.parametrize("number", range(3))
def test_a_page_is_one_file_without_a_script(number: int) -> None:
    found = Page(pages()[number])
    tags = [tag for tag, _ in found.elements]

    assert "script" not in tags
    assert not {"img", "link", "iframe"} & {*tags}
    assert "default-src 'none'" in str(found.elements)
    assert not re.search(r'(src|href|style)="', pages()[number])


@pytest.mark.parametrize("evil", HOSTILE)
def test_no_text_becomes_markup(evil: str) -> None:
    tags = [tag for tag, _ in Page(pages()[0]).elements]
    (first, *others) = WAITING.findings
    hostile = replace(WAITING, findings=(replace(first, reason=evil), *others))
    said = [*audit_blocks(hostile, (), VIEW)]
    page = audit_page("train.py", hostile, VIEW, said)

    assert [tag for tag, _ in Page(page).elements] == tags


def test_the_answer_is_the_headline_whole_and_all_that_was_printed_is_there() -> None:
    (title,) = re.findall("<h1>(.*?)</h1>", pages()[2])

    assert title.startswith(f"{COMPARED.after} after {COMPARED.before}: ")
    assert title.endswith("not compared")
    for word in " ".join(terminal(comparison_blocks(COMPARED))[:2]).split():
        assert word in Page(pages()[2]).text


# Bars of what changed.


def widths(*changes: MetricChange) -> list[tuple[str, str]]:
    (drawn,) = changes_figure(changes)
    return re.findall(r'<rect class="(was|worse|better)"[^>]* width="([\d.]+)%"', drawn)


def test_all_changes_of_a_metric_are_on_one_scale_the_worst_first() -> None:
    small = MetricChange("launches", "t.py::small", 10, 20)
    large = MetricChange("launches", "t.py::large", 90, 100)
    better = MetricChange("launches", "t.py::better", 50, 40)

    assert widths(better, large, small) == [
        *(("was", "10"), ("worse", "20")),
        *(("was", "90"), ("worse", "100")),
        *(("was", "50"), ("better", "40")),
    ]


def test_less_is_worse_where_more_is_better() -> None:
    assert widths(MetricChange("busy_pct", "t.py::t", 80, 40))[1][0] == "worse"


def test_what_was_nothing_is_worst_and_what_is_the_same_is_left_out() -> None:
    new = MetricChange("syncs", "t.py::new", 0, 1)
    more = MetricChange("peak_allocated_bytes", "t.py::more", MIB, 9 * MIB)
    same = MetricChange("launches", "t.py::same", 7, 7)

    (drawn,) = changes_figure([same, more, new])

    assert re.findall(r"<h2>(.*?)</h2>", drawn) == ["syncs", "peak memory"]
    assert not list(changes_figure([same]))


def test_many_changes_of_a_metric_are_counted() -> None:
    (drawn,) = changes_figure(
        MetricChange("syncs", f"t.py::t[{n}]", 0, n) for n in range(1, MOST_ROWS + 3)
    )

    assert "and 2 more" in drawn


def test_the_page_of_a_run_has_the_bars_of_several_tests_but_not_of_one() -> None:
    waits = a_test(a_regression("syncs", 2, 1, limit=1), test="t.py::waits")

    assert "before and after" in page(BAD, waits, GOOD).text
    assert "before and after" not in page(BAD, GOOD).text


def test_the_file_of_a_page_has_no_folder_of_this_machine() -> None:
    assert not any(str(Path(__file__).parent) in text for text in pages())


def test_a_comparison_shows_the_step_of_what_has_more_syncs() -> None:
    more = Comparison(test="t.py::t", exact=(exact("syncs", 0, 1, Turn.WORSE),))
    waits = replace(WAITING.findings[0], waits_after=(36,), operations=100, stored=0)
    found = replace(COMPARED, calls=(replace(more, findings=(waits,)),))

    text = Page(ab_page(found, VIEW, comparison_blocks(found))).text

    assert f"|{more.test}, in order of its 100 operations|" in text
    assert "|baseline|" in text
