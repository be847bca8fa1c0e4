"""One comparison with a commit, as the answer to each doubt that it may settle."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from typing import Final

from ..errors import UsageError
from ..model.commit_comparison import CommitComparison
from ..model.commit_comparison import Uncompared
from ..model.settlement import Settlement
from ..referring import Doubt
from .collected import Selection
from .comparing import NothingComparedError
from .comparing import compare_versions
from .preload import preload
from .repository import Repository
from .repository import short
from .version import versions


NOT_CALLED: Final = "gpuperf(step) was not called on both sides"

WORDS: Final = {"after only": "it is new since then"}
"""What the table of a comparison says, for the reader of one test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A commit to compare with, by its name, and what else is to be said of it."""

    name: str
    words: str = ""
    recorded: bool = False


def settled(
    repository: Repository,
    against: Reference,
    doubts: Sequence[Doubt],
    selection: Selection,
    announce: Callable[[str], None],
) -> dict[str, Settlement]:
    """Compare the tests of *doubts*, which *selection* names, and answer each call."""
    both = versions(repository, against.name, None)
    label = f"{both[0].label}{against.words}"
    unsettled = Settlement(
        reference=label,
        commit=short(against.name) if against.recorded else against.name,
        recorded=against.recorded,
    )
    tests = "1 test" if len(selection.tests) == 1 else f"{len(selection.tests)} tests"
    announce(f"gpuperf: A/B against {label}, for {tests} that did not pass")
    try:
        found = compare_versions(
            repository,
            both,
            selection,
            preload=preload(selection.arguments),
            announce=lambda text: announce(f"gpuperf: {text}"),
        )
    except NothingComparedError as error:
        whys = _whys(error.uncompared)
        return {d.call: replace(unsettled, why=_why(d, whys)) for d in doubts}
    except UsageError as error:
        why = _in_a_line(str(error).removeprefix(f"{both[0].label}: "))
        return {d.call: replace(unsettled, why=why) for d in doubts}
    return {d.call: _answer(d, found, unsettled) for d in doubts}


def _in_a_line(text: str) -> str:
    """Leave out all but the first line, and the last, in which python says why."""
    first, *rest = text.splitlines()
    return f"{first} ... {rest[-1].removeprefix('E').strip()}" if rest else first


def _answer(doubt: Doubt, found: CommitComparison, unsettled: Settlement) -> Settlement:
    change = next((call for call in found.calls if call.test == doubt.call), None)
    if change is None:
        return replace(unsettled, why=_why(doubt, _whys(found.uncompared)))
    if change.time is None:
        return replace(unsettled, why=change.no_time)
    return replace(unsettled, engine=found.engine, time=change.time)


def _whys(uncompared: Sequence[Uncompared]) -> dict[str, str]:
    return {found.test: WORDS.get(found.why, found.why) for found in uncompared}


def _why(doubt: Doubt, whys: Mapping[str, str]) -> str:
    """Say why *doubt* was not compared: its call alone, or all of its test."""
    return whys.get(doubt.call) or whys.get(doubt.planned.test) or NOT_CALLED
