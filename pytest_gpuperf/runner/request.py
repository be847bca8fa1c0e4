"""The plan of a run: the tests to measure, and what a measuring process is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from ..model.budget import Ranks
from ..model.environment import DeviceKind
from ..model.run import RunMode
from ..settings import Isolation, Settings
from .screening import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A selected test: its node id, the argument that selects it, its module, its ranks.

    ``params`` are those of its parametrization, by name, for other programs. ``where`` is
    its line, from the rootdir. A test that ``may_fail`` is an expected failure.
    """

    test: str
    argument: str
    module: str
    ranks: Ranks | None = None
    params: Mapping[str, object] = field(default_factory=dict, hash=False)
    where: str = ""
    may_fail: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """Where the tests are and how a child must be started to find them.

    ``arguments`` are pytest's. ``options`` are values that the command line of the
    controlling process gave to options of conftest files and other plugins. The project
    is in ``directory``, below pytest's ``rootdir``.
    """

    rootdir: Path = Path()
    directory: str = ""
    search_path: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """One run: the *tests* of a project to measure in one fresh process.

    ``number`` counts this session's runs of these tests from 0; with the seed of the
    ``settings`` it says what random numbers they draw. ``visible`` is the GPU that it may
    see, if it may not see all that this process does. ``ranks`` execute it together, those
    of the settings' launch where torchrun started them, and rank 0 has taken ``locks``
    meanwhile; ``names`` are the tests' node ids, where somebody must know them before they
    are collected. ``stored`` names by call the exact metrics that its baseline has: they
    are measured beyond the cap. ``round_steps`` has by call the steps per round of the
    runs it is compared with. ``timed`` are calls of which nothing but times is asked: what
    else there is to know of them is known.
    """

    tests: tuple[str, ...]
    device: DeviceKind
    project: Project = field(default_factory=Project)
    settings: Settings = field(default_factory=Settings)
    number: int = 0
    mode: RunMode = RunMode.MEASURE
    visible: str | None = None
    ranks: Ranks | None = None
    locks: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    stored: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    round_steps: Mapping[str, int] = field(default_factory=dict)
    timed: tuple[str, ...] = ()


def groups_of(plan: Sequence[Planned], isolation: Isolation) -> list[Group]:
    """Return the tests that share a fresh process, in the order of *plan*.

    One on several ranks shares them with none.
    """
    if isolation is Isolation.TEST:
        return [(planned.test,) for planned in plan]
    return [
        tuple(planned.test for planned in together)
        for _, together in groupby(plan, key=_shared)
    ]


def _shared(planned: Planned) -> tuple[str, str]:
    return planned.module, planned.test if planned.ranks else ""


def repeated_options(settings: Settings, kind: DeviceKind) -> tuple[str, ...]:
    """Options that a command must repeat to measure what this run measured on *kind*."""
    return (f"--gpuperf-device={kind.value}", *settings.repeated)
