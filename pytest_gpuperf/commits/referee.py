"""Settles by A/B against a commit what a stored baseline does not pass."""

from __future__ import annotations

import os
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from ..baselines.store import path_of
from ..child import QUIET
from ..errors import UsageError
from ..model.baseline import Origin
from ..model.environment import DeviceKind
from ..model.environment import Hardware
from ..model.settlement import Settlement
from ..plan import Project
from ..referring import Doubt
from ..settings import RECORDED
from ..settings import Settings
from .collected import Selection
from .recorded import recording_of
from .repository import Repository
from .settling import Reference
from .settling import settled
from .version import committed


SELF: Final = "that is the code which is measured here"


class GitReferee:
    """Knows the repository of the project, if there is one."""

    def __init__(self, root: Path, settings: Settings, sides: Sequence[str]) -> None:
        """Look the reference up, if one is named; *sides* are options for both sides.

        Raises ``UsageError`` where there is no repository, or no such commit in it.
        """
        self._settings = settings
        self._sides = tuple(sides)
        self._repository: Repository | None = None
        self._origin: Origin | None = None
        try:
            self._repository = Repository.containing(root)
            self._check(self._repository)
        except UsageError as error:
            if settings.reference is not None:
                msg = f"--gpuperf-ref={settings.reference}: {error}"
                raise UsageError(msg) from None

    def _check(self, repository: Repository) -> None:
        reference = self._settings.reference
        if reference is None:
            return
        if reference != RECORDED:
            repository.commit(reference)
        here = Path.cwd().resolve()
        if not here.is_relative_to(repository.top):
            msg = f"{here} is not in {repository.top}; run pytest in the project"
            raise UsageError(msg)

    def origin(self) -> Origin | None:
        """Name HEAD; ``None`` without a repository or a commit in it."""
        if self._origin is None and self._repository is not None:
            self._origin = _head(self._repository, self._settings.baselines)
        return self._origin

    def settle(
        self,
        doubts: Sequence[Doubt],
        project: Project,
        hardware: Hardware,
        announce: Callable[[str], None],
    ) -> Mapping[str, Settlement]:
        """Compare each test with its reference; nothing where none was named."""
        repository, reference = self._repository, self._settings.reference
        if repository is None or reference is None:
            return {}
        found: dict[str, Settlement] = {}
        asked: dict[Reference, list[Doubt]] = {}
        for doubt in doubts:
            against = self._against(repository, reference, doubt, hardware)
            if isinstance(against, Settlement):
                found[doubt.call] = against
            else:
                asked.setdefault(against, []).append(doubt)
        for against, group in asked.items():
            selection = self._selection(group, project, hardware.kind)
            found |= settled(repository, against, group, selection, announce)
        return found

    def _against(
        self, repository: Repository, reference: str, doubt: Doubt, hardware: Hardware
    ) -> Reference | Settlement:
        if reference != RECORDED:
            named = committed(repository, reference)
            if self.origin() == Origin(commit=str(named.commit)):
                return Settlement(reference=named.label, commit=reference, why=SELF)
            return Reference(name=reference)
        file = _real(path_of(self._settings.baselines, hardware))
        path = os.path.relpath(file, repository.top)
        found = recording_of(repository, path, doubt.call, doubt.entry)
        if not found.commit:
            return Settlement(why=found.why)
        return Reference(name=found.commit, words=found.words, recorded=True)

    def _selection(
        self, doubts: Sequence[Doubt], project: Project, kind: DeviceKind
    ) -> Selection:
        """Name the tests by paths that git would use, which lead through no link."""
        root = str(project.rootdir)
        real = os.path.realpath(root)
        return Selection(
            arguments=(
                *QUIET,
                *(argument.replace(root, real) for argument in project.arguments),
                f"--gpuperf-device={kind.value}",
                *self._sides,
            ),
            tests=tuple(
                replace(
                    planned,
                    argument=planned.argument.replace(root, real),
                    module=planned.module.replace(root, real),
                )
                for planned in dict.fromkeys(doubt.planned for doubt in doubts)
            ),
            options=project.options,
        )


def _head(repository: Repository, baselines: Path) -> Origin | None:
    if not repository.has("HEAD"):
        return None
    dirty = repository.is_dirty(but=_real(baselines))
    return Origin(commit=repository.commit("HEAD"), dirty=dirty)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))
