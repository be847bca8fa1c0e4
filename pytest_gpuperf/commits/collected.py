"""What one side says of itself before anything is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..model.budget import Tolerance
from ..model.environment import Environment
from ..plan import Planned
from ..runs.relocation import Relocation
from ..settings import Isolation


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectRequest:
    """Asks for the tests that pytest with *arguments* selects in *directory*."""

    relocation: Relocation
    directory: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """The measured tests of a side, its settings, and how a child must be started.

    ``can_share`` says that its device can time both versions in one process.
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
