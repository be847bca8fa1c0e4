"""Settles candidates of a stored baseline by an A/B comparison with a commit."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from functools import cache
from functools import lru_cache
from functools import partial
from pathlib import Path
from typing import Any
from typing import Final

from ..baselines.store import path_of
from ..errors import ErrorId
from ..errors import UsageError
from ..model.ab import AbRun
from ..model.ab import ReferenceResult
from ..model.baseline import Entry
from ..model.baseline import Origin
from ..model.environment import DeviceKind
from ..model.environment import Hardware
from ..model.finding import Finding
from ..model.finding import Location
from ..model.units import counted
from ..runner.git import Repository
from ..runner.git import short
from ..runner.request import Project
from ..runner.verdicts import Candidate
from ..settings import RECORDED
from ..settings import Referred
from ..settings import Settings
from ..worker.child import CHILD_OPTIONS
from .commits import run_ab
from .side_server import Selection
from .sides import committed
from .sides import versions
from .slow_lines import with_changes


# The commit with the code that a baseline was recorded on.
#
# A baseline names the commit that was checked out when it was measured. That is its
# code only if nothing had been changed since, and a squashed branch leaves no such
# commit. Otherwise the commit that brought the baseline into the repository has its
# code: the two are committed together.

COMMIT_OR_NAME: Final = (
    "commit it with the code it is of, or name a commit: --gpuperf-ref=REF"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A commit to compare with, and what it did in ``words``; or ``why`` there is none.

    The flags are those of a ``ReferenceResult``.
    """

    commit: str = ""
    words: str = ""
    why: str = ""
    recorded: bool = False
    unasked: bool = False


def recording_of(
    repository: Repository, path: str, call: str, entry: Entry | None
) -> Reference:
    """Find the code of *entry*, the baseline of *call* in the file at *path*."""
    if entry is None:
        return Reference(why="it has no baseline, so no commit recorded one")
    origin = entry.origin
    if origin and not origin.dirty and repository.has(origin.commit):
        words = ", where its baseline was recorded"
        return Reference(commit=origin.commit, words=words, recorded=True)
    stored = commit_that_stored(repository, path, call)
    if stored is None:
        return Reference(why=f"{_unknown(origin)}: {COMMIT_OR_NAME}")
    if repository.is_cut_off(stored):
        deepen = repository.deepen("its history is cut off")
        return Reference(why=f"{_lost(origin)}{deepen}")
    words = f", which stored its baseline{_dirt(origin)}"
    return Reference(commit=stored, words=words, recorded=True)


def commit_that_stored(repository: Repository, path: str, call: str) -> str | None:
    """Return the commit that gave *call* the baseline it has in the file at *path*.

    ``None`` if no commit has what the file says now.
    """
    file = Path(repository.top, path)
    now, found = _entries(file.read_text(encoding="utf-8")).get(call), None
    # From the newest to the oldest: the last one that still has today's baseline has
    # stored it.
    for commit in repository.commits_of(path):
        if _entries_at(repository, commit, path).get(call) != now:
            break
        found = commit
    return found


@lru_cache(maxsize=64)
def _entries_at(repository: Repository, commit: str, path: str) -> dict[str, Any]:
    return _entries(repository.text_at(commit, path) or "")


def _entries(text: str) -> dict[str, Any]:
    """Return what a file says of each test; nothing if it is no baseline file."""
    try:
        entries = json.loads(text)["tests"]
    except (ValueError, KeyError, TypeError):
        return {}
    return entries if isinstance(entries, dict) else {}


def _unknown(origin: Origin | None) -> str:
    if origin is None:
        return "its baseline names no commit, and is in none"
    if origin.dirty:
        return (
            f"its baseline was recorded from uncommitted changes on top of "
            f"{short(origin.commit)}, and is in no commit"
        )
    return (
        f"its baseline was recorded at {short(origin.commit)}, which is not here, and is "
        "in no commit"
    )


def _lost(origin: Origin | None) -> str:
    if origin is None or origin.dirty:
        return "the commit that stored its baseline is not here"
    return f"its baseline was recorded at {short(origin.commit)}, which is not here"


def _dirt(origin: Origin | None) -> str:
    if origin is None or not origin.dirty:
        return ""
    return f", recorded from uncommitted changes on top of {short(origin.commit)}"


# One comparison with a commit, as the answer to each candidate that it may settle.

NOT_CALLED: Final = "gpuperf(step) was not called on both sides"

SIDE_WORDS: Final = {"after only": "it is new since then"}
"""What the table of a comparison says, for the reader of one test."""


def settled(
    repository: Repository,
    against: Reference,
    candidates: Sequence[Candidate],
    selection: Selection,
    announce: Callable[[str], None],
) -> dict[str, ReferenceResult]:
    """Compare the tests of *candidates*, which *selection* names, and answer each call."""
    both = versions(repository, against.commit, None)
    label = f"{both[0].label}{against.words}"
    unsettled = ReferenceResult(
        reference=label,
        commit=short(against.commit) if against.recorded else against.commit,
        recorded=against.recorded,
        unasked=against.unasked,
    )
    announce(f"gpuperf: A/B against {label}, for {_tests(selection, against)}")
    try:
        found = run_ab(both, selection, lambda text: announce(f"gpuperf: {text}"))
    except UsageError as error:
        why = _in_a_line(str(error).removeprefix(f"{both[0].label}: "))
        return {d.call: replace(unsettled, why=why) for d in candidates}
    return {d.call: _answer(d, found, unsettled) for d in candidates}


def _tests(selection: Selection, against: Reference) -> str:
    tests = counted(len(selection.tests), "test")
    if not against.unasked:
        return f"{tests} that did not pass"
    return f"{tests} with a time that stored runs cannot decide (--gpuperf-ref=none: no A/B)"


def _in_a_line(text: str) -> str:
    """Leave out all but the first line, and the last, in which python says why."""
    first, *rest = text.splitlines()
    return f"{first} ... {rest[-1].removeprefix('E').strip()}" if rest else first


def _answer(
    candidate: Candidate, found: AbRun, unsettled: ReferenceResult
) -> ReferenceResult:
    change = next((call for call in found.calls if call.test == candidate.call), None)
    if change is None:
        whys = {each.test: each.uncompared for each in found.uncompared}
        # Its call alone was not compared, or all of its test.
        why = whys.get(candidate.call) or whys.get(candidate.planned.test) or NOT_CALLED
        return replace(unsettled, why=SIDE_WORDS.get(why, why))
    if change.time is None:
        return replace(unsettled, why=change.no_time)
    return replace(unsettled, engine=found.engine, time=change.time)


SELF: Final = "that is the code which is measured here"


class GitReferenceCheck:
    """Knows the repository of the project, if there is one."""

    def __init__(self, root: Path, settings: Settings, sides: Sequence[str]) -> None:
        """Look the reference up, if one is named; *sides* are options for both sides.

        Raises ``UsageError`` if there is no repository, or no such commit in it.
        """
        self._root = root
        self._settings = settings
        self._reference = settings.reference
        self._is_asked = settings.referred is Referred.NOT_PASSED
        self._sides = tuple(sides)
        self._repository: Repository | None = None
        self._origin: Origin | None = None
        try:
            self._repository = Repository.containing(root)
            self._check(self._repository)
        except UsageError as error:
            # Without a repository a run is still fine, as long as no reference was
            # asked for.
            self._reference = None
            if settings.reference is not None and self._is_asked:
                msg = f"--gpuperf-ref={settings.reference}: {error.text}"
                raise UsageError(msg, error.error_id) from None

    def _check(self, repository: Repository) -> None:
        reference = self._settings.reference
        if reference is None:
            return
        if reference != RECORDED:
            repository.commit(reference)
        here = Path.cwd().resolve()
        if not here.is_relative_to(repository.top):
            msg = f"{here} is not in {repository.top}; run pytest in the project"
            raise UsageError(msg, ErrorId.GP701)

    def origin(self) -> Origin | None:
        """Name HEAD; ``None`` without a repository or a commit in it."""
        if self._origin is None and self._repository is not None:
            self._origin = _head(self._repository, self._settings.baselines)
        return self._origin

    def settle(
        self,
        candidates: Sequence[Candidate],
        project: Project,
        hardware: Hardware,
        announce: Callable[[str], None],
    ) -> Mapping[str, ReferenceResult]:
        """Compare each test with its reference; nothing if none was named."""
        repository, reference = self._repository, self._reference
        if repository is None or reference is None:
            return {}
        found: dict[str, ReferenceResult] = {}
        asked: dict[Reference, list[Candidate]] = {}
        for candidate in candidates:
            against = self._against(repository, reference, candidate, hardware)
            if against.why:
                found[candidate.call] = ReferenceResult(
                    reference=against.words,
                    commit=against.commit,
                    why=against.why,
                    unasked=against.unasked,
                )
            else:
                asked.setdefault(against, []).append(candidate)
        for against, group in asked.items():
            selection = self._selection(group, project, hardware.kind)
            found |= settled(repository, against, group, selection, announce)
        return found

    def _against(
        self,
        repository: Repository,
        reference: str,
        candidate: Candidate,
        hardware: Hardware,
    ) -> Reference:
        if reference == RECORDED:
            call, entry = candidate.call, candidate.entry
            found = self._recording(repository, call, entry, hardware)
            return replace(found, unasked=not self._is_asked)
        named = committed(repository, reference)
        if self.origin() == Origin(commit=str(named.commit)):
            return Reference(commit=reference, words=named.label, why=SELF)
        return Reference(commit=reference)

    def _recording(
        self, repository: Repository, call: str, entry: Entry | None, hardware: Hardware
    ) -> Reference:
        file = _real(path_of(self._settings.baselines, hardware))
        path = os.path.relpath(file, repository.top)
        return recording_of(repository, path, call, entry)

    def with_changes(
        self,
        findings: Sequence[Finding],
        call: str,
        entry: Entry | None,
        hardware: Hardware,
    ) -> tuple[Finding, ...]:
        """Ask git about the lines; nothing is said if it does not know that code."""
        repository = self._repository
        if repository is None or entry is None or not findings:
            return tuple(findings)
        commit = self._recording(repository, call, entry, hardware).commit
        if not commit:
            return tuple(findings)
        changed = cache(partial(repository.changed_lines, commit))

        def is_changed(at: Location) -> bool:
            return at.line in changed(_path_in(repository, self._root, at.file))

        return with_changes(findings, is_changed, short(commit))

    def _selection(
        self, candidates: Sequence[Candidate], project: Project, kind: DeviceKind
    ) -> Selection:
        """Name the tests by the paths that git would use, without links."""
        root = str(project.rootdir)
        real = os.path.realpath(root)
        planned = dict.fromkeys(candidate.planned for candidate in candidates)
        named = Selection(arguments=project.arguments, tests=tuple(planned))
        moved = named.moved(lambda text: text.replace(root, real))
        options = (f"--gpuperf-device={kind.value}", *self._sides)
        return replace(
            moved,
            arguments=(*CHILD_OPTIONS, *moved.arguments, *options),
            options=project.options,
        )


def _path_in(repository: Repository, root: Path, file: str) -> str:
    """Return the path by which git knows *file*, named from *root* on."""
    return os.path.relpath(_real(root / file), repository.top)


def _head(repository: Repository, baselines: Path) -> Origin | None:
    if not repository.has("HEAD"):
        return None
    dirty = repository.is_dirty(but=_real(baselines))
    return Origin(commit=repository.commit("HEAD"), dirty=dirty)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))
