"""Imports point downward, foreign packages stay in their rooms, files stay readable.

The sources are parsed, not imported, so late imports inside functions count as well.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Final

import pytest


OURS: Final = "pytest_gpuperf"
TORCH: Final = "torch"
SOURCES: Final = Path(__file__).parents[1] / OURS

LEVEL: Final = {
    "__main__": 11,
    "__init__": 11,
    "cli": 10,
    "hooks": 10,
    "compare_commits": 9,
    "plugin": 8,
    "worker": 7,  # trackers that name a run; what a step reads of a clock, and not what its file names
    "runner": 6,
    "compare_steps": 5,
    "distributed": 5,
    "fixes": 5,
    "trainers": 5,
    "baselines": 4,
    "measure": 4,
    "report": 4,
    "devices": 3,
    "environments": 3,
    "judge": 3,
    "marks": 3,
    "settings": 3,
    "sharing": 3,
    "timers": 3,
    "files": 2,
    "model": 2,
    "errors": 1,
    "visible": 0,
}
"""Level of each room. A room imports itself and rooms on lower levels, nothing else."""

HOOKS: Final = "plugin.__init__"
"""The hooks wire everything together, so they are above the rest of their room."""

ADMITS: Final = {
    "pytest": (
        "compare_commits.side_process",
        "marks",
        "plugin",
        "worker",
    ),
    "torch": (
        "compare_steps",
        "devices",
        "distributed",
        "measure",
        "runner.fork_server_process",
        "timers",
    ),
    # What has no public name, and may be missing.
    "_pytest": ("worker.pytest_start",),
    "pynvml": ("devices.cuda.nvml",),
    "pytest_benchmark": ("plugin.outputs",),
    "filelock": ("baselines", "sharing"),
    "packaging": ("environments", "runner.relocation"),
    "jinja2": ("report.html",),
    "transformers": ("trainers.frameworks",),
    "libcst": ("fixes",),
    # For type checkers alone: nothing imports it when it runs.
    "typing_extensions": ("marks", "model.budget", "worker.fixture"),
}
"""Modules and rooms that may import a foreign package; all others may not."""

WITHOUT_TORCH: Final = (
    "__init__",
    "__main__",
    "baselines",
    "cli",
    "compare_commits",
    "environments",
    "errors",
    "files",
    "fixes",
    "judge",
    "marks",
    "model",
    "plugin",
    "report",
    "runner",
    "settings",
    "sharing",
    "trainers",
    "visible",
    "worker",
)
"""Rooms that may be imported where torch is not, or must not be, loaded.

The controlling process forks none of its own memory, starts in a fraction of a second and
works without torch; a measuring process imports torch once, before it forks.
"""

DRAWERS: Final = {"util", "utils", "helper", "helpers", "common", "misc"}
MOST_LINES: Final = 800


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
    source = "hooks" if module == HOOKS else module.partition(".")[0]
    named = inside.partition(".")[0]
    room = named if named in LEVEL else "__init__"
    if source not in LEVEL:
        return "stands in a room that has no level in this test"
    if (
        room == source
        or (source, room) == ("hooks", "plugin")
        or LEVEL[room] < LEVEL[source]
    ):
        return None
    return f"imports {room}, which is not below {source}"


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_downward_and_foreign_packages_stay_in_their_rooms(
    module: str,
) -> None:
    found = violations(module, MODULES[module])

    assert found == []


def imported_at_once(module: str) -> Iterator[str]:
    """Names that *module* imports when it is imported itself."""
    for node in ast.parse(MODULES[module]).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from imported(module, node)


def module_of(target: str) -> str | None:
    """The module of ours that importing *target* runs, or torch; else nothing."""
    if target.partition(".")[0] == TORCH:
        return TORCH
    inside = target.removeprefix(f"{OURS}.")
    if inside.rpartition(".")[0] == SIMULATED:
        inside = f"{SIMULATED}.{behind_the_door().get(inside.rpartition('.')[2])}"
    for name in (inside, f"{inside}.__init__", inside.rpartition(".")[0]):
        if target.startswith(f"{OURS}.") and name in MODULES:
            return name
    package = f"{inside.rpartition('.')[0]}.__init__"
    return package if package in MODULES else None


@cache
def at_once() -> Mapping[str, frozenset[str]]:
    """The modules of ours that each module imports when it is imported, and torch."""
    return {
        m: frozenset(filter(None, map(module_of, imported_at_once(m)))) for m in MODULES
    }


def way_to_torch(module: str) -> list[str]:
    """The modules by which importing *module* imports torch; empty if it does not."""
    ways = {module: [module]}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        for after in at_once()[name] - set(ways):
            ways[after] = [*ways[name], after]
            if after == TORCH:
                return ways[after]
            waiting.append(after)
    return []


@pytest.mark.parametrize(
    "module", [m for m in MODULES if m.partition(".")[0] in WITHOUT_TORCH]
)
def test_a_room_without_torch_reaches_it_by_no_import(module: str) -> None:
    if module in ADMITS["torch"]:
        pytest.skip("this process is the one that imports torch")
    assert way_to_torch(module) == []


def all_imports(module: str) -> Iterator[str]:
    """The modules of ours that *module* imports anywhere, the simulated GPU's left out."""
    for node in ast.walk(ast.parse(MODULES[module])):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name in filter(None, map(module_of, imported(module, node))):
                if name not in {module, TORCH} and not name.startswith(SIMULATED):
                    yield name


def test_no_files_import_each_other_in_a_circle() -> None:
    """The simulated GPU takes the place of torch's own, so its files know each other."""
    graph = {module: frozenset(all_imports(module)) for module in MODULES}

    TopologicalSorter(graph).prepare()  # raises CycleError, which names them


# The simulated GPU is one thing for all others.

SIMULATED: Final = "devices.simulated"

FACE: Final = "simulated_gpu"
"""What its room defines itself, next to what it offers of its modules."""


@cache
def behind_the_door() -> Mapping[str, str]:
    """What the room of the simulated GPU offers, and the module of each name."""
    for node in ast.parse(MODULES[f"{SIMULATED}.__init__"]).body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "BEHIND":
            assert node.value is not None
            found: Mapping[str, str] = ast.literal_eval(node.value)
            return found
    raise AssertionError


def imports_behind_the_door(module: str, text: str) -> list[str]:
    """What source *text* imports of the simulated GPU that it does not offer."""
    if f"{module}.".startswith(f"{SIMULATED}."):
        return []
    room = f"{OURS}.{SIMULATED}."
    offered = {FACE, *behind_the_door()}
    return [
        target
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Call)
        for target in imported(module, node)
        if target.startswith(room) and target.removeprefix(room) not in offered
    ]


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_of_the_simulated_gpu_what_it_offers(module: str) -> None:
    assert imports_behind_the_door(module, MODULES[module]) == []


def test_the_simulated_gpu_offers_nothing_that_nobody_takes() -> None:
    taken = {
        target.rpartition(".")[2]
        for module, source in MODULES.items()
        if not module.startswith(SIMULATED)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom)
        for target in imported(module, node)
        if target.rpartition(".")[0] == f"{OURS}.{SIMULATED}"
    }

    assert taken == {FACE, *behind_the_door()}


def test_type_checkers_see_what_the_simulated_gpu_offers() -> None:
    tree = ast.parse(MODULES[f"{SIMULATED}.__init__"])
    declared = {
        alias.name: node.module
        for guard in tree.body
        if isinstance(guard, ast.If)
        for node in guard.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    assert declared == behind_the_door()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("from ..devices.simulated.gpu import entered", ["gpu.entered"]),
        ("from ..devices.simulated import gpu", ["gpu"]),
        ("def f():\n    import pytest_gpuperf.devices.simulated.gpu", ["gpu"]),
        ("from ..devices.simulated import simulated_gpu", []),
        ("from ..devices.simulated import NeedsGpuError", []),
    ],
)
def test_a_planted_import_of_the_simulated_gpu_is_reported(
    line: str, found: list[str]
) -> None:
    planted = imports_behind_the_door("measure.step", line)

    assert planted == [f"{OURS}.{SIMULATED}.{name}" for name in found]


TIMED: Final = (
    "devices.base",
    "devices.process_time",
    "distributed.device",
    "measure.step",
    "measure.timing",
)
"""Modules whose code runs in timed rounds."""


@pytest.mark.parametrize("module", TIMED)
def test_pytest_rewrites_no_timed_code(module: str) -> None:
    docstring = ast.get_docstring(ast.parse(MODULES[module])) or ""
    assert "PYTEST_DONT_REWRITE" in docstring


@pytest.mark.parametrize("module", MODULES)
def test_a_module_begins_by_saying_what_it_is(module: str) -> None:
    assert ast.get_docstring(ast.parse(MODULES[module]))


ENTRY: Final = re.compile(r"^- ``([\w.]+)\.(\w+)``: ", re.MULTILINE)
"""A line of a room's guide: a module of it, and a name in that."""

ROOMS: Final = sorted(
    str(path.parent.relative_to(SOURCES))
    for path in SOURCES.glob("*/__init__.py")
    if path.parent.name != "cli"  # its files are the commands
)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_names_what_to_read_first(room: str) -> None:
    guide = ast.get_docstring(ast.parse(MODULES[f"{room}.__init__"])) or ""
    entries = ENTRY.findall(guide)

    assert 2 <= len(entries) <= 8
    for module, name in entries:
        tree = ast.parse(MODULES[f"{room}.{module}"])
        assert name in {found for node in tree.body for found in bound_by(node)}


def bound_by(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement of a module binds."""
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
            yield name
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.Assign(targets=targets):
            yield from (found.id for found in targets if isinstance(found, ast.Name))


@pytest.mark.parametrize("module", MODULES)
def test_a_module_can_be_read_in_one_go(module: str) -> None:
    assert len(MODULES[module].splitlines()) <= MOST_LINES


# The ceiling: lines of code, which are neither blank nor a comment, docstring or import.

MOST_CODE: Final = {
    "": 782,  # files that are opened and not read whole; a path from a root on, from cli, measure and runner
    "baselines": 1164,  # the folder that is written is locked; modes and links are kept
    "cli": 2210,  # pages of audit, memory and ab, also for `gpuperf report`; a line accepts the tests that it made worse; a script in another encoding; edits that are tried, and written
    "compare_commits": 950,  # how many pairs it took; threads that sleep where nothing is timed
    "compare_steps": 982,  # records of what steps train, for another process; all steps of a program
    "devices": 2648,  # live memory, which was of the CPU
    "devices.cuda": 621,
    "devices.simulated": 8475,  # where a program is; no dynamo where nothing is compiled; a clock of the process; where in a step a line waits; norms and sparse tensors as torch; random numbers of the GPU; what unique, roll, cdist and svd take
    "distributed": 1016,  # ranks are ended by their own time
    "fixes": 1412,  # edits on the syntax tree that end what an audit found, and their proof
    "judge": 3490,  # same training of two steps as well: compare_steps pays for it
    "measure": 3194,  # what a step keeps has its line; which step raised; where in a step a line waits
    "model": 1949,  # keywords of budgets one by one, for editors; what a tolerance leaves unseen, from plugin; names that are no more; where a line waits
    "plugin": 2269,  # no server without measured tests; what a pull request changes in a baseline
    "report": 2195,  # where in a step a line waits; the document of blocks, from report.screen and report.html; calls that the page, the summary and annotations read alike
    "report.ci": 389,  # a watch marks its lines on GitHub
    "report.html": 681,  # the step as a picture; pages of audit, memory and ab; bars of what changed
    "report.screen": 2081,  # bytes of the step and of cuBLAS apart; a cause names all its tests; how many operations start late
    "runner": 2439,  # ends by own time; what a server needs to import; one that dies is started anew
    "sharing": 283,  # how every process is started, and signals; where a program is; one process for several programs
    "trainers": 473,
    "worker": 1153,  # trackers that name a run; what a step reads of a clock, and not what its file names
}
"""Lines of code of each room. A room that needs more says here which feature pays for it,
or takes as much from another; one that shrinks lowers its line."""

MOST_DATACLASSES: Final = 198

SLACK: Final = 25
"""Lines that a ceiling may be above its room: one far above it holds nothing."""

NO_CODE: Final = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def lines_of_code(source: str) -> int:
    """Count the lines that are no comment, docstring or import, and not blank."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        match node:
            case (
                ast.Import()
                | ast.ImportFrom()
                | ast.Expr(value=ast.Constant(value=str()))
            ):
                lines.difference_update(range(node.lineno, (node.end_lineno or 0) + 1))
    return len(lines)


def test_no_room_has_more_code_than_its_ceiling_allows() -> None:
    code: Counter[str] = Counter()
    for module, source in MODULES.items():
        code[module.rpartition(".")[0]] += lines_of_code(source)

    assert {r: n for r, n in code.items() if n > MOST_CODE.get(r, 0)} == {}
    assert {r: code[r] for r, most in MOST_CODE.items() if most > code[r] + SLACK} == {}


def test_there_are_no_more_dataclasses_than_the_ceiling_allows() -> None:
    made = [
        node.name
        for source in MODULES.values()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef)
        and any("dataclass" in ast.unparse(d) for d in node.decorator_list)
    ]

    assert MOST_DATACLASSES - SLACK < len(made) <= MOST_DATACLASSES


def test_comments_docstrings_imports_and_blank_lines_are_no_code() -> None:
    source = '"""A."""\n\nimport a  # b\nfrom c import (\n    d,\n)\n\nX = 1\n"""E."""\n# f\n'

    assert lines_of_code(source) == 1


@pytest.mark.parametrize("module", MODULES)
def test_no_module_is_a_drawer(module: str) -> None:
    assert DRAWERS.isdisjoint(module.split("."))


def defined(source: str) -> Iterator[tuple[str, str]]:
    """Yield each public class and constant of *source*, and what it is."""
    for node in ast.parse(source).body:
        match node:
            case ast.ClassDef(name=name) as found:
                yield name, ast.unparse(found)
            case (
                ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                | ast.Assign(targets=[ast.Name(id=name)], value=value)
            ) if name.isupper():
                yield name, ast.unparse(value)


EACH_COMMAND_HAS: Final = frozenset({"REST"})
"""Constants that every module of a command defines for itself."""


def test_a_name_means_one_thing_in_the_whole_package() -> None:
    meanings: dict[str, dict[str, str]] = {}
    for module, source in MODULES.items():
        for name, meaning in defined(source):
            meanings.setdefault(name, {})[meaning] = module

    doubled = {
        name: sorted(found.values())
        for name, found in meanings.items()
        if len(found) > 1 and not name.startswith("_")
    }
    assert doubled.keys() <= EACH_COMMAND_HAS, doubled


NAMES_KINDS: Final = {
    "model.measurement": "which quantile of its times varies least was measured",
    "plugin.session": "the device that was asked for, where none was opened",
    "report.pytest_benchmark": "the format names a CPU and a GPU apart",
    "worker.ranks_child": "ranks on CUDA need a GPU each, and NCCL",
}
"""Modules that compare a kind of device, and why no capability is what they mean.

All others ask ``kind.has(...)``. ``devices`` opens the kinds, so it names them, and any
module may name ``SCRIPTED``: it is the test double, and no kind that is like others.
"""


def choices_of_device(text: str) -> list[str]:
    """What source *text* has that depends on the class of a device, a sentence each."""
    found = (choice_in(node) for node in ast.walk(ast.parse(text)))
    return [sentence for sentence in found if sentence]


def choice_in(node: ast.AST) -> str:
    """Which class of a device *node* asks for, or unites with another; or nothing."""
    match node:
        case (
            ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, asked])
            | ast.MatchClass(cls=asked)
        ):
            devices = [name for name in names_in(asked) if name.endswith("Device")]
            return f"asks for a {devices[0]}" if devices else ""
        case ast.BinOp(op=ast.BitOr()):
            named = [name for name in names_in(node) if name.endswith("Device")]
            return " | ".join(named) if len(named) > 1 else ""
    return ""


def names_in(node: ast.AST) -> list[str]:
    """The last part of each name in *node*: ``device`` of ``torch.device``."""
    inside = (n for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute))
    return [n.id if isinstance(n, ast.Name) else n.attr for n in inside]


def kinds_compared(text: str) -> list[str]:
    """The kinds of device, the test double apart, that source *text* compares with."""
    return [
        operand.attr
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Compare)
        for part in (node.left, *node.comparators)
        for operand in ast.walk(part)
        if isinstance(operand, ast.Attribute)
        and ast.unparse(operand.value).endswith("DeviceKind")
        and operand.attr != "SCRIPTED"
    ]


@pytest.mark.parametrize("module", MODULES)
def test_no_module_asks_for_the_class_of_a_device(module: str) -> None:
    assert choices_of_device(MODULES[module]) == []


@pytest.mark.parametrize(
    "module", [m for m in MODULES if m.partition(".")[0] != "devices"]
)
def test_a_module_asks_for_a_capability_and_compares_no_kind_of_device(
    module: str,
) -> None:
    compared = kinds_compared(MODULES[module])

    assert bool(compared) == (module in NAMES_KINDS), compared


@pytest.mark.parametrize(
    ("line", "choices"),
    [
        ("isinstance(device, SimulatedDevice)", ["asks for a SimulatedDevice"]),
        ("isinstance(own, (int, base.Device))", ["asks for a Device"]),
        ("def f(d: Device | SimulatedDevice): ...", ["Device | SimulatedDevice"]),
        ("Any = CpuDevice | CudaDevice", ["CpuDevice | CudaDevice"]),
        ("isinstance(device, torch.device)", []),
        ("def f(d: Device | None): ...", []),
        ("device.measuring is None", []),
    ],
)
def test_a_planted_choice_of_device_is_reported(line: str, choices: list[str]) -> None:
    assert choices_of_device(line) == choices


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        ("kind is DeviceKind.CUDA", ["CUDA"]),
        ("found.kind != environment.DeviceKind.CPU", ["CPU"]),
        ("kind in {None, DeviceKind.SIMULATED}", ["SIMULATED"]),
        ("named == DeviceKind.CUDA.value", ["CUDA"]),
        ("kind is DeviceKind.SCRIPTED", []),
        ("kind.has(Capability.CLOCK)", []),
        ("limits = {DeviceKind.CUDA: 6.0}", []),
    ],
)
def test_a_planted_kind_of_device_is_reported(line: str, kinds: list[str]) -> None:
    assert kinds_compared(line) == kinds


@pytest.mark.parametrize(
    ("module", "line", "complaint"),
    [
        (
            "model.metrics",
            "from ..judge import baseline",
            "imports judge, which is not below model",
        ),
        (
            "report.numbers",
            "import pytest_gpuperf.plugin.session",
            "imports plugin, which is not below report",
        ),
        (
            "errors",
            "from . import __version__",
            "imports __init__, which is not below errors",
        ),
        (
            "drawer.first",
            "from ..errors import UsageError",
            "stands in a room that has no level in this test",
        ),
        ("judge.stored_times", "import pytest", "imports pytest"),
        ("runner.fork_server", "import torch.cuda", "imports torch"),
        ("report.document", "import_module('torch')", "imports torch"),
    ],
)
def test_a_planted_import_is_reported(module: str, line: str, complaint: str) -> None:
    number = 1 + line.count("\n")

    assert violations(module, line) == [f"{module}:{number} {complaint}"]
