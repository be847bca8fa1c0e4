"""Pictures: memory by purpose."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st
from pages import ITEM, MIB, PEAK

from pytest_gpuperf.model.finding import MemoryCourse
from pytest_gpuperf.report.html.memory import memory_figures, ticks_of


class TestTicks:
    @given(st.floats(min_value=1, max_value=1e15))
    def test_they_are_few_round_apart_and_inside(self, top: float) -> None:
        ticks = ticks_of(top)

        assert 3 <= len(ticks) <= 5
        assert len({text for _, text in ticks}) == len(ticks)
        assert all(0 <= v <= top * 1.000001 for v, _ in ticks)


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
