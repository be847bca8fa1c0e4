"""The result of one enabled run, as other programs read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from .environment import Hardware
from .measurement import Samples
from .run import Ending
from .verdict import Outcome


# Facts that no verdict reports, and that a run must still show.


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """Tests, by name, that a green run would hide.

    ``lost`` were selected, and pytest never reported their verdicts. ``silenced`` failed,
    and something else reported them otherwise. ``unmeasured`` are stored calls of tests
    that passed without making them; whether that fails the run is ``is_strict``.
    """

    lost: tuple[str, ...] = ()
    silenced: tuple[str, ...] = ()
    unmeasured: tuple[str, ...] = ()
    is_strict: bool = False

    @property
    def fails(self) -> bool:
        """Whether the run fails for it, whatever its tests did."""
        return bool(self.lost or self.silenced or (self.unmeasured and self.is_strict))


NOTHING_SEEN: Unseen = Unseen()


RESULTS_NAME: Final = "results.json"
"""Name of the file with a run's results."""


class Record(NamedTuple):
    """What came of one measured test; a tuple, for there are many.

    ``outcome`` is the worst of its verdicts, ``None`` if nothing was judged; then
    ``ending`` says what happened and ``headline`` why, in a line. ``verdicts`` are JSON
    objects, one a call: a hundred thousand can be counted without decoding them.
    ``where`` is the file, from the rootdir, and the line of the test. ``samples`` are by
    call what each run read of its times.
    """

    ending: Ending
    outcome: Outcome | None = None
    headline: str = ""
    verdicts: tuple[Mapping[str, Any], ...] = ()
    where: str = ""
    samples: Mapping[str, tuple[Samples, ...]] = {}

    @property
    def word(self) -> str:
        """What the test is counted as."""
        if self.ending is Ending.WARNED or self.outcome is None:
            return self.ending.value
        return self.outcome.value


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
    missing_baseline: str
    seed: int | None = None
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
