"""Two versions of a project: which commits they are, and what they are called."""

from __future__ import annotations

from dataclasses import dataclass

from .checkout import Tree
from .checkout import trees_of
from .checkout import uninitialised
from .repository import Repository
from .repository import short


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A version and its name; without a ``commit`` it is the working tree as it stands."""

    label: str
    commit: str | None
    notes: tuple[str, ...] = ()

    def trees(self, repository: Repository, path: str) -> list[Tree]:
        """Return what must be checked out at *path* for it."""
        if self.commit is None:
            return []
        return list(trees_of(repository, self.commit, path))


def versions(
    repository: Repository, before: str | None, after: str | None
) -> tuple[Version, Version]:
    """Return the two versions that are meant, the earlier first.

    Without *after* it is the working tree, without *before* the commit at which HEAD
    left the main branch. Raises ``UsageError`` where a name is none.
    """
    if before is None:
        base, branch = repository.merge_base()
        earlier = _committed(repository, base, f"merge base with {branch}")
    else:
        earlier = committed(repository, before)
    if after is None:
        return earlier, _working_tree(repository)
    return earlier, committed(repository, after)


def committed(repository: Repository, ref: str) -> Version:
    """Return the version that *ref* names; raise ``UsageError`` where it names none."""
    return _committed(repository, repository.commit(ref), ref)


def _committed(repository: Repository, commit: str, name: str) -> Version:
    named = "" if commit.startswith(name) else f" ({short(commit)})"
    label = f"{short(commit) if not named else name}{named}"
    notes = tuple(
        f"submodule {path} is not initialised: {label} is measured without it"
        for path in uninitialised(repository, commit)
    )
    return Version(label=label, commit=commit, notes=notes)


def _working_tree(repository: Repository) -> Version:
    head, changes = repository.commit("HEAD"), repository.changes()
    state = ", uncommitted changes" if changes.anything else ""
    label = f"working tree ({short(head)}{state})"
    notes = tuple(
        f"submodule {path} is dirty: the working tree is measured as it stands, with "
        "what is changed in there"
        for path in changes.submodules
    )
    return Version(label=label, commit=None, notes=notes)
