"""What one side says of itself before anything is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field

from ..model.budget import Tolerance
from ..model.environment import Environment
from ..model.seat import Seat
from ..plan import Planned
from ..runs.relocation import Relocation
from ..settings import Isolation


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What both sides are to collect: what pytest selects with ``arguments``.

    If ``tests`` are named, these alone, as far as a side has them. ``options`` are
    values of options as a ``RunRequest`` has them.
    """

    arguments: tuple[str, ...]
    tests: tuple[Planned, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectRequest:
    """Asks for the tests of *selection* in *directory*."""

    relocation: Relocation
    directory: str
    selection: Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The measured tests of a side, its settings, and how a child must be started.

    ``can_share`` says that its device, at ``seat``, can time both versions in one
    process. ``lock_seconds`` is how long it is waited for.
    """

    plan: tuple[Planned, ...]
    rootdir: str
    directory: str
    search_path: tuple[str, ...]
    arguments: tuple[str, ...]
    options: Mapping[str, object]
    environment: Environment
    isolation: Isolation
    tolerance: Tolerance
    seconds: float
    script: str | None
    can_share: bool
    seat: Seat
    lock_seconds: float
    pretend_gib: float
