"""What the lines of a step run, by module, line and operation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .finding import Location


Tally = tuple[int, int]
"""How often something runs in a step, and the bytes of its results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineWork:
    """What a line runs in one step for one ``module``: ``ops`` by name.

    ``location`` is the innermost line of the user's own code, ``innermost`` the innermost
    one outside of torch where that is another, and ``source`` the text of the innermost.
    Operations of a backward belong to the line of their forward. What a line runs in the
    code that it calls is apart, with ``CALLED`` for module and operation.
    """

    module: str = ""
    location: Location | None = None
    innermost: Location | None = None
    source: str = ""
    ops: Mapping[str, Tally] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many operations it runs."""
        return sum(count for count, _ in self.ops.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChange:
    """What a line runs in another number than before: operations before and after.

    ``added_bytes`` are those of their results. It ``is_new`` if it ran nothing before.
    """

    module: str
    location: Location | None
    innermost: Location | None
    source: str
    is_new: bool
    ops: Mapping[str, tuple[int, int]]
    added_bytes: int

    @property
    def added(self) -> int:
        """How many operations it runs more than before."""
        return sum(after - before for before, after in self.ops.values())
