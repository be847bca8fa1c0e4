"""What a refresh leaves alone and refuses, and where the anchor goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp, log
from statistics import stdev

import pytest
from builders import a_run, an_entry
from hypothesis import given, strategies as st

from pytest_gpuperf.baselines.drift import Leeway, anchored, anchors_of, drifts, kept
from pytest_gpuperf.baselines.refresh import typical_values
from pytest_gpuperf.judge.statistics import Spread
from pytest_gpuperf.model.baseline import Drift, Entry, Kept
from pytest_gpuperf.model.budget import Tolerance
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.measurement import Distribution
from pytest_gpuperf.model.metrics import MIB


USUAL = Leeway(kind=DeviceKind.CUDA, tolerance=Tolerance())

QUIET = (10.0,) * 8
NOISY = (9.7, 9.8, 9.9, 10.0, 10.0, 10.1, 10.2, 10.3)
"""Around 10 ms with a standard deviation of 2 %."""


def entry(
    ms: Sequence[float] = (),
    *,
    anchor: Mapping[str, float] | None = None,
    torch: str = "2.13.0",
    **exact: int | Sequence[int],
) -> Entry:
    counts = {
        name: [value] * (len(ms) or 8) if isinstance(value, int) else value
        for name, value in exact.items()
    }
    runs = max(len(ms), *map(len, counts.values()), 0)
    return an_entry(
        *(
            a_run(
                ms[place] if ms else None,
                exact={name: values[place] for name, values in counts.items()},
            )
            for place in range(runs)
        ),
        software={"torch": torch},
        anchor=anchor or {},
    )


def times(ms: float, factor: Sequence[float] = QUIET) -> tuple[float, ...]:
    return tuple(ms * value / 10 for value in factor)


def anchors(of: Entry) -> Mapping[str, float]:
    return anchors_of(of, DeviceKind.CUDA)


class TestKept:
    @pytest.mark.parametrize(
        ("name", "times_too", "is_kept"),
        [
            ("pytest-gpuperf", True, True),
            ("pytest-gpuperf", False, True),
            ("python", False, True),
            ("python", True, False),
            ("torch", False, False),
        ],
    )
    def test_a_version_is_written_that_numbers_may_depend_on(
        self, name: str, *, times_too: bool, is_kept: bool
    ) -> None:
        ms = QUIET if times_too else ()
        old, new = (
            replace(entry(ms, syncs=1), software={"torch": "2.13.0", name: version})
            for version in ("1", "2")
        )

        assert (kept("t", old, new, USUAL) is not None) is is_kept

    def test_a_time_that_moved_less_than_the_stored_runs_scatter(self) -> None:
        assert kept("t", entry(NOISY), entry(times(10.15, NOISY)), USUAL) == Kept(
            test="t",
            metric="step_ms",
            stored=10.0,
            now=10.15,
            noise=pytest.approx(0.0202, abs=0.0001),
        )

    @pytest.mark.parametrize("ms", [10.25, 9.75])
    def test_a_time_that_moved_more_is_not(self, ms: float) -> None:
        assert kept("t", entry(NOISY), entry(times(ms, NOISY)), USUAL) is None

    @pytest.mark.parametrize(("ms", "found"), [(10.01, 1), (10.03, 0)])
    def test_no_less_than_a_fifth_of_a_percent_is_noise(
        self, ms: float, found: int
    ) -> None:
        alike = kept("t", entry(QUIET), entry(times(ms)), USUAL)

        assert (alike is not None) == bool(found)

    def test_the_scatter_of_the_suite_moderates_that_of_one_test(self) -> None:
        wide = Leeway(
            kind=DeviceKind.CUDA,
            tolerance=Tolerance(),
            prior=Spread(sigma=0.02, nu=50.0),
        )
        old, new = entry(QUIET), entry(times(10.1))

        assert kept("t", old, new, USUAL) is None
        assert kept("t", old, new, wide) is not None

    def test_an_entry_of_fewer_runs_than_were_asked_for_is_rewritten(self) -> None:
        asking = Leeway(kind=DeviceKind.CUDA, tolerance=Tolerance(), runs=9)

        assert kept("t", entry(QUIET), entry(QUIET), asking) is None
        assert kept("t", entry((*times(10.0), 10.0)), entry(QUIET), asking) is not None

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            pytest.param(None, entry(QUIET), id="a new test"),
            pytest.param(entry(QUIET[:7]), entry(QUIET), id="too few stored runs"),
            pytest.param(
                entry(QUIET, torch="2.12.0"), entry(QUIET), id="another torch"
            ),
            pytest.param(
                entry(QUIET), entry(QUIET, syncs=0), id="a metric that was not stored"
            ),
            pytest.param(
                entry(QUIET, syncs=0), entry(QUIET), id="a metric that is gone"
            ),
            pytest.param(
                entry(NOISY), entry(QUIET), id="runs that scatter half as much"
            ),
            pytest.param(
                replace(entry(QUIET), runs=()),
                replace(entry(QUIET), runs=()),
                id="nothing to compare",
            ),
        ],
    )
    def test_what_is_written_however_little_it_moved(
        self, old: Entry | None, new: Entry
    ) -> None:
        assert kept("t", old, new, USUAL) is None

    def test_more_scatter_alone_rewrites_nothing(self) -> None:
        assert kept("t", entry(QUIET), entry(NOISY), USUAL) is not None

    @pytest.mark.parametrize(
        ("stored", "fresh", "found"),
        [
            pytest.param(1, 1, 1, id="the same count"),
            pytest.param(1, 2, 0, id="one more"),
            pytest.param(1, 0, 0, id="one less"),
            pytest.param(1, [1] * 7 + [2], 0, id="one more in one run"),
            pytest.param([0] * 4 + [1] * 4, 0, 0, id="the largest count vanished"),
            pytest.param([0] * 4 + [1] * 4, 1, 1, id="inside the stored range"),
        ],
    )
    def test_a_count_has_no_noise_but_the_range_of_its_runs(
        self, stored: int | Sequence[int], fresh: int | Sequence[int], found: int
    ) -> None:
        alike = kept("t", entry(syncs=stored), entry(syncs=fresh), USUAL)

        assert (alike is not None) == bool(found)

    def test_a_size_moves_by_a_byte_more_and_not_by_a_range_that_shrinks_a_little(
        self,
    ) -> None:
        old = entry(peak_allocated_bytes=[MIB] * 4 + [MIB + 512] * 4)
        more = entry(peak_allocated_bytes=MIB + 513)
        narrower = entry(peak_allocated_bytes=MIB)

        assert kept("t", old, more, USUAL) is None
        assert kept("t", old, narrower, USUAL) == Kept(
            test="t",
            metric="peak_allocated_bytes",
            stored=MIB + 512,
            now=MIB,
            noise=None,
        )

    def test_one_metric_that_moved_is_enough(self) -> None:
        old, new = entry(QUIET, syncs=0), entry(QUIET, syncs=1)

        assert kept("t", old, new, USUAL) is None

    def test_a_cpu_is_read_by_its_first_decile(self) -> None:
        def of(q10: float) -> Entry:
            times = Distribution(q10=q10, q25=12.0, q50=12.0, mean=12.0, samples=9)
            return an_entry(*[a_run(times={"step_ms": times})] * 8)

        cpu = Leeway(kind=DeviceKind.CPU, tolerance=Tolerance())

        assert kept("t", of(10.0), of(11.0), cpu) is None
        assert kept("t", of(10.0), of(11.0), USUAL) is not None


class TestDrifts:
    def test_a_time_above_detect_since_its_anchor(self) -> None:
        old = entry(times(10.25), anchor={"step_ms": 10.0})

        assert drifts("t", old, entry(times(10.31)), USUAL) == (
            Drift(
                test="t",
                metric="step_ms",
                anchor=10.0,
                now=10.31,
                limit=10.3,
                bound="detect 3 %",
            ),
        )
        assert drifts("t", old, entry(times(10.3)), USUAL) == ()

    @pytest.mark.parametrize(
        ("tolerance", "limit", "bound"),
        [
            (Tolerance(detect=0.08), 10.8, "detect 8 %"),
            (Tolerance(ratios={"ms": 0.05}), 10.7, "detect 7 %"),
            (Tolerance(ratios={"ms": 0.05}, detect=0.08), 10.8, "detect 8 %"),
            (Tolerance(ratios={"ms": 0.01}, floors={"ms": 0.5}), 10.7, "detect 7 %"),
            (Tolerance(ratios={"ms": 0.05}, detect=0.0), 10.5, "detect 5 %"),
        ],
        ids=["detect", "tolerance", "both", "floor", "detect below the tolerance"],
    )
    def test_the_author_says_how_far_a_time_may_go(
        self, tolerance: Tolerance, limit: float, bound: str
    ) -> None:
        leeway = Leeway(kind=DeviceKind.CUDA, tolerance=tolerance)

        (drift,) = drifts("t", entry(QUIET), entry(times(11.0)), leeway)

        assert drift.limit == pytest.approx(limit)
        assert drift.bound == bound
        assert drifts("t", entry(QUIET), entry(times(limit - 0.001)), leeway) == ()

    def test_noise_is_no_drift(self) -> None:
        old = entry(NOISY)

        (drift,) = drifts("t", old, entry(times(10.5)), USUAL)

        assert drift.bound == "twice its own noise, 4.1 %"
        assert drift.limit == pytest.approx(10 * exp(2 * stdev(map(log, NOISY))))
        assert drifts("t", old, entry(times(10.4)), USUAL) == ()

    @pytest.mark.parametrize(
        ("tolerance", "limit", "bound"),
        [
            (Tolerance(ratios={"mem_mb": 0.02}), 408 * MIB, "tolerance 2 %"),
            (
                Tolerance(ratios={"mem_mb": 0.01}, floors={"mem_mb": 8}),
                408 * MIB,
                "tolerance 8 MiB",
            ),
        ],
        ids=["ratio", "floor"],
    )
    def test_a_size_above_its_tolerance(
        self, tolerance: Tolerance, limit: float, bound: str
    ) -> None:
        leeway = Leeway(kind=DeviceKind.CUDA, tolerance=tolerance)
        old = entry(peak_allocated_bytes=400 * MIB)
        most = round(limit)

        found = drifts("t", old, entry(peak_allocated_bytes=most + 1), leeway)

        assert found == (
            Drift(
                test="t",
                metric="peak_allocated_bytes",
                anchor=400 * MIB,
                now=most + 1,
                limit=limit,
                bound=bound,
            ),
        )
        assert drifts("t", old, entry(peak_allocated_bytes=most), leeway) == ()

    def test_a_count_above_its_anchor_in_any_run(self) -> None:
        new = entry(syncs=[0] * 7 + [1])

        assert drifts("t", entry(syncs=0), new, USUAL) == (
            Drift(
                test="t",
                metric="syncs",
                anchor=0,
                now=1,
                limit=0,
                bound="tolerance 0 %",
            ),
        )

    def test_what_is_stored_is_the_anchor_of_an_entry_without_one(self) -> None:
        old = entry(QUIET, syncs=0, anchor={"step_ms": 9.0})

        found = drifts("t", old, entry(QUIET, syncs=1), USUAL)

        assert [(drift.metric, drift.anchor) for drift in found] == [
            ("step_ms", 9.0),
            ("syncs", 0),
        ]

    def test_what_got_better_or_is_new_has_not_drifted(self) -> None:
        old = entry(QUIET, syncs=2)
        new = entry(times(5.0), syncs=0, peak_allocated_bytes=MIB)

        assert drifts("t", old, new, USUAL) == ()
        assert drifts("t", None, new, USUAL) == ()

    def test_runs_that_disagree_beyond_all_bounds_leave_a_finite_limit(self) -> None:
        old = entry((1e-300,) * 4 + (1e300,) * 4)

        assert drifts("t", old, entry(QUIET), USUAL) == ()


class TestAnchored:
    def test_a_new_entry_is_its_own_anchor(self) -> None:
        new = anchored(None, entry(QUIET, syncs=1), USUAL)

        assert new.anchor == {}
        assert anchors(new) == {"step_ms": 10.0, "syncs": 1}

    def test_the_anchor_keeps_the_oldest_accepted_value(self) -> None:
        old = entry(times(10.2), syncs=0, anchor={"step_ms": 10.0})

        new = anchored(old, entry(times(10.25), syncs=0, launches=0), USUAL)

        assert new.anchor == {"step_ms": 10.0}
        assert anchors(new) == {"step_ms": 10.0, "syncs": 0, "launches": 0}

    def test_the_anchor_of_what_is_not_measured_any_more_stays(self) -> None:
        old = entry(QUIET, anchor={"step_ms": 10.0, "syncs": 3})

        assert anchored(old, entry(QUIET), USUAL).anchor["syncs"] == 3

    @pytest.mark.parametrize(
        ("stored", "fresh", "anchor"),
        [
            pytest.param(QUIET, times(9.88), 9.88, id="beyond the tolerance"),
            pytest.param(QUIET, times(9.92), 10.0, id="inside the tolerance"),
            pytest.param(NOISY, times(9.5), 9.5, id="beyond the noise"),
            pytest.param(NOISY, times(9.7), 10.0, id="inside the noise"),
        ],
    )
    def test_a_gain_takes_the_anchor_along(
        self, stored: Sequence[float], fresh: Sequence[float], anchor: float
    ) -> None:
        new = anchored(entry(stored), entry(fresh), USUAL)

        assert anchors(new) == {"step_ms": anchor}

    @pytest.mark.parametrize(
        ("fresh", "anchor"), [(397 * MIB, 397 * MIB), (399 * MIB, 400 * MIB)]
    )
    def test_a_size_takes_its_anchor_along_beyond_its_tolerance(
        self, fresh: int, anchor: int
    ) -> None:
        old = entry(peak_allocated_bytes=400 * MIB)

        new = anchored(old, entry(peak_allocated_bytes=fresh), USUAL)

        assert anchors(new) == {"peak_allocated_bytes": anchor}

    def test_accepted_drift_moves_the_anchors_that_are_too_far_and_no_other(
        self,
    ) -> None:
        old = entry(times(10.2), syncs=1, anchor={"step_ms": 10.0, "syncs": 0})

        slower = anchored(old, entry(times(10.4), syncs=0), USUAL, accept_drift=True)
        as_slow = anchored(old, entry(times(10.3), syncs=2), USUAL, accept_drift=True)

        assert anchors(slower) == {"step_ms": 10.4, "syncs": 0}
        assert anchors(as_slow) == {"step_ms": 10.0, "syncs": 2}


@given(st.lists(st.floats(5.0, 20.0), min_size=1, max_size=30))
def test_no_series_of_refreshes_gets_above_detect_over_the_best_it_settled_on(
    series: list[float],
) -> None:
    stored = anchored(None, entry(QUIET), USUAL)
    best = 10.0
    for ms in series:
        new = entry(times(ms))
        if not drifts("t", stored, new, USUAL):
            stored = anchored(stored, new, USUAL)
        typical = typical_values(stored, DeviceKind.CUDA)["step_ms"]
        best = min(best, typical)

        assert anchors(stored)["step_ms"] <= best * 1.01 * (1 + 1e-9)
        assert log(typical / anchors(stored)["step_ms"]) <= log(1.03) + 1e-9
