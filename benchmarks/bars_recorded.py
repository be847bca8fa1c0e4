"""Bars of the stored baseline on recorded CPU noise, quiet and mixed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np
from noise import (
    WORKLOADS,
    Choice,
    Processes,
    choose,
    choose_in_a_row,
    pair_differences,
    processes,
)
from order_of_work import (
    PEERS,
    Effort,
    Figure,
    Peer,
    Share,
    Table,
    Tally,
    at_least,
    at_most,
    beside,
    changed,
    compare_pairs,
    distributions,
    gate_one,
    kept,
    measured,
    say,
    slowed,
)

from pytest_gpuperf.model.ab import Answer
from pytest_gpuperf.model.environment import DeviceKind


QUIET_FALSE_BAR: Final = 0.0
QUIET_POWER_BAR: Final = 0.8
MIXED_FALSE_BAR: Final = 0.001

SLOWDOWNS: Final = (0.0, 0.03, 0.05, 0.10)

MOST_FRESH: Final = 8
"""Five clean runs, and three that make up for disturbed ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Which processes are stored and fresh; no disturbed one is stored."""

    name: str
    seed: int
    quiet: bool
    spread: bool

    @property
    def fresh(self) -> int:
        return 5 if self.quiet else MOST_FRESH


QUIET: Final = Setting(
    name="quiet, one after the other", seed=21, quiet=True, spread=False
)
SPREAD: Final = Setting(name="mixed, spread in time", seed=23, quiet=False, spread=True)
CONSECUTIVE: Final = Setting(
    name="mixed, one after the other", seed=24, quiet=False, spread=False
)
SETTINGS: Final = (QUIET, SPREAD, CONSECUTIVE)

SHOWN_TO_PEERS: Final = (QUIET, SPREAD)
PEERS_SEE: Final = (0.0, 0.05)

AT_ONCE: Final = 1000

IN_A_ROW_SEED: Final = 29

MOST_PAIRS: Final = 8
PAIRS_SEED: Final = 41
PAIRS_FALSE_BAR: Final = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What became of a setting's tests: by workload and slowdown, and by peer."""

    ours: Mapping[tuple[str, float], Tally]
    theirs: Mapping[tuple[Peer, float], Share]

    def all_workloads(self, slowdown: float) -> Tally:
        whole = Tally()
        for workload in WORKLOADS:
            whole.join(self.ours[workload, slowdown])
        return whole


def tables(effort: Effort) -> list[Table]:
    found = {}
    for setting in SETTINGS:
        say(f"recorded, {setting.name}")
        found[setting] = _judge_setting(setting, effort)
    return [
        _blame_table(found, effort),
        _power_table(found, effort),
        _in_a_row_table(effort),
    ]


def _judge_setting(setting: Setting, effort: Effort) -> Found:
    ours: dict[tuple[str, float], Tally] = {}
    theirs: dict[tuple[Peer, float], Share] = defaultdict(Share)
    random = np.random.default_rng(setting.seed)
    for workload in WORKLOADS:
        source = processes(workload, quiet=setting.quiet)
        choice = choose(
            source,
            effort.recorded,
            random,
            fresh=setting.fresh,
            spread=setting.spread,
        )
        for slowdown in SLOWDOWNS:
            some = choice.first(effort.recorded // 4) if slowdown else choice
            ours[workload, slowdown] = _gated(source, some, slowdown)
        for peer, slowdown in product(PEERS, PEERS_SEE):
            if setting in SHOWN_TO_PEERS:
                share = _shown(peer, source, choice.first(effort.peers), slowdown)
                theirs[peer, slowdown] += share
    return Found(ours=ours, theirs=theirs)


def _in_a_row_table(effort: Effort) -> Table:
    """Judge a refresh at one time by a gate at another, as days differ."""
    random = np.random.default_rng(IN_A_ROW_SEED)
    figures = []
    for workload in WORKLOADS:
        source = processes(workload, quiet=False)
        choice = choose_in_a_row(source, effort.recorded // 4, random, fresh=MOST_FRESH)
        ends = _gated(source, choice, 0.0)
        figures.append(beside(workload, ends.regressed))
    return Table(
        title="Recorded noise, a refresh in a row and a gate at another time, nothing "
        "changed: tests that fail",
        figures=figures,
    )


def _gated(source: Processes, choice: Choice, slowdown: float) -> Tally:
    stored = [kept(times) for times in distributions(source.early)]
    fresh = [
        measured(
            slowed(times, slowdown),
            DeviceKind.CPU,
            clean=bool(clean),
        )
        for times, clean in zip(distributions(source.late), source.clean, strict=True)
    ]
    tally = Tally()
    for then, now in zip(choice.stored.tolist(), choice.fresh.tolist(), strict=True):
        tally.add(*gate_one([stored[i] for i in then], [fresh[i] for i in now]))
    return tally


def _shown(peer: Peer, source: Processes, choice: Choice, slowdown: float) -> Share:
    blamed, total = 0, len(choice.stored)
    for start in range(0, total, AT_ONCE):
        rows = slice(start, start + AT_ONCE)
        stored = source.early[choice.stored[rows]]
        fresh = source.late[choice.fresh[rows]] * (1 + slowdown)
        blamed += int(peer.blames(stored, fresh).sum())
    return Share(count=blamed, total=total)


def _blame_table(found: Mapping[Setting, Found], effort: Effort) -> Table:
    bars = {QUIET: QUIET_FALSE_BAR, SPREAD: MIXED_FALSE_BAR}
    figures: list[Figure] = []
    for setting, of in found.items():
        share = of.all_workloads(0.0).regressed
        name = f"{setting.name}: gpuperf"
        if setting in bars:
            bar = bars[setting]
            figures.append(at_most(name, share, bar, hurried=effort.hurried))
        else:
            figures.append(beside(name, share))
    return Table(
        title="Recorded noise, nothing changed: tests that fail",
        figures=[*figures, *_peer_figures(found, 0.0)],
    )


def _power_table(found: Mapping[Setting, Found], effort: Effort) -> Table:
    figures: list[Figure] = []
    for setting, of in found.items():
        for slowdown in SLOWDOWNS[1:]:
            share = of.all_workloads(slowdown).regressed
            name = f"{setting.name}: gpuperf, {changed(slowdown)}"
            if setting.quiet and slowdown == 0.05:
                bar = QUIET_POWER_BAR
                figures.append(at_least(name, share, bar, hurried=effort.hurried))
            else:
                figures.append(beside(name, share))
    return Table(
        title="Recorded noise, slower: tests that fail (peers at +5 %)",
        figures=[*figures, *_peer_figures(found, 0.05)],
    )


def _peer_figures(found: Mapping[Setting, Found], slowdown: float) -> list[Figure]:
    return [
        beside(f"{setting.name}: {peer.name}", of.theirs[peer, slowdown])
        for setting, of in found.items()
        if setting in SHOWN_TO_PEERS
        for peer in PEERS
    ]


# Pairs of processes, as ``gpuperf ab`` judges them.


def tables_of_pairs(effort: Effort) -> list[Table]:
    say("pairs")
    random = np.random.default_rng(PAIRS_SEED)
    figures: list[Figure] = []
    whole = Tally()
    for workload, found in pair_differences().items():
        tally = Tally()
        for _ in range(effort.pairs):
            drawn = random.choice(found, MOST_PAIRS, replace=False)
            tally.add(*compare_pairs(drawn * random.choice((-1, 1))))
        figures.append(beside(f"{workload}, slower or faster", _called(tally)))
        whole.join(tally)
    called, bar = _called(whole), PAIRS_FALSE_BAR
    figures.append(
        at_most("all, slower or faster", called, bar, hurried=effort.hurried)
    )
    return [
        Table(
            title="Pairs of processes that run the same step, drawn from 62 recorded",
            figures=figures,
        )
    ]


def _called(tally: Tally) -> Share:
    called = tally.slower.count + tally.share(Answer.FASTER).count
    return Share(count=called, total=tally.slower.total)
