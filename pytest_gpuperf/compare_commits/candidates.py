"""What is searched for a first bad one: commits, or releases of a package."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ..environments.cache import PackageCache
from ..environments.overlay import PackageChange
from ..environments.overlay import overlay
from ..errors import ErrorId
from ..errors import UsageError
from ..runner.git import Repository
from .commits import Announce
from .sides import Side
from .sides import committed


class Commits:
    """The commits from *good* to *bad*, each in a checkout of its own.

    ``parents`` are candidates, oldest first, with those they came directly from; the last
    one seems to be bad. All are compared with ``good``. ``ends`` are the names of both.
    """

    what = "commit"

    def __init__(self, repository: Repository, good: str, bad: str) -> None:
        """Raises ``UsageError`` if *bad* does not come from *good*."""
        self._repository = repository
        self.good = committed(repository, good)
        first, last = str(self.good.commit), repository.commit(bad)
        if not repository.is_ancestor(first, last):
            msg = (
                f"{self.good.label} is not an ancestor of {bad}: expected GOOD BAD, where "
                "BAD is a later commit on top of GOOD"
            )
            raise UsageError(msg, ErrorId.GP711)
        self.ends = (self.good.label, bad)
        self.parents = repository.between(first, last) or {last: ()}

    def side(self, version: str) -> Side:
        return committed(self._repository, version)

    def named(self, version: str) -> str:
        return self._repository.described(version)


class Releases:
    """*versions* of *package*, the good one first, each beside what is *here* otherwise.

    Its names mean what those of ``Commits`` do.
    """

    what = "release"

    def __init__(
        self,
        here: Side,
        package: str,
        versions: Sequence[str],
        cache: PackageCache,
        announce: Announce,
    ) -> None:
        """Raises ``UsageError`` if the first of *versions* cannot be installed."""
        self._here, self._package = here, package
        self._cache, self._announce = cache, announce
        self.good = self.side(versions[0])
        self.ends = (self.named(versions[0]), self.named(versions[-1]))
        self.parents = {newer: (older,) for older, newer in pairwise(versions)}

    def side(self, version: str) -> Side:
        change = PackageChange(requirements=(self.named(version),))
        return self._here.with_packages(overlay(change, self._cache, self._announce))

    def named(self, version: str) -> str:
        return f"{self._package}=={version}"


Candidates = Commits | Releases
