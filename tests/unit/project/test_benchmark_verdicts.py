"""The benchmark of the judge: its noise, its peers, its bars, and whom it asks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from builders import a_distribution, an_entry

from pytest_gpuperf.judge.context import Sentinels
from pytest_gpuperf.model.ab import Answer
from pytest_gpuperf.model.baseline import RunSummary
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.measurement import Distribution, Measurement
from pytest_gpuperf.model.verdict import Outcome


sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

import noise
import order_of_work
import verdicts
from order_of_work import Effort


SILENT = replace(
    noise.BOOST,
    white=0.0,
    drift=0.0,
    tail_share=0.0,
    run=0.0,
    session=0.0,
    shift_share=0.0,
    slow_share=0.0,
)


def times(*medians: float) -> noise.Array:
    """Return one test's runs of 100 steps that differ from their median by up to 1 %."""
    return np.array([[median * np.linspace(0.99, 1.01, 100) for median in medians]])


def stored(*ms: float) -> list[RunSummary]:
    return [order_of_work.kept(a_distribution(one)) for one in ms]


def fresh(*ms: float, clean: bool = True) -> list[Measurement]:
    return [
        order_of_work.measured(a_distribution(one), DeviceKind.SCRIPTED, clean=clean)
        for one in ms
    ]


EIGHT = stored(9.98, 9.99, 9.99, 10.0, 10.0, 10.01, 10.01, 10.02)


# Peers


@pytest.mark.parametrize(
    ("blames", "ignored", "blamed"),
    [
        (order_of_work.compare_fail_min, 1.049, 1.051),
        (order_of_work.compare_fail_median, 1.049, 1.051),
    ],
)
def test_a_peer_compares_the_oldest_runs_and_blames_beyond_its_threshold(
    blames: Callable[..., order_of_work.Blamed], ignored: float, blamed: float
) -> None:
    before = times(1.0, 9.0)

    assert not blames(before, times(ignored, 9.0))
    assert blames(before, times(blamed, 1.0))


def test_no_peer_blames_a_speed_up() -> None:
    verdicts = [
        peer.blames(times(1.0), times(0.8, 0.8, 0.8)) for peer in order_of_work.PEERS
    ]

    assert not any(verdicts)


# Noise


def test_a_draw_without_noise_is_of_ones() -> None:
    (draw,) = noise.draws(SILENT, 3, np.random.default_rng(1))

    assert draw.stored.shape == (3, 8, 100)
    assert draw.fresh.shape == (3, 5, 100)
    assert np.all(draw.stored == 1.0)
    assert np.all(draw.fresh == 1.0)


def test_what_slows_a_machine_slows_all_steps_of_a_run_and_is_seen_by_its_sentinel() -> (
    None
):
    slow = replace(SILENT, slow_share=1.0, slow_run=(0.02, 0.02), lasting=3.0)

    (draw,) = noise.draws(slow, 50, np.random.default_rng(1))

    assert np.allclose(draw.stored, np.exp(0.02))
    assert np.allclose(draw.fresh, np.exp(0.02))
    assert 0.3 * 0.02 < draw.fresh_sentinels.mean() < 1.2 * 0.02


def test_tests_are_drawn_in_portions_and_the_same_for_the_same_seed() -> None:
    first = list(noise.draws(noise.SHARED, 1200, seeded()))
    again = list(noise.draws(noise.SHARED, 1200, seeded()))

    assert [len(draw.stored) for draw in first] == [1000, 200]
    assert all(
        np.array_equal(one.fresh, other.fresh)
        for one, other in zip(first, again, strict=True)
    )


def seeded() -> np.random.Generator:
    return np.random.default_rng(7)


# Recorded noise


@pytest.mark.parametrize(
    ("workload", "clean"), [("mlp", 50), ("conv", 43), ("attention", 50)]
)
def test_each_workload_was_recorded_in_88_processes_of_which_16_were_quiet(
    workload: str, clean: int
) -> None:
    mixed = noise.processes(workload, quiet=False)
    quiet = noise.processes(workload, quiet=True)

    assert mixed.early.shape == mixed.late.shape == (88, 100)
    assert quiet.early.shape == quiet.late.shape == (16, 100)
    assert mixed.clean.sum() == clean
    assert quiet.clean.all()
    assert np.array_equal(quiet.late, mixed.late[-16:])


def test_62_pairs_a_workload_were_recorded() -> None:
    pairs = noise.pair_differences()

    assert {workload: len(found) for workload, found in pairs.items()} == {
        "mlp": 62,
        "conv": 62,
        "attention": 62,
    }


def test_no_process_is_chosen_twice_and_fresh_ones_follow_one_another() -> None:
    source = noise.processes("conv", quiet=False)

    choice = noise.choose(source, 200, seeded(), fresh=8, spread=False)

    together = np.concatenate([choice.stored, choice.fresh], axis=1)
    assert all(len(set(row)) == 16 for row in together.tolist())
    assert np.all(np.diff(choice.fresh, axis=1) % len(source) == 1)
    assert source.clean[choice.stored].all()
    assert not source.clean[choice.fresh].all()


def test_fresh_processes_that_are_spread_need_not_follow_one_another() -> None:
    source = noise.processes("conv", quiet=False)

    choice = noise.choose(source, 50, seeded(), fresh=8, spread=True)

    assert np.any(np.diff(choice.fresh, axis=1) < 0)


# The product's judge


def test_a_run_is_summarised_as_the_product_summarises_it() -> None:
    steps = np.arange(1.0, 25.0).reshape(2, 3, 4)

    found = order_of_work.distributions(steps)

    assert found == [Distribution.of(row) for row in steps.reshape(6, 4).tolist()]


@pytest.mark.parametrize(
    ("slowdown", "ended"),
    [
        (0.0, (Outcome.PASS, 1)),
        (0.10, (Outcome.REGRESSED, 5)),
        (-0.10, (Outcome.IMPROVED, 5)),
    ],
)
def test_a_test_gets_runs_until_it_is_settled(
    slowdown: float, ended: tuple[Outcome, int]
) -> None:
    runs = fresh(*[10 * (1 + slowdown)] * 6)

    assert order_of_work.gate_one(EIGHT, runs) == ended


def test_a_test_that_runs_out_of_runs_is_inconclusive() -> None:
    assert order_of_work.gate_one(EIGHT, fresh(11.0, 11.0)) == (Outcome.INCONCLUSIVE, 2)


def test_disturbed_slow_runs_blame_nobody() -> None:
    outcome, _ = order_of_work.gate_one(EIGHT, fresh(*[11.0] * 8, clean=False))

    assert outcome is Outcome.INCONCLUSIVE


def test_a_sentinel_that_saw_the_slowdown_takes_the_blame_from_the_code() -> None:
    def sentinels_of(runs: int) -> Sentinels:
        return Sentinels(fresh=(0.1,) * runs, stored=(0.0,) * 8)

    outcome, _ = order_of_work.gate_one(EIGHT, fresh(*[11.0] * 5), sentinels_of)

    assert outcome is Outcome.INCONCLUSIVE


def test_a_suite_blames_the_test_that_is_slow_and_passes_the_others_at_once() -> None:
    entries = {str(test): an_entry(*EIGHT) for test in range(8)}

    def run(test: str, number: int) -> Measurement:
        ms = 11.0 + number / 1000 if test == "3" else 10.0
        return order_of_work.measured(
            a_distribution(ms), DeviceKind.SCRIPTED, test=test
        )

    found = order_of_work.gate_suite(entries, run)

    assert found.pop("3") == (Outcome.REGRESSED, 5)
    assert set(found.values()) == {(Outcome.PASS, 1)}


def test_pairs_are_judged_at_three_five_and_eight() -> None:
    assert order_of_work.compare_pairs([0.0] * 8) == (Answer.SAME, 3)
    assert order_of_work.compare_pairs([0.05] * 8) == (Answer.SLOWER, 5)
    assert order_of_work.compare_pairs([0.5, -0.5] * 4) == (Answer.INCONCLUSIVE, 8)


# Bars


def test_a_table_says_what_was_met() -> None:
    table = order_of_work.Table(
        title="Blame",
        figures=[
            order_of_work.at_most(
                "few", order_of_work.Share(count=1, total=4000), 0.0005, hurried=False
            ),
            order_of_work.at_least(
                "many", order_of_work.Share(count=889, total=1000), 0.9, hurried=False
            ),
            order_of_work.beside("a peer", order_of_work.Share(count=0, total=7)),
        ],
    )

    assert str(table) == (
        "Blame\n\n"
        "figure  measured               bar\n"
        "--------------------------------------------------\n"
        "few     0.025 % (1 of 4,000)   <= 0.050 %  met\n"
        "many    88.9 % (889 of 1,000)  >= 90.0 %   NOT MET\n"
        "a peer  0.00 % (0 of 7)\n"
    )
    assert [figure.name for figure in table.missed] == ["many"]


def test_a_hurried_share_may_miss_its_bar_by_four_standard_errors() -> None:
    def hurried(count: int) -> order_of_work.Figure:
        share = order_of_work.Share(count=count, total=100)
        return order_of_work.at_least("power", share, 0.9, hurried=True)

    assert hurried(78) == order_of_work.Figure(
        name="power", measured="78.0 % (78 of 100)", bar=">= 90.0 % - 12.0 %", met=True
    )
    assert hurried(77).met is False


def test_a_bar_of_none_stays_one_however_few_were_drawn() -> None:
    share = order_of_work.Share(count=1, total=10)

    assert order_of_work.at_most("blamed", share, 0.0, hurried=True).met is False


@pytest.mark.parametrize(
    ("blamed", "code", "last"), [(0, 0, "pairs: 0 s"), (3, 1, "NOT MET: Blame: blamed")]
)
def test_the_benchmark_fails_where_a_bar_is_missed(
    blamed: int,
    code: int,
    last: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def tables(effort: Effort) -> list[order_of_work.Table]:
        share = order_of_work.Share(count=blamed, total=10)
        figure = order_of_work.at_most("blamed", share, 0.0, hurried=effort.hurried)
        return [order_of_work.Table(title="Blame", figures=[figure])]

    monkeypatch.setitem(verdicts.SECTIONS, "pairs", tables)

    found = verdicts.main(["--quick", "--only", "pairs"])

    assert found == code
    assert capsys.readouterr().out.splitlines()[-1] == last
