"""What one enabled run came to, as it is left for other programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from typing import Any
from typing import Final
from typing import NamedTuple

from .environment import Hardware
from .run import Ending
from .verdict import Outcome


FILE: Final = "results.json"
"""Name of the file that holds a run's results."""

SAMPLES_FILE: Final = "samples.json"
"""Name of the file beside it that holds what its times were summed up from."""


class Record(NamedTuple):
    """What came of one measured test; a tuple, for there are many.

    ``outcome`` is the worst of its verdicts, ``None`` where nothing was judged; then
    ``ending`` says what happened and ``headline`` why, in a line. ``verdicts`` are JSON
    objects, one a call: a hundred thousand can be counted without decoding them.
    ``where`` is the file, from the rootdir, and the line that the test stands at.
    """

    ending: Ending
    outcome: Outcome | None = None
    headline: str = ""
    verdicts: tuple[Mapping[str, Any], ...] = ()
    where: str = ""

    @property
    def word(self) -> str:
        """What the test is counted as."""
        return self.outcome.value if self.outcome else self.ending.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """All of a run but its tests.

    ``commit`` is the one that was checked out, if that is known. ``hardware`` is unknown
    as long as nothing was measured, ``exit_status``, which is pytest's, until the run
    has finished. ``collected`` are the tests to measure before any was deselected,
    ``selected`` those after, ``unreported`` those that pytest lost. ``notes`` are what
    is said once for the run. The other fields are settings.
    """

    version: str
    strict: bool
    fail_on_improvement: bool
    missing_baseline: str
    commit: str | None = None
    hardware: Hardware | None = None
    exit_status: int | None = None
    collected: tuple[str, ...] = ()
    selected: tuple[str, ...] = ()
    unreported: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """One run: its head, and what came of each measured test by its node id."""

    head: Head
    tests: Mapping[str, Record] = field(default_factory=dict)

    @property
    def counts(self) -> Counter[str]:
        """Tests by what they are counted as."""
        return Counter(record.word for record in self.tests.values())
