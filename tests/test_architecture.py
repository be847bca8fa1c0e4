"""Imports point downward, foreign packages stay in their rooms, files stay readable.

The sources are parsed, not imported, so late imports inside functions count as well.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest


OURS: Final = "pytest_gpuperf"
SOURCES: Final = Path(__file__).parents[1] / OURS

LEVEL: Final = {
    "__init__": 17,
    "__main__": 17,
    "cli": 16,
    "plugin": 16,
    "feeding": 15,
    "keeping": 15,
    "results": 15,
    "commits": 14,
    "in_ranks": 14,
    "launched": 14,
    "workers": 14,
    "child": 13,
    "inline": 13,
    "session": 13,
    "summary": 12,
    "assessment": 11,
    "children": 10,
    "referring": 10,
    "beside": 9,
    "ending": 9,
    "trace_evidence": 10,
    "memory_evidence": 9,
    "outlook": 9,
    "parametrized": 9,
    "live_line": 1,
    "plan": 9,
    "progress": 9,
    "recording": 9,
    "selection": 9,
    "verdicts": 9,
    "accepting": 8,
    "fixture": 8,
    "foresight": 8,
    "measuring": 8,
    "refusal": 8,
    "reported": 8,
    "call_key": 7,
    "compared": 7,
    "fitting": 7,
    "prospect": 7,
    "measured_call": 7,
    "relative": 7,
    "comparing": 7,
    "configured": 7,
    "creep": 7,
    "gate": 7,
    "judging": 7,
    "merging": 7,
    "inherited": 6,
    "marks": 6,
    "options": 6,
    "resolving": 5,
    "runs": 5,
    "assessed": 4,
    "compare": 4,
    "history": 4,
    "limits": 4,
    "narrowing": 4,
    "pruning": 4,
    "published": 4,
    "ranked": 4,
    "baselines": 3,
    "judge": 3,
    "probes": 3,
    "report": 3,
    "sharing": 3,
    "ci": 2,
    "devices": 2,
    "settings": 2,
    "timers": 2,
    "model": 1,
    "errors": 0,
}
"""Level of each room. A room imports itself and rooms on lower levels, nothing else."""

ADMITS: Final = {
    "pytest": (
        "beside",
        "child",
        "compared",
        "configured",
        "prospect",
        "commits.meeting",
        "commits.process",
        "feeding",
        "fixture",
        "inherited",
        "inline",
        "keeping",
        "launched",
        "marks",
        "measuring",
        "narrowing",
        "options",
        "parametrized",
        "plugin",
        "refusal",
        "reported",
        "resolving",
        "results",
        "selection",
        "session",
        "workers",
    ),
    "torch": ("devices", "probes", "compare", "ranked", "runs.server", "timers"),
    "pynvml": ("devices.nvml",),
    "pytest_benchmark": ("feeding",),
    "filelock": ("baselines", "sharing"),
    "fsspec": ("history.place",),
}
"""Modules and rooms that may import a foreign package; all others may not."""

DRAWERS: Final = {"util", "utils", "helper", "helpers", "common", "misc"}
MOST_LINES: Final = 300


def modules() -> Iterator[tuple[str, str]]:
    """Dotted name below the package and source text of every module."""
    for path in sorted(SOURCES.rglob("*.py")):
        parts = path.relative_to(SOURCES).with_suffix("").parts
        yield ".".join(parts), path.read_text(encoding="utf-8")


MODULES: Final = dict(modules())


def violations(module: str, text: str) -> list[str]:
    """What the imports of *module* with source *text* break, a sentence each."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Call):
            complaints = {objection(module, t): None for t in imported(module, node)}
            found += [f"{module}:{node.lineno} {c}" for c in complaints if c]
    return found


def imported(
    module: str, node: ast.Import | ast.ImportFrom | ast.Call
) -> tuple[str, ...]:
    """Absolute dotted names that *node* imports, as far as it says them."""
    match node:
        case ast.Import(names=names):
            return tuple(alias.name for alias in names)
        case ast.ImportFrom(names=names):
            origin = absolute(module, node)
            return tuple(f"{origin}.{alias.name}" for alias in names)
        case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_]):
            called = ast.unparse(function).rpartition(".")[2]
            return (name,) if called in {"import_module", "__import__"} else ()
    return ()


def absolute(module: str, node: ast.ImportFrom) -> str:
    """The dotted name that *node* imports from, its leading dots resolved."""
    if not node.level:
        return node.module or ""
    above = f"{OURS}.{module}".split(".")[: -node.level]
    return ".".join([*above, *filter(None, [node.module])])


def objection(module: str, target: str) -> str | None:
    """Why *module* must not import *target*, or ``None``."""
    package, _, inside = target.partition(".")
    if package == OURS:
        return objection_inside(module, inside)
    if package in sys.stdlib_module_names:
        return None
    if any(f"{module}.".startswith(f"{place}.") for place in ADMITS.get(package, ())):
        return None
    return f"imports {package}"


def objection_inside(module: str, inside: str) -> str | None:
    source = module.partition(".")[0]
    named = inside.partition(".")[0]
    room = named if named in LEVEL else "__init__"
    if source not in LEVEL:
        return "stands in a room that has no level in this test"
    if room == source or LEVEL[room] < LEVEL[source]:
        return None
    return f"imports {room}, which is not below {source}"


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_downward_and_foreign_packages_stay_in_their_rooms(
    module: str,
) -> None:
    found = violations(module, MODULES[module])

    assert found == []


@pytest.mark.parametrize("module", MODULES)
def test_a_module_begins_by_saying_what_it_is(module: str) -> None:
    assert ast.get_docstring(ast.parse(MODULES[module]))


@pytest.mark.parametrize("module", MODULES)
def test_a_module_can_be_read_in_one_go(module: str) -> None:
    assert len(MODULES[module].splitlines()) <= MOST_LINES


@pytest.mark.parametrize("module", MODULES)
def test_no_module_is_a_drawer(module: str) -> None:
    assert DRAWERS.isdisjoint(module.split("."))


@pytest.mark.parametrize(
    ("module", "line", "complaint"),
    [
        (
            "model.metric",
            "from ..judge import stored",
            "imports judge, which is not below model",
        ),
        (
            "judge.stored",
            "from ..report.numbers import show",
            "imports report, which is not below judge",
        ),
        (
            "settings",
            "from . import plugin",
            "imports plugin, which is not below settings",
        ),
        (
            "report.terminal",
            "import pytest_gpuperf.session",
            "imports session, which is not below report",
        ),
        (
            "errors",
            "from . import __version__",
            "imports __init__, which is not below errors",
        ),
        (
            "runs.fork_server",
            "def late():\n    from pytest_gpuperf.plugin import x",
            "imports plugin, which is not below runs",
        ),
        (
            "drawer.first",
            "from ..errors import UsageError",
            "stands in a room that has no level in this test",
        ),
        ("judge.stored", "import pytest", "imports pytest"),
        ("runs.fork_server", "import torch.cuda", "imports torch"),
        ("devices.nvmlish", "import pynvml", "imports pynvml"),
        ("plugin", "from _pytest.terminal import TerminalReporter", "imports _pytest"),
        ("probes.timing", "import numpy as np", "imports numpy"),
        ("report.table", "import_module('torch')", "imports torch"),
        ("report.table", "importlib.import_module('rich.table')", "imports rich"),
    ],
)
def test_a_planted_import_is_reported(module: str, line: str, complaint: str) -> None:
    number = 1 + line.count("\n")

    assert violations(module, line) == [f"{module}:{number} {complaint}"]


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("plugin", "from .session import Session"),
        ("judge.stored", "from . import budget"),
        ("judge.__init__", "from .stored import judge_stored"),
        ("judge.stored", "from ..model import metric"),
        ("devices.cuda", "import torch"),
        ("runs.server", "from torch import nn"),
        ("devices.nvml", "import pynvml"),
        ("__init__", "from .marks import budget"),
        ("report.json", "import json"),
        ("report.table", "import_module(name)"),
    ],
)
def test_an_import_that_points_downward_is_not_reported(module: str, line: str) -> None:
    assert violations(module, line) == []
