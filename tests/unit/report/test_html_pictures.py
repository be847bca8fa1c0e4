"""Pictures: runs next to the stored runs, memory by purpose."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pages import EVIDENCE, ITEM, MIB, PEAK, SLOWER, entry

from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.finding import MemoryCourse
from pytest_gpuperf.model.metrics import SPEEDUP, STEP_MS
from pytest_gpuperf.model.verdict import Outcome
from pytest_gpuperf.report.html.memory import memory_figures
from pytest_gpuperf.report.html.pictures import (
    Ink,
    Scale,
    line_in_words,
    lines_of,
    ticks_of,
)
from pytest_gpuperf.report.html.samples import (
    Runs,
    Strip,
    interval_of,
    samples_figure,
    strips_of,
)


CUDA = DeviceKind.CUDA


def strip(at: float) -> Strip:
    return at, at, at


def runs(*fresh: Strip, **more: float) -> Runs:
    return Runs(
        metric=STEP_MS,
        stored=[strip(10.0), strip(11.0)],
        fresh=fresh,
        lines={Ink(name): value for name, value in more.items()},
    )


def attribute(name: str, text: str) -> str:
    (found,) = re.findall(f' {name}="([^"]*)"', text)
    return str(found)


class TestScale:
    def test_the_edges_leave_a_margin(self) -> None:
        assert Scale.around([10.0, 20.0]) == Scale(9.5, 20.5)

    def test_a_line_that_is_near_is_shown_and_one_far_off_is_not(self) -> None:
        scale = Scale.around([10.0, 11.0], [12.0, 100.0])

        assert scale.shows(12.0)
        assert not scale.shows(100.0)

    def test_one_value_stands_in_the_middle(self) -> None:
        assert Scale.around([10.0]).at(10.0) == 500
        assert Scale.around([0.0]).at(0.0) == 500

    def test_what_lies_beyond_an_edge_stands_on_it(self) -> None:
        scale = Scale(0.0, 10.0)

        assert (scale.at(-5.0), scale.at(99.0)) == (0, 1000)

    def test_no_time_is_too_long_for_it(self) -> None:
        assert Scale.around([1.0, 1e308]).at(1e308) == 955


class TestStrips:
    def test_what_is_kept_of_the_runs_is_taken(self) -> None:
        (found,) = strips_of("step_ms", entry(10.0), CUDA)

        assert found == (10.0, 9.9, 10.1)

    def test_a_run_that_lacks_the_metric_is_no_strip(self) -> None:
        assert strips_of("latency_ms", entry(10.0), CUDA) == []
        assert strips_of("step_ms", None, CUDA) == []

    def test_the_newest_runs_are_shown(self) -> None:
        found = strips_of("step_ms", entry(*map(float, range(1, 31))), CUDA)

        assert [place for place, _, _ in found] == [float(n) for n in range(11, 31)]

    def test_the_interval_is_in_the_metric_s_unit(self) -> None:
        budget = replace(SLOWER, baseline=None, limit=8.0)

        assert interval_of([SLOWER]) == pytest.approx((11.9, 12.1))
        assert interval_of([budget]) == pytest.approx((8 * 1.19, 8 * 1.21))
        assert interval_of([replace(SLOWER, evidence=None)]) is None
        assert EVIDENCE.low == 0.19


class TestSamples:
    def test_a_run_has_a_row_with_its_tick_and_its_spread(self) -> None:
        text = str(samples_figure(runs((12.0, 11.0, 12.0))))

        assert re.findall(r'class="(?:stored|spread|run)" d="[^"]*"', text) == [
            'class="stored" d="M45 2v10m455-10v10"',
            'class="spread" d="M500 21h455"',
            'class="run" d="M955 15v12"',
        ]

    def test_a_reader_who_cannot_see_is_shown_the_numbers(self) -> None:
        text = str(samples_figure(runs(strip(12.0), base=10.0, limit=10.1)))

        assert attribute("aria-label", text) == (
            "baseline from 10.00 ms to 11.00 ms, this run from 12.00 ms to 12.00 ms"
        )

    def test_a_limit_that_is_far_off_is_shown_in_words_alone(self) -> None:
        text = str(samples_figure(runs(strip(12.0), budget=100.0)))

        assert "limit 100.0 ms (outside of the picture)" in text
        assert '<path class="budget"' not in text

    def test_without_runs_there_is_no_picture(self) -> None:
        nothing = Runs(metric=STEP_MS, stored=(), fresh=(), lines={})

        assert samples_figure(nothing) == ""


class TestLines:
    def test_a_limit_by_a_baseline_is_distinct_from_a_budget(self) -> None:
        budget = replace(SLOWER, outcome=Outcome.PASS, baseline=None, limit=15.0)

        assert lines_of([SLOWER, budget]) == {
            Ink.BASELINE: 10.0,
            Ink.LIMIT: 10.1,
            Ink.BUDGET: 15.0,
        }

    def test_the_floor_of_a_speedup_is_at_least_that(self) -> None:
        assert line_in_words(SPEEDUP, Ink.BUDGET, 1.3, shown=True) == (
            "limit at least 1.300x"
        )


class TestTicks:
    @given(
        st.floats(min_value=1e-4, max_value=1e6), st.floats(min_value=1e-3, max_value=9)
    )
    def test_they_are_few_round_apart_and_inside(self, low: float, span: float) -> None:
        scale = Scale(low, low * (1 + span))

        ticks = ticks_of(STEP_MS, scale)

        assert 2 <= len(ticks) <= 5
        assert len({text for _, text in ticks}) == len(ticks)
        assert all(
            scale.low <= v * (1 + 1e-6) and v <= scale.high * 1.000001 for v, _ in ticks
        )


class TestMemory:
    def test_each_purpose_is_a_bar_as_wide_as_its_share(self) -> None:
        (text,) = memory_figures([ITEM, PEAK])

        assert re.findall(r'class="(p\d)" x="([\d.]+)%" width="([\d.]+)%', text) == [
            ("p2", "0", "60"),
            ("p0", "60", "30"),
            ("p1", "90", "10"),
        ]
        assert re.findall(r"</i>([^<]*)", text) == [
            "activations 60.00 MiB (60 %)",
            "parameters 30.00 MiB (30 %)",
            "gradients 10.00 MiB (10 %)",
        ]

    def test_a_peak_that_nobody_sorted_has_no_picture(self) -> None:
        assert list(memory_figures([replace(PEAK, held_for=())])) == []

    def test_a_peak_of_nothing_has_no_picture(self) -> None:
        nothing = replace(PEAK, held_for=(("inputs", 0),))

        assert list(memory_figures([nothing])) == []

    def test_a_purpose_of_few_bytes_can_be_seen(self) -> None:
        peak = replace(PEAK, held_for=(("activations", 100 * MIB), ("inputs", 1)))

        (text,) = memory_figures([peak])

        assert 'class="p5" x="100%" width="0.2%"' in text

    COURSE = MemoryCourse(
        purposes=("parameters", "activations"),
        kib=((1024,), (0, 1024, 3072, 0)),
        phases=(("forward", 0), ("backward", 3)),
        peak=2,
    )

    def test_memory_over_a_step_is_stacked_areas_with_its_peak(self) -> None:
        text, _ = memory_figures([replace(PEAK, course=self.COURSE)])

        areas = re.findall(r'class="area (p\d)" d="([^"]*)"', text)
        assert [name for name, _ in areas] == ["p2", "p0"]
        assert areas == [
            ("p2", "M0 1000V762h1V524h1V48h1V762h1V1000z"),
            ("p0", "M0 1000V762h4V1000z"),
        ]
        assert '<path class="peak" d="M2.5 0V1000"/>' in text
        assert "</i>peak 4.000 MiB in forward<" in text
        assert ">backward</text>" in text
        assert ">2 MiB</text>" in text

    @pytest.mark.parametrize(
        "odd",
        [
            {"kib": ()},
            {"kib": ((), ())},
            {"kib": ((1, 2, 3), (4, 5))},
            {"peak": 99},
            {"peak": -1},
            {"purposes": ()},
            {"phases": (("forward", 77),)},
        ],
    )
    def test_a_course_that_nobody_wrote_so_breaks_nothing(
        self, odd: dict[str, Any]
    ) -> None:
        course = replace(self.COURSE, **odd)

        assert list(memory_figures([replace(PEAK, course=course)]))
