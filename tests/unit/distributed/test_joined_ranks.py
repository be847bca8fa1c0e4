"""One measurement out of what several ranks found."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import a_finding, a_measurement

from pytest_gpuperf.distributed.device import RankShare, joined
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.measurement import ByRank, Collective, Measurement


MEASURED = a_measurement(
    6.0,
    on=DeviceKind.CPU,
    test="step",
    exact={"syncs": 0, "peak_allocated_bytes": 2**20},
)

GATHER = Collective(kind="all_gather", calls=4, size_bytes=3 * 2**20)
SCATTER = Collective(kind="reduce_scatter", calls=2, size_bytes=2**20)

ROUNDS = ((8, 12), (9, 13), (8, 12))


def shares(*measurements: Measurement) -> list[RankShare]:
    return [RankShare(each, (GATHER, SCATTER), (), None) for each in measurements]


def test_each_ranks_numbers_are_next_to_those_of_the_worst() -> None:
    found = joined(shares(MEASURED, MEASURED), ROUNDS, (2**20, 2**21))

    assert found.by_rank == ByRank(
        step_ms=(4.0, 6.0), peak_bytes=(2**20, 2**21), collectives=(GATHER, SCATTER)
    )
    assert found.by_rank.slowest == 1
    assert found.times["rank_skew"].q50 == pytest.approx(1.5)
    assert found.exact == {
        "syncs": 0,
        "peak_allocated_bytes": 2**20,
        "rank_peak_bytes": 2**21,
        "collectives": 6,
        "collective_bytes": 2**22,
    }
    assert found.remarks == (
        "median step by rank 4.000 ms, 6.000 ms: rank 1 is slowest, 1.500x the fastest",
        "peak by rank 1.000 MiB, 2.000 MiB",
        "a step has 4 all_gather (3.000 MiB), 2 reduce_scatter (1.000 MiB)",
        "no trace of them, so what computation hides of them is not known",
    )


def test_communication_that_nothing_hides_is_known_by_rank() -> None:
    found = joined(
        [
            RankShare(MEASURED, (GATHER,), (), (2.0, exposed_ms))
            for exposed_ms in (0.0, 1.5)
        ],
        ROUNDS,
        (1, 1),
    )

    assert found.by_rank is not None
    assert found.by_rank.communication_ms == (2.0, 2.0)
    assert found.by_rank.exposed_ms == (0.0, 1.5)
    assert found.remarks[-1] == (
        "they run for 2.000 ms, 2.000 ms by rank, 0 ms, 1.500 ms not hidden by "
        "computation"
    )


def test_communication_that_one_trace_does_not_show_is_not_known() -> None:
    unseen = RankShare(MEASURED, (GATHER,), (), None)

    found = joined(
        [unseen, RankShare(MEASURED, (GATHER,), (), (2.0, 1.0))], ROUNDS, (1, 1)
    )

    assert found.by_rank is not None
    assert found.by_rank.exposed_ms == ()
    assert found.remarks[-1] == (
        "no trace of them, so what computation hides of them is not known"
    )


def test_the_rank_with_most_syncs_says_where_they_are() -> None:
    sync = a_finding(op="item", per_step=3, location=None)
    waiting = replace(MEASURED, exact={"syncs": 3, "launches": 1}, findings=(sync,))

    found = joined(shares(MEASURED, waiting), ROUNDS, (1, 1))

    assert found.findings == (sync,)
    assert found.exact["syncs"] == 3
    assert "launches" not in found.exact


def test_what_a_rank_alone_has_to_say_names_it() -> None:
    first = replace(MEASURED, dirty=("cold", "late"), remarks=("it leaks",))
    second = replace(MEASURED, dirty=("late",))

    found = joined(shares(first, second), (), ())

    assert found.dirty == ("rank 0: cold", "late")
    assert found.remarks[0] == "rank 0: it leaks"


def test_where_a_rank_replays_graphs_that_no_peak_counts_no_peak_is_known() -> None:
    peaks = replace(MEASURED, exact={"syncs": 0, "peak_allocated_bytes": 2**20})
    unseen = "what its replays use is in no peak"
    graphs = replace(peaks, exact={"syncs": 0}, missed={"peak_allocated_bytes": unseen})

    found = joined(shares(peaks, graphs), ROUNDS, (2**20, 2**20))

    assert found.missed == dict.fromkeys(
        ("peak_allocated_bytes", "rank_peak_bytes"), f"rank 1: {unseen}"
    )
    assert not found.missed.keys() & found.exact.keys()
    assert found.by_rank is not None
    assert found.by_rank.peak_bytes == ()


def test_a_rank_that_never_touched_its_gpu_speaks_for_all() -> None:
    untouched = replace(MEASURED, times={}, exact={}, unmeasured={"syncs": "untouched"})

    assert joined(shares(MEASURED, untouched), ROUNDS, (1, 1)) == untouched


def test_what_a_time_cap_left_out_is_missed_and_not_zero() -> None:
    cut = replace(MEASURED, exact={}, missed={"syncs": "no time"})

    found = joined([RankShare(cut, (), (), None)] * 2, (), ())

    assert found.exact == {}
    assert found.missed == dict.fromkeys(
        ("syncs", "rank_peak_bytes", "collectives", "collective_bytes"), "no time"
    )
    assert found.by_rank == ByRank()
    assert found.by_rank.skew is None
