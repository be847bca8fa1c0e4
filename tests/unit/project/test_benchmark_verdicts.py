"""The benchmark of the judge: its noise, its peers, its bars, and whom it asks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from builders import a_distribution, an_entry

from pytest_gpuperf.model.ab import Answer
from pytest_gpuperf.model.baseline import RunSummary
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.measurement import Measurement
from pytest_gpuperf.model.verdict import Outcome


sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

import noise
import order_of_work
import verdicts
from order_of_work import Effort


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


# Noise


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


# The product's judge


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
