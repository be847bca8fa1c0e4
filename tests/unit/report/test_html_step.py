"""The picture of a step: where the CPU waits, where the GPU has nothing to do, which line it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, pairwise
from xml.etree import ElementTree as ET

import pytest
from builders import a_location
from pages import BAD, ITEM, Page, page

from pytest_gpuperf.model.finding import Finding, FindingKind
from pytest_gpuperf.report.html.step import (
    ENQUEUED,
    MOST_LABELS,
    MOST_TICKED,
    played,
    step_figure,
    step_svg,
    waits_of,
)


def a_wait(*after: int, line: int = 3, **fields: object) -> Finding:
    known = {"waits_after": after, "operations": 100, "source": "loss.item()"}
    place = a_location(line, "src/mylib/trainer.py", "step")
    return replace(ITEM, location=place, blocked_ms=0.0, **{**known, **fields})


def shapes(waits: Sequence[Finding], ink: str) -> list[tuple[int, int, int]]:
    """Left edge, right edge and top of all that is drawn in *ink*."""
    drawn = ET.fromstring(step_svg(waits, width=800))
    paths = [e.get("d") or "" for e in drawn.iter() if e.get("class") == ink]
    boxes = re.findall(r"M(\d+) (\d+)v\d+H(\d+)", "".join(paths))
    return [(int(left), int(right), int(top)) for left, top, right in boxes]


def labels(waits: Sequence[Finding]) -> list[str]:
    return re.findall(r"<tspan>([^<]*)</tspan>", step_svg(waits))


def test_a_step_without_waits_keeps_the_gpu_busy_behind_the_cpu() -> None:
    lanes = played(10, [])

    assert lanes.enqueued == [(0.0, 10 * ENQUEUED)]
    assert lanes.done == [(ENQUEUED, ENQUEUED + 10)]
    assert (lanes.gaps, lanes.end) == ([], ENQUEUED + 10)


def test_at_a_wait_the_cpu_stops_until_the_gpu_is_done_and_then_the_gpu_has_nothing() -> (
    None
):
    lanes = played(100, [40])

    ((stopped, went_on),) = lanes.waits
    ((begin, end),) = lanes.gaps
    assert stopped == 40 * ENQUEUED
    assert went_on == begin == lanes.done[0][1]
    assert end == lanes.done[1][0] > begin
    assert lanes.end > played(100, []).end


@pytest.mark.parametrize("waits", [[0], [100], [0, 100], range(100), [1, 1, 2]])
def test_nothing_of_a_lane_overlaps_and_all_operations_are_done(
    waits: Sequence[int],
) -> None:
    lanes = played(100, waits)

    for lane in (
        sorted([*lanes.done, *lanes.gaps]),
        sorted([*lanes.enqueued, *lanes.waits]),
    ):
        assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(lane))
    assert sum(end - begin for begin, end in lanes.done) == pytest.approx(100)
    assert len(lanes.gaps) == len(set(waits))
    assert max(chain(*lanes.gaps, *lanes.done)) <= lanes.end + 1e-9


def test_the_baseline_is_above_and_has_no_gap_for_what_is_new() -> None:
    waits = [a_wait(30, stored=1), a_wait(60, line=9, stored=0)]

    old, new = shapes(waits, "gap old"), shapes(waits, "gap")

    (above, again), (fresh,) = sorted(old, key=lambda gap: gap[2]), new
    assert above[2] < again[2] == fresh[2]
    assert again[0] < fresh[0]


def test_without_a_baseline_there_is_one_step_and_each_gap_is_marked() -> None:
    waits = [a_wait(30), a_wait(60, line=9)]

    assert "baseline" not in step_svg(waits)
    assert len(shapes(waits, "gap")) == 2
    assert shapes(waits, "gap old") == []


def test_a_line_that_waits_several_times_has_as_many_gaps_and_one_label() -> None:
    waits = [a_wait(10, 20, 30, stored=0)]

    assert len(shapes(waits, "gap")) == 3
    assert labels(waits) == ["trainer.py:3"]


def test_a_label_is_at_its_gap_and_those_further_out_are_below() -> None:
    waits = [a_wait(at, line=at) for at in (5, 30, 55, 95)]
    drawn = ET.fromstring(step_svg(waits, width=800))
    texts = [e for e in drawn.iter() if e.get("class") in {"new", "new end"}]

    sides = {"".join(e.itertext()).split()[0]: e.get("class") for e in texts}
    heights = {"".join(e.itertext()).split()[0]: int(e.get("y") or 0) for e in texts}

    assert sides["trainer.py:5loss.item()"] == "new"
    assert sides["trainer.py:95loss.item()"] == "new end"
    assert heights["trainer.py:30loss.item()"] < heights["trainer.py:5loss.item()"]
    assert heights["trainer.py:55loss.item()"] < heights["trainer.py:95loss.item()"]
    lefts = [left for left, _, _ in shapes(waits, "gap")]
    places = sorted(float((e.get("x") or "").rstrip("%")) for e in texts)
    assert places == [pytest.approx(9 + 0.91 * left / 10, abs=0.1) for left in lefts]


def test_the_worst_lines_are_named_and_the_others_counted() -> None:
    waits = [a_wait(at, line=at) for at in range(5, 95, 5)]

    (figure,) = step_figure(waits)

    assert len(labels(waits_of(waits))) == MOST_LABELS
    assert f"and {len(waits) - MOST_LABELS} more lines" in figure


def test_a_long_line_is_cut_around_what_waits_in_it() -> None:
    source = f"self.history.append({'x' * 60}, loss.item())"
    (text,) = re.findall(
        r'class="more"[^>]*>([^<]*)<', step_svg([a_wait(9, source=source)])
    )

    assert text.startswith("…")
    assert "loss.item()" in text
    assert len(text) <= 56 - len("trainer.py:3")


def test_a_long_name_of_a_file_keeps_its_end() -> None:
    place = a_location(77, "src/a_module_with_a_very_long_name.py", "step")

    (label,) = labels([replace(a_wait(9), location=place)])

    assert label.startswith("…")
    assert label.endswith("name.py:77")


def test_operations_are_divided_while_they_are_few() -> None:
    few, many = (a_wait(5, operations=n) for n in (MOST_TICKED, MOST_TICKED + 1))

    assert 'class="tick"' in step_svg([few])
    assert 'class="tick"' not in step_svg([many])


def test_numbers_that_cannot_be_make_a_picture_all_the_same() -> None:
    odd = [a_wait(-5, 10**9, operations=7), a_wait(10**24, operations=10**24)]

    assert "nan" not in step_svg(odd)
    ET.fromstring(step_svg(odd, width=800))


def test_what_may_wait_or_waits_at_an_unknown_place_is_not_drawn() -> None:
    unsure = replace(a_wait(5), kind=FindingKind.INCONCLUSIVE)

    assert list(step_figure([unsure, a_wait()])) == []


def test_the_page_of_a_failed_test_has_its_step() -> None:
    def of(*findings: Finding) -> Page:
        return page(replace(BAD, findings=findings))

    assert "one step, in order of its 100 operations" in of(a_wait(5)).text
    assert "in order of its 1" not in of(a_wait()).text
