"""Bars of the stored baseline on synthetic GPUs: blame, power, cost, and targets."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from datetime import datetime
from datetime import timedelta
from datetime import timezone
from functools import partial
from typing import Final

import numpy as np
from effort import Effort
from effort import say
from figures import Figure
from figures import Share
from figures import Table
from figures import at_least
from figures import at_most
from figures import beside
from figures import changed
from noise_profiles import BOOST
from noise_profiles import LOCKED
from noise_profiles import PROFILES
from noise_profiles import SHARED
from noise_profiles import Draw
from noise_profiles import Profile
from noise_profiles import draws
from order_of_work import Tally
from order_of_work import distributions
from order_of_work import gate_one
from order_of_work import kept
from order_of_work import measured
from order_of_work import slowed
from peers import PEERS
from peers import Peer
from targets import STORED
from targets import against

from pytest_gpuperf.judge.context import Sentinels
from pytest_gpuperf.model.baseline import occasion_id
from pytest_gpuperf.model.environment import DeviceKind


FALSE_BAR: Final = 0.0005
POWER_BARS: Final = {LOCKED.name: 0.9999, BOOST.name: 0.9}
"""100 % and 90 %; the 100 is meant to a hundredth of a percent, in 200,000 draws."""

RUNS_BAR: Final = 1.4

SLOWDOWNS: Final = (0.0, 0.02, 0.03, 0.05, 0.10, -0.05)
POWER_AT: Final = 0.05
SHOWN_TO_PEERS: Final = (0.0, POWER_AT)

FIRST_DAY: Final = datetime(2026, 1, 1, tzinfo=timezone.utc)

_SEEDS: Final = {LOCKED.name: 11, BOOST.name: 12, SHARED.name: 13}


@dataclass(slots=True)
class Blame:
    """How many of so many tests a peer blamed."""

    blamed: int = 0
    total: int = 0

    @property
    def share(self) -> Share:
        return Share(count=self.blamed, total=self.total)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What became of one profile's tests, by slowdown, and by peer and slowdown.

    ``ours`` are judged by the spread from run to run alone, as on devices of which no
    shift between occasions is assumed, ``on_cuda`` with each stored run of its own day.
    """

    ours: dict[float, Tally] = field(
        default_factory=lambda: {slowdown: Tally() for slowdown in SLOWDOWNS}
    )
    on_cuda: dict[float, Tally] = field(
        default_factory=lambda: {slowdown: Tally() for slowdown in SHOWN_TO_PEERS}
    )
    theirs: dict[tuple[Peer, float], Blame] = field(
        default_factory=lambda: {
            (peer, slowdown): Blame() for peer in PEERS for slowdown in SHOWN_TO_PEERS
        }
    )


def tables(effort: Effort) -> list[Table]:
    found = {profile.name: _judge_profile(profile, effort) for profile in PROFILES}
    return [
        _blame_table(found, effort),
        _power_table(found, effort),
        _cost_table(found),
        _target_table(found),
    ]


def _judge_profile(profile: Profile, effort: Effort) -> Found:
    found = Found()
    random = np.random.default_rng(_SEEDS[profile.name])
    done = 0
    for draw in draws(profile, effort.unchanged, random):
        _judge_draw(draw, found, slowdowns=_slowdowns(done, effort))
        if done < effort.peers:
            _show_to_peers(draw, found)
        done += len(draw.stored)
        if done % 20_000 == 0:
            say(f"stored, {profile.name}: {done:,} of {effort.unchanged:,} tests")
    return found


def _slowdowns(done: int, effort: Effort) -> Sequence[float]:
    if done < effort.slowed:
        return SLOWDOWNS
    return (0.0, POWER_AT) if done < effort.power else (0.0,)


def _judge_draw(draw: Draw, found: Found, *, slowdowns: Sequence[float]) -> None:
    tests, stored_runs, _ = draw.stored.shape
    fresh_runs = draw.fresh.shape[1]
    stored, fresh = distributions(draw.stored), distributions(draw.fresh)
    for test in range(tests):
        baseline = [
            kept(times, occasion_id(FIRST_DAY + timedelta(days=day), "0000"))
            for day, times in enumerate(
                stored[test * stored_runs : (test + 1) * stored_runs]
            )
        ]
        runs = fresh[test * fresh_runs : (test + 1) * fresh_runs]
        witness = partial(
            _sentinels,
            tuple(draw.stored_sentinels[test].tolist()),
            tuple(draw.fresh_sentinels[test].tolist()),
        )
        for slowdown in slowdowns:
            slow = [slowed(times, slowdown) for times in runs]
            steady = [measured(times, DeviceKind.SCRIPTED) for times in slow]
            found.ours[slowdown].add(*gate_one(baseline, steady, witness))
            if slowdown in found.on_cuda:
                shifting = [measured(times, DeviceKind.CUDA) for times in slow]
                found.on_cuda[slowdown].add(*gate_one(baseline, shifting, witness))


def _sentinels(
    stored: tuple[float, ...], fresh: tuple[float, ...], runs: int
) -> Sentinels:
    return Sentinels(fresh=fresh[:runs], stored=stored)


def _show_to_peers(draw: Draw, found: Found) -> None:
    for (peer, slowdown), blame in found.theirs.items():
        blamed = peer.blames(draw.stored, draw.fresh * (1 + slowdown))
        blame.blamed += int(blamed.sum())
        blame.total += len(blamed)


def _blame_table(found: Mapping[str, Found], effort: Effort) -> Table:
    figures = [
        at_most(
            f"{name}: gpuperf",
            of.ours[0.0].regressed,
            FALSE_BAR,
            hurried=effort.hurried,
        )
        for name, of in found.items()
    ]
    on_cuda = [
        at_most(
            f"{name}: gpuperf, days apart",
            of.on_cuda[0.0].regressed,
            FALSE_BAR,
            hurried=effort.hurried,
        )
        for name, of in found.items()
    ]
    return Table(
        title="Stored baseline, nothing changed: tests that fail",
        figures=[*figures, *on_cuda, *_peer_figures(found, 0.0)],
    )


def _power_table(found: Mapping[str, Found], effort: Effort) -> Table:
    figures = [
        at_least(
            f"{name}: gpuperf",
            of.ours[POWER_AT].regressed,
            POWER_BARS[name],
            hurried=effort.hurried,
        )
        if name in POWER_BARS
        else beside(f"{name}: gpuperf", of.ours[POWER_AT].regressed)
        for name, of in found.items()
    ]
    on_cuda = [
        beside(f"{name}: gpuperf, days apart", of.on_cuda[POWER_AT].regressed)
        for name, of in found.items()
    ]
    return Table(
        title="Stored baseline, 5 % slower: tests that fail",
        figures=[*figures, *on_cuda, *_peer_figures(found, POWER_AT)],
    )


def _peer_figures(found: Mapping[str, Found], slowdown: float) -> list[Figure]:
    return [
        beside(f"{name}: {peer.name}", of.theirs[peer, slowdown].share)
        for name, of in found.items()
        for peer in PEERS
    ]


def _cost_table(found: Mapping[str, Found]) -> Table:
    figures = []
    for name, of in found.items():
        mean = of.ours[0.0].mean_units
        barred = name == BOOST.name
        figures.append(
            Figure(
                name=name,
                measured=f"{mean:.2f} runs",
                bar=f"<= {RUNS_BAR} runs" if barred else "",
                met=mean <= RUNS_BAR if barred else None,
            )
        )
    return Table(
        title="Stored baseline, nothing changed: fresh runs a test", figures=figures
    )


def _target_table(found: Mapping[str, Found]) -> Table:
    return Table(
        title="Stored baseline against its targets, within 4 standard errors: "
        "% pass, regressed, improved, inconclusive; runs",
        figures=[
            against(
                f"{name} {changed(slowdown)}",
                target,
                found[name].ours[slowdown],
                "runs",
            )
            for (name, slowdown), target in STORED.items()
        ],
    )
