"""Which of the packages that changed did it, one of them or several together.

That is, made tests worse, or train otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

from ..environments.lock_files import Pins
from ..errors import UsageError
from ..model.ab import AbRun
from ..model.metric import counted
from .commits import Announce
from .search import TRAINING, Changes, Mark, Worse, marked, smallest_bad, worse_of


Compare = Callable[[tuple[str, ...]], AbRun]
"""Compares the old packages with these, by those tests that got worse or differ.

Raises ``UsageError`` if they do not fit together, as the installer knows.
"""


class Culprits:
    """Applies some of the changes on top of the old packages, until those are left that
    do what all of them do.
    """

    def __init__(
        self,
        found: AbRun,
        pins: tuple[Pins, Pins],
        compare: Compare,
        announce: Announce,
    ) -> None:
        """Take the *pins* of both sides: all packages that differ between them."""
        self._before, self._after = pins
        self._compare, self._announce = compare, announce
        self._all = worse_of(found)
        self._known: dict[Changes, Mark] = {}
        self._worse: dict[Changes, Worse] = {frozenset(self._before): self._all}
        self._named: list[Changes] = []
        self._open: list[str] = []  # what the search could not tell

    def search(self) -> None:
        """Name one package or set after the other, until the rest does none of it."""
        rest = tuple(self._before)
        while rest:
            culprits = frozenset(smallest_bad(rest, self._judge))
            self._named.append(culprits)
            rest = tuple(each for each in rest if each not in culprits)
            mark = self._judge(frozenset(rest)) if rest else Mark.GOOD
            if mark is Mark.SKIP:
                self._open.append("the other changes cannot be judged without these")
            if mark is not Mark.BAD:
                break
        explained = {key for named in self._named for key in self._worse[named]}
        self._open += [
            f"{call}: {metric} {_verb(metric)} only with more of the changes"
            for call, metric in self._all
            if (call, metric) not in explained
        ]

    def _judge(self, changes: Changes) -> Mark:
        if changes not in self._known:
            self._known[changes] = self._measured(changes)
        return self._known[changes]

    def _measured(self, changes: Changes) -> Mark:
        names = self._in_words(changes)
        self._announce(f"with {len(changes)} of {len(self._before)} changes: {names}")
        try:
            found = self._compare(self._requirements(changes))
        except UsageError as error:
            self._announce(f"skip: {error}")
            return Mark.SKIP
        worse = worse_of(found)
        self._worse[changes] = {k: worse[k] for k in worse if k in self._all}
        mark, why = marked(found, self._all)
        if why:
            self._announce(f"skip: {why}")
        return mark

    def _requirements(self, changes: Changes) -> tuple[str, ...]:
        """Name all packages that differ, as they are with *changes* on top of the old ones."""
        after = {name: self._after[name] for name in changes if name in self._after}
        before = {n: v for n, v in self._before.items() if n not in changes}
        both = sorted({**before, **after}.items())
        return tuple(f"{name}=={version}" for name, version in both)

    def lines(self) -> Iterator[str]:
        """Say what is known, a sentence each."""
        for named in self._named:
            numbers = "; ".join(
                f"{call}: {metric} {moved}"
                for (call, metric), moved in self._worse[named].items()
            )
            yield f"{self._in_words(named)}{self._together(named)}: {numbers}"
        yield from self._open
        yield f"{counted(len(self._known), 'comparison')} of parts of the changes"

    def _together(self, named: Changes) -> str:
        if len(named) == 1:
            return ""
        parts = combinations(named, len(named) - 1)
        skipped = any(self._known.get(frozenset(p)) is Mark.SKIP for p in parts)
        return ", which cannot be judged apart" if skipped else ", only together"

    def left(self) -> str:
        """Say what a search that was interrupted leaves open."""
        if self._named:
            return "interrupted: other packages may have done it too"
        bad = [c for c, mark in self._known.items() if mark is Mark.BAD]
        least = min([*bad, frozenset(self._before)], key=len)
        return f"interrupted: what did it is among {self._in_words(least)}"

    def _in_words(self, changes: Changes) -> str:
        return ", ".join(
            f"{name} {self._before[name]} -> {self._after.get(name, 'none')}"
            for name in sorted(changes)
        )


def _verb(metric: str) -> str:
    return "differs" if metric == TRAINING else "is worse"
