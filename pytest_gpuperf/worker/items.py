"""Measured tests among pytest's items: which they are, their names, parameters and plan.

Files of a measurement are named as theirs are, from the project's root on.
"""

from __future__ import annotations

import linecache
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from math import isfinite
from pathlib import Path
from typing import Final

import pytest

from ..devices.own_code import name_of
from ..judge.operations import fitted
from ..marks import AUTO_MARK, BUDGET_MARK, budgets_of, ranks_of
from ..model.budget import Budget
from ..model.finding import LineWork, Location
from ..model.measurement import Measurement
from ..report.line_syntax import with_context
from ..report.measured_calls import METRIC_PREFIX
from ..report.screen.findings import PACKAGES_FOLDER
from ..runner.request import Planned


def is_measured(item: pytest.Item) -> bool:
    """Whether *item* takes the fixture or carries a budget."""
    return (
        item.get_closest_marker(AUTO_MARK) is not None
        or item.get_closest_marker(BUDGET_MARK) is not None
    )


def asks(item: pytest.Item) -> bool:
    """Whether the test itself asks to be measured: by a mark, or for the fixture.

    An autouse fixture of its class that takes ours does not ask for each method.
    """
    if item.get_closest_marker(BUDGET_MARK) is not None or _is_marked(item):
        return True
    known = getattr(item, "_fixtureinfo", None)  # pytest has no public name for it
    if known is None:
        return True
    used = (mark.args for mark in item.iter_markers("usefixtures"))
    # Fixtures that take fixtures are followed to the end, with a set against cycles: a
    # fixture may override one of its own name and take that.
    names = [*known.argnames, *(name for args in used for name in args)]
    asked: set[str] = set()
    while names:
        name = names.pop()
        if name not in asked:
            asked.add(name)
            taken = known.name2fixturedefs.get(name, ())
            names += [argument for fixture in taken for argument in fixture.argnames]
    return AUTO_MARK in asked


def _is_marked(item: pytest.Item) -> bool:
    """Whether the author marked *item*; the fixture alone adds our mark, too."""
    marks = len(list(item.iter_markers(AUTO_MARK)))
    return marks > (AUTO_MARK in getattr(item, "fixturenames", ()))


def node_id(item: pytest.Item) -> str:
    """Name the test of *item*, without the group that ``--dist loadgroup`` appends."""
    assert item.parent is not None  # noqa: S101 - every item has a collector
    return f"{item.parent.nodeid}::{item.name}"


def recorded(item: pytest.Item) -> tuple[tuple[str, str], ...]:
    """Return what ``record_property`` noted of *item*, as text."""
    return tuple(
        (name, str(value))
        for name, value in item.user_properties
        if not name.startswith(METRIC_PREFIX)
    )


def place_of(item: pytest.Item) -> str:
    """File and line, from 1, of *item*; its file where no line is known."""
    file, line, _ = item.location
    path = Path(file).as_posix()
    return path if line is None else f"{path}:{line + 1}"


def plan_of(items: Sequence[pytest.Item]) -> list[Planned]:
    """The measured tests among the selected items, each once, in their order."""
    planned = {node_id(item): item for item in items if is_measured(item)}
    return [
        Planned(
            test=test,
            argument=f"{item.path}::{test.partition('::')[2]}",
            module=str(item.path),
            where=place_of(item),
            ranks=ranks_of(item),
            params=params_of(item),
            may_fail=item.get_closest_marker("xfail") is not None,
        )
        for test, item in planned.items()
    ]


def params_of(item: pytest.Item) -> Mapping[str, object]:
    """Return the parameters of *item* by name, each as a value that JSON has."""
    callspec = getattr(item, "callspec", None)
    if callspec is None:
        return {}
    return {str(name): shown(value) for name, value in callspec.params.items()}


def shown(value: object) -> object:
    """Return *value* if JSON has it, else its name if it has one, else that of its type.

    ``str`` of other types is not called: it may be slow, wait for a device, or contain
    a path of this machine.
    """
    if isinstance(value, Enum):
        return value.name
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if type(value).__module__ == "torch":  # a dtype, a device, a layout
        return _brief(value)
    named = getattr(value, "__name__", None)
    return named if isinstance(named, str) else type(value).__name__


def _brief(value: object) -> str:
    is_tensor = hasattr(value, "shape")
    return type(value).__name__ if is_tensor else str(value)


# Names files of a measurement from a project's root on, as node ids have them.

LONGEST_SOURCE: Final = 120
"""Characters of a line that are enough to know it by."""


def below(root: Path, measurement: Measurement) -> Measurement:
    """Name the user's own files from *root* on, as node ids do.

    Source lines are read now, while the files are still those that ran.
    """
    return replace(
        measurement,
        findings=tuple(
            replace(
                with_context(finding),
                location=_relative(root, finding.location),
                innermost=_relative(root, finding.innermost),
                forward=_relative(root, finding.forward),
                source=_source(finding.location),
            )
            for finding in measurement.findings
        ),
        snapshot=_relative_path(root, measurement.snapshot),
        trace=_relative_path(root, measurement.trace),
        operations=fitted(_line_below(root, line) for line in measurement.operations),
    )


def _line_below(root: Path, line: LineWork) -> LineWork:
    """Name its files as they are called on other machines as well."""
    return replace(
        line,
        location=_portable(root, line.location),
        innermost=_portable(root, line.innermost),
        source=_source(line.innermost or line.location),
    )


def _portable(root: Path, location: Location | None) -> Location | None:
    near = _relative(root, location)
    if near is None:
        return None
    return replace(near, file=near.file.rpartition(PACKAGES_FOLDER)[2])


def _source(location: Location | None) -> str:
    if location is None or not location.exact:
        return ""
    return linecache.getline(location.file, location.line).strip()[:LONGEST_SOURCE]


def _relative(root: Path, location: Location | None) -> Location | None:
    if location is None:
        return None
    return replace(location, file=name_of(location.file, str(root)))


def _relative_path(root: Path, path: str) -> str:
    if not Path(path).is_relative_to(root):
        return path
    return Path(path).relative_to(root).as_posix()


# The budgets of a test, which its own code cannot take away.

_marked_key: Final[pytest.StashKey[tuple[Budget, ...]]] = pytest.StashKey()


def keep_budgets(item: pytest.Item) -> None:
    """Keep the budgets of the marks that *item* has before its code runs."""
    item.stash[_marked_key] = budgets_of(item)


def kept_budgets_of(item: pytest.Item) -> tuple[Budget, ...]:
    """Return the budgets of all marks of *item*, also of those that its code took away."""
    marked = budgets_of(item)
    kept = item.stash.get(_marked_key, ())
    return (*marked, *(budget for budget in kept if budget not in marked))
