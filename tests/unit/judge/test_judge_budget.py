"""Absolute ceilings: which hold on this hardware, and when they are broken."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import CPU, H200, SCRIPTED, a_measurement

from pytest_gpuperf.judge.budget import (
    ResolvedBudget,
    ceiling,
    judge_exact_budget,
    resolve,
)
from pytest_gpuperf.judge.readings import against, figure
from pytest_gpuperf.model.budget import Budget, parse_budget
from pytest_gpuperf.model.environment import DeviceKind, Hardware
from pytest_gpuperf.model.metrics import (
    FLOPS,
    GROWTH,
    MIB,
    PEAK_ALLOCATED,
    PREDICTED,
    RANK_SKEW,
    STEP_MS,
    SYNCS,
    WORKSPACES,
)
from pytest_gpuperf.model.verdict import Outcome, Verdict


def test_the_first_layer_that_names_a_keyword_wins() -> None:
    layers = [
        Budget(limits={"ms": 5.0}),
        Budget(limits={"ms": 12.0, "syncs": 1}),
        Budget(limits={"syncs": 9, "mem_mb": 900}),
    ]

    resolved = resolve(layers, H200)

    assert resolved == ResolvedBudget(limits={"ms": 5.0, "syncs": 1, "mem_mb": 900})


def test_none_lifts_an_inherited_limit() -> None:
    layers = [Budget(limits={"ms": None}), Budget(limits={"ms": 12.0})]

    assert resolve(layers, H200) == ResolvedBudget()
    assert resolve(layers, CPU) == ResolvedBudget()


def test_none_without_on_lifts_also_what_is_meant_for_this_hardware() -> None:
    layers = [Budget(limits={"ms": None}), Budget(limits={"ms": 99.0}, on=("cpu",))]

    assert resolve(layers, CPU) == ResolvedBudget()


def test_none_with_on_lifts_only_there() -> None:
    layers = [Budget(limits={"syncs": None}, on=("cpu",)), Budget(limits={"syncs": 0})]

    assert resolve(layers, CPU) == ResolvedBudget()
    assert resolve(layers, H200) == ResolvedBudget(limits={"syncs": 0})


def test_a_lift_for_other_hardware_alone_says_nothing() -> None:
    layers = [Budget(limits={"syncs": None}, on=("cuda",))]

    assert resolve(layers, CPU) == ResolvedBudget()


def test_time_budgets_bind_on_cuda_only_and_exact_ones_everywhere() -> None:
    layers = [Budget(limits={"ms": 12.0, "latency_ms": 12.5, "syncs": 0})]

    assert resolve(layers, CPU) == ResolvedBudget(
        limits={"syncs": 0},
        unbound={
            "ms": "ms=12 binds on cuda only, this is cpu AMD EPYC 2 cores; name it with on=",
            "latency_ms": (
                "latency_ms=12.5 binds on cuda only, this is cpu AMD EPYC 2 cores; "
                "name it with on="
            ),
        },
    )
    for hardware in (H200, SCRIPTED):
        assert resolve(layers, hardware) == ResolvedBudget(
            limits={"ms": 12.0, "latency_ms": 12.5, "syncs": 0}
        )


@pytest.mark.parametrize(
    "pattern", ["cuda", "CUDA", "*h200*", "nvidia H200", "cuda-nvidia-h200", "*"]
)
def test_on_matches_the_kind_the_name_or_the_key_in_any_case(pattern: str) -> None:
    layers = [Budget(limits={"ms": 12.0, "syncs": 0}, on=("cpu", pattern))]

    assert resolve(layers, H200) == ResolvedBudget(limits={"ms": 12.0, "syncs": 0})


def test_on_knows_what_the_simulated_gpu_was_called() -> None:
    simulated = Hardware(kind=DeviceKind.SIMULATED, name="CUDA")
    (old, new) = (
        parse_budget({"syncs": 0, "on": name}) for name in ("pretend", "simulated")
    )

    assert resolve([old], simulated) == resolve([new], simulated)


def test_on_takes_the_whole_mark_away_from_other_hardware() -> None:
    layers = [Budget(limits={"ms": 12.0, "syncs": 0}, on=("*A100*", "*H100*"))]

    assert resolve(layers, H200).unbound == {
        "ms": "ms=12 is meant for *A100*, *H100*, this is cuda NVIDIA H200",
        "syncs": "syncs=0 is meant for *A100*, *H100*, this is cuda NVIDIA H200",
    }


def test_a_layer_that_does_not_bind_gives_way_to_one_that_does() -> None:
    layers = [Budget(limits={"ms": 12.0}), Budget(limits={"ms": 300.0}, on=("cpu",))]

    assert resolve(layers, CPU) == ResolvedBudget(limits={"ms": 300.0})
    assert resolve(layers, H200) == ResolvedBudget(limits={"ms": 12.0})


def test_a_limit_for_elsewhere_is_named_although_an_outer_layer_lifts() -> None:
    layers = [
        Budget(limits={"ms": 12.0}),
        Budget(limits={"ms": 10.0}, on=("cuda",)),
        Budget(limits={"ms": None}),
    ]

    assert resolve(layers, CPU) == ResolvedBudget(
        unbound={
            "ms": "ms=12 binds on cuda only, this is cpu AMD EPYC 2 cores; name it with on="
        }
    )


def test_memory_ceilings_are_mib_against_bytes() -> None:
    assert ceiling(PEAK_ALLOCATED, 900) == 900 * MIB
    assert ceiling(STEP_MS, 12) == 12


@pytest.mark.parametrize(
    ("values", "limit", "outcome", "settled", "now", "because"),
    [
        ([0], 0, Outcome.PASS, True, 0, "0 against 0"),
        ([1, 2], 2, Outcome.PASS, True, 2, "2 against 2"),
        ([3], 2, Outcome.OVER_BUDGET, False, 3, "3 against 2 in 1 run"),
        ([3, 3], 2, Outcome.OVER_BUDGET, True, 3, "3 against 2 in each of 2 runs"),
        ([1, 0], 0, Outcome.INCONCLUSIVE, True, 0, "1 in one run, 0 in another"),
    ],
)
def test_one_more_run_confirms_a_count_over_budget(
    *,
    values: list[int],
    limit: int,
    outcome: Outcome,
    settled: bool,
    now: int,
    because: str,
) -> None:
    runs = [a_measurement(None, exact={"syncs": value}) for value in values]

    verdict = judge_exact_budget(SYNCS, runs, limit)

    assert verdict == Verdict(
        metric="syncs",
        outcome=outcome,
        because=because,
        now=now,
        limit=limit,
        settled=settled,
    )


def test_what_varies_is_over_budget_only_if_eight_draws_are() -> None:
    runs = [
        a_measurement(None, exact={"syncs": value})
        for value in (3, 4, 3, 4, 3, 4, 4, 4)
    ]

    seven, eight = (judge_exact_budget(SYNCS, runs[:count], 2) for count in (7, 8))

    assert (seven.settled, seven.proving) == (False, True)
    assert (eight.settled, eight.proving) == (True, False)
    assert eight.outcome is Outcome.OVER_BUDGET
    assert eight.because == "3 against 2 in each of 8 runs"


def test_bytes_are_shown_in_mib_with_the_digits_it_takes() -> None:
    runs = [a_measurement(None, exact={PEAK_ALLOCATED.name: 900 * MIB + 512})] * 2

    verdict = judge_exact_budget(PEAK_ALLOCATED, runs, 900 * MIB)

    assert verdict.because == "900 MiB against 900 MiB, +512 B in each of 2 runs"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.012345, "0.01235 ms"),
        (12.0, "12 ms"),
        (12.3456, "12.35 ms"),
        (123456.7, "123457 ms"),
        (1234567.0, "1234567 ms"),
    ],
)
def test_a_time_has_four_digits_and_no_exponent(value: float, text: str) -> None:
    assert figure(STEP_MS, value) == text


def test_two_values_that_no_eye_tells_apart_are_written_alike() -> None:
    near = 0.1 + 0.2

    assert against(STEP_MS, near, 0.3) == "0.3 ms against 0.3 ms"
    assert against(GROWTH, 512, 0) == "512 B against 0 B"


def test_operations_of_a_step_are_in_millions_unless_they_differ_by_a_few() -> None:
    stored = 104_726_528

    assert against(FLOPS, 2 * stored, stored) == "209.5 MFLOP against 104.7 MFLOP"
    assert against(FLOPS, stored + 1, stored) == "104726529 against 104726528"


@pytest.mark.parametrize(
    ("now_mib", "outcome", "because"),
    [
        (94, Outcome.PASS, "94 MiB against 100 MiB"),
        (
            96,
            Outcome.INCONCLUSIVE,
            "96 MiB against 100 MiB, and the prediction may be off by 5 %",
        ),
        (
            104,
            Outcome.INCONCLUSIVE,
            "104 MiB against 100 MiB, and the prediction may be off by 5 %",
        ),
        (106, Outcome.OVER_BUDGET, "106 MiB against 100 MiB in 1 run"),
    ],
)
def test_a_prediction_decides_nothing_nearer_than_it_may_be_off(
    now_mib: int, outcome: Outcome, because: str
) -> None:
    runs = [a_measurement(None, exact={PEAK_ALLOCATED.name: now_mib * MIB})]

    verdict = judge_exact_budget(PREDICTED[PEAK_ALLOCATED.name], runs, 100 * MIB)

    assert (verdict.outcome, verdict.because) == (outcome, because)


@pytest.mark.parametrize(
    ("limit_mib", "outcome"),
    [
        (64, Outcome.OVER_BUDGET),
        (65, Outcome.OVER_BUDGET),
        (66, Outcome.INCONCLUSIVE),
        (67, Outcome.PASS),
    ],
)
def test_a_prediction_is_off_by_a_part_of_the_steps_own_bytes(
    limit_mib: int, outcome: Outcome
) -> None:
    bytes_of = {PEAK_ALLOCATED.name: 66 * MIB, WORKSPACES.name: 64 * MIB}
    runs = [a_measurement(None, exact=bytes_of)]

    verdict = judge_exact_budget(PREDICTED[PEAK_ALLOCATED.name], runs, limit_mib * MIB)

    assert verdict.outcome is outcome


@pytest.mark.parametrize(
    ("now_mib", "outcome"),
    [(94, Outcome.PASS), (106, Outcome.INCONCLUSIVE), (900, Outcome.INCONCLUSIVE)],
)
def test_what_is_only_a_bound_passes_a_ceiling_and_blames_nobody(
    now_mib: int, outcome: Outcome
) -> None:
    run = a_measurement(None, exact={PEAK_ALLOCATED.name: now_mib * MIB})
    run = replace(run, at_most={PEAK_ALLOCATED.name: "it is compiled"})

    verdict = judge_exact_budget(PREDICTED[PEAK_ALLOCATED.name], [run], 100 * MIB)

    assert verdict.outcome is outcome
    assert verdict.because.endswith(
        "against 100 MiB" if outcome is Outcome.PASS else "and it is compiled"
    )


def test_a_skew_binds_where_times_do_and_collectives_everywhere() -> None:
    layers = [Budget(limits={"skew_pct": 10, "collectives": 1})]

    assert resolve(layers, H200) == ResolvedBudget(
        limits={"skew_pct": 10, "collectives": 1}
    )
    assert resolve(layers, CPU) == ResolvedBudget(
        limits={"collectives": 1},
        unbound={
            "skew_pct": "skew_pct=10 binds on cuda only, this is cpu AMD EPYC 2 cores; name it "
            "with on="
        },
    )


def test_a_skew_of_ten_percent_is_a_ratio() -> None:
    assert ceiling(RANK_SKEW, 10) == pytest.approx(1.1)
    assert figure(RANK_SKEW, ceiling(RANK_SKEW, 10)) == "1.1x"
