"""The plan of a run: the tests to measure, and how a measuring process finds them."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from itertools import groupby
from pathlib import Path

from ..model.environment import DeviceKind
from ..model.ranks import Ranks
from ..settings import Isolation
from ..settings import Settings
from .screening import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A selected test: its node id, the argument that selects it, its module, its ranks.

    ``params`` are those of its parametrization, by name, for other programs. ``where`` is
    its line, from the rootdir. A test that ``may_fail`` is an expected
    failure.
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
    """Where the tests are and how a child must be started to find them."""

    rootdir: Path
    directory: str
    search_path: tuple[str, ...]
    arguments: tuple[str, ...]
    options: Mapping[str, object]


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


def shown_path(path: Path, root: Path) -> str:
    """*path* from *root* on, as node ids are, or whole if it is elsewhere."""
    inside = path.is_relative_to(root)
    return path.relative_to(root).as_posix() if inside else str(path)
