"""``gpuperf ab --lock=FILE --which``: the packages that did it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from ..compare_commits.culprits import Culprits
from ..compare_commits.search import TRAINING
from ..compare_commits.search import worse_of
from ..compare_commits.side_server import Selection
from ..compare_commits.sides import Side
from ..environments.cache import PackageCache
from ..environments.cache import default_place
from ..environments.lock_files import changed
from ..environments.lock_files import installed
from ..environments.lock_files import pins_of
from ..environments.overlay import PackageChange
from ..environments.overlay import overlay
from ..model.ab import AbRun
from ..model.metrics import STEP_MS
from ..sharing.processes import EXIT_INTERRUPTED
from .compare_options import announce


def with_hint(found: AbRun, lock: Path) -> AbRun:
    """Return *found*, and how to learn more if several packages may have done it."""
    before, _ = changed(pins_of(lock), installed())
    if len(before) == 1:
        return found
    hint = f"{len(before)} packages differ: --which names the one that did it"
    return replace(found, notes=(*found.notes, hint))


def with_culprits(
    found: AbRun,
    both: tuple[Side, Side],
    lock: Path,
    compare: Callable[[tuple[Side, Side]], AbRun],
) -> tuple[AbRun, int]:
    """Return *found* with a note on each culprit; and 130 after Ctrl-C, else 0."""
    old, new = both
    pins = changed(pins_of(lock), installed())
    with closing(PackageCache(default_place())) as cache:

        def compare_part(requirements: tuple[str, ...]) -> AbRun:
            change = PackageChange(requirements=requirements)
            part = new.with_packages(overlay(change, cache, announce))
            return compare((old, part))

        culprits = Culprits(found, pins, compare_part, announce)
        code, more = 0, list[str]()
        try:
            culprits.search()
        except KeyboardInterrupt:
            code = EXIT_INTERRUPTED
            more = [culprits.left()]
    return replace(found, notes=(*found.notes, *culprits.lines(), *more)), code


def only_worse(found: AbRun, selection: Selection) -> Selection:
    """Return what is compared again: of *selection* the tests that got worse or differ.

    What is exact alone, if no time got worse: it takes few pairs.
    """
    worse = worse_of(found)
    metrics = {metric for _, metric in worse}
    return replace(
        selection,
        calls=tuple(dict.fromkeys(call for call, _ in worse)),
        exact_alone=STEP_MS.name not in metrics,
        asks_training=TRAINING in metrics,
    )
