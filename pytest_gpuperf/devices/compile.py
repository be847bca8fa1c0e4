"""torch.compile: graph breaks and recompilations of the code that a step runs."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import CodeType, FrameType
from typing import Any, Final

from ..model.finding import Finding, FindingKind, Location
from ..model.metrics import GRAPH_BREAKS, RECOMPILES
from .source_lines import USERS, SourceOwner, room_of
from .step_thread import STEPS


# Counters of torch.compile that no longer change once compiling is over.


def compile_counters() -> tuple[int, ...]:
    """Compilations, compiled graphs and frames seen so far; zeros without dynamo.

    Dynamo is not imported for the question: a process that never loaded it never
    compiled. The list of compilations is a ring of 64 entries
    (``torch._dynamo.utils.DEFAULT_COMPILATION_METRICS_LIMIT``), so its length alone
    would miss a later recompile; the frame count does not stop.
    """
    dynamo: Any = sys.modules.get("torch._dynamo.utils")
    if dynamo is None:
        return (0, 0, 0)
    return (
        len(dynamo.get_compilation_metrics()),
        dynamo.counters["stats"]["unique_graphs"],
        dynamo.counters["frames"]["total"],
    )


DYNAMO: Final = "torch._dynamo.utils"

MOST_REMEMBERED: Final = 4096
"""Compilations that Dynamo is to remember; by itself it forgets all but the last 64."""

RESUMED: Final = re.compile(r"torch_dynamo_resume_in_(.+)_at_\d+")
"""Name that Dynamo gives the rest of a function after a graph break in it."""

COMPILATION: Final = re.compile(r"\d+/\d+: ")
"""Number of the compilation with the failed guard, before the reason."""

AGAIN: Final = re.compile(r"\d+/[1-9]\d*")
"""Number of a function, and of a compilation of it that is not the first."""

COMMENT_START: Final = "  # "
"""Separates a guard from the source line it comes from."""

RECOMPILE_LIMIT: Final = "limit"
"""Part of the reason that Dynamo gives when it refuses to compile once more."""

REFUSED: Final = "; after so many it runs as plain Python"

JUMP: Final = "generic_jump "
"""How Dynamo begins the reason of a branch that a tensor decides."""

BRANCH: Final = "a branch that the value of a tensor decides"

LONGEST_GUARD: Final = 240
"""Characters of a reason that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledCode:
    """The compiled code of a step; ``forgotten`` says why not all of it is known.

    ``findings`` are lines at which Dynamo ends a graph, functions that it gives up, and
    functions that it compiled more than once, with the reason of the first time.
    """

    findings: tuple[Finding, ...] = ()
    forgotten: str = ""


Function = tuple[str, str, int]
"""File, name and first line of a function."""


def remember_compilations() -> None:
    """Let Dynamo forget no compilation from here on, if it is loaded."""
    dynamo: Any = sys.modules.get(DYNAMO)
    if dynamo is not None:
        dynamo.set_compilation_metrics_limit(MOST_REMEMBERED)


def compiled_code(run: Callable[[], object] | None, root: str = "") -> CompiledCode:
    """Return what Dynamo recorded of the code that *run*, a warm step, runs.

    Dynamo is not imported to find out. *run* is called only if Dynamo recorded a break
    or compiled something twice. Without *run*, all code of the process counts. Lines
    below the directory *root* are the project's. Raises whatever *run* raises.
    """
    dynamo: Any = sys.modules.get(DYNAMO)
    if dynamo is None:
        return CompiledCode()
    breaks = list(dynamo.graph_break_reasons)
    compilations = list(dynamo.get_compilation_metrics())
    given_up = [c for c in compilations if _is_given_up(c)]
    again = [c for c in compilations if _is_again(c)]
    if run is not None and (breaks or given_up or again):
        # The records are read before this run: it may compile again, and what the
        # question itself causes must not be counted.
        functions = functions_of(run)
        lines = _lines_of(functions)
        breaks = [b for b in breaks if _start(b.user_stack) in lines]
        given_up = [c for c in given_up if _function(c, compilations) in functions]
        again = [c for c in again if _function(c, compilations) in functions]
    return CompiledCode(
        findings=(
            *_skipped(given_up, compilations, root),
            *_graph_breaks(breaks, given_up, root),
            *_recompilations(again, compilations),
        ),
        forgotten=_forgotten(dynamo),
    )


def _forgotten(dynamo: Any) -> str:
    remembered = dynamo.get_compilation_metrics()
    # Private names, which older releases lack: then torch's default is assumed.
    most = getattr(dynamo, "DEFAULT_COMPILATION_METRICS_LIMIT", 64)
    limit = getattr(getattr(dynamo, "_compilation_metrics", None), "maxlen", most)
    if limit is None or len(remembered) < limit:
        return ""
    return (
        f"torch.compile compiled {limit} functions or more and remembers no more of "
        "them; import torch._dynamo at the top of the test's module"
    )


def functions_of(run: Callable[[], object]) -> frozenset[Function]:
    """Run *run* and return the functions that the thread of the steps entered meanwhile."""
    codes: set[CodeType] = set()

    def entered(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            codes.add(frame.f_code)

    # Coverage or a profiler of the user may have a hook of its own: it is put back.
    hook = STEPS.call(sys.getprofile)
    STEPS.call(partial(sys.setprofile, entered))
    try:
        run()
    finally:
        STEPS.call(partial(sys.setprofile, hook))
    return frozenset(map(_key, codes))


def _key(code: CodeType) -> Function:
    return code.co_filename, code.co_name, code.co_firstlineno


def _lines_of(functions: Iterable[Function]) -> frozenset[tuple[str, int]]:
    """Return the lines of those *functions* that Dynamo looked at.

    They are the lines of Dynamo's input: the code it generates has other lines.
    """
    wanted = frozenset(functions)
    convert: Any = sys.modules["torch._dynamo.convert_frame"]
    # ``seen`` keeps weak references, so a code object may be gone.
    looked_at = (reference() for reference in convert.input_codes.seen)
    return frozenset(
        (code.co_filename, line)
        for code in looked_at
        if code is not None and _key(code) in wanted
        for line in (code.co_firstlineno, *(one for *_, one in code.co_lines() if one))
    )


def _start(stack: Sequence[Any]) -> tuple[str, int] | None:
    """Line in the function that was compiled: the first one, its callees come after."""
    return (stack[0].filename, stack[0].lineno or 0) if stack else None


def _is_given_up(compilation: Any) -> bool:
    """Whether a function is left to Python for something that Dynamo cannot follow."""
    return (
        compilation.fail_type is not None
        and compilation.fail_user_frame_filename is not None
        and not compilation.has_guarded_code
    )


def _is_again(compilation: Any) -> bool:
    """Whether it was a recompilation; early versions of torch only number them."""
    # From the release on that has the field, a first compilation has ``None`` in it.
    # Before that, the second part of the id counts the compilations of one function.
    if hasattr(compilation, "recompile_reason"):
        return compilation.recompile_reason is not None
    again = AGAIN.fullmatch(str(compilation.compile_id))
    return again is not None and getattr(compilation, "co_filename", None) is not None


def _function(compilation: Any, compilations: Sequence[Any]) -> Function | None:
    """Return what was compiled; one that was refused does not say it itself."""
    if compilation.co_filename is not None:
        return (
            compilation.co_filename,
            compilation.co_name,
            compilation.co_firstlineno,
        )
    frame = _frame(compilation)
    # A refused compilation has no code object, but it shares its frame number with the
    # earlier ones of the same function.
    others = (c for c in compilations if c.co_filename and _frame(c) == frame)
    other = next(others, None)
    return None if other is None else _function(other, compilations)


def _frame(compilation: Any) -> str:
    return str(compilation.compile_id).partition("/")[0]


def _skipped(
    given_up: Iterable[Any], compilations: Sequence[Any], root: str
) -> Iterator[Finding]:
    """Yield the functions of which nothing is compiled, as for a break in a loop of theirs.

    They count as well as the line that breaks: a break that only splits them costs less.
    """
    for function in dict.fromkeys(_function(c, compilations) for c in given_up):
        if function is not None and not _is_compiled(function, compilations):
            yield _graph_break([_definition(function)], _nothing_of(function), root)


def _is_compiled(function: Function, compilations: Sequence[Any]) -> bool:
    """Whether there is compiled code of *function*, for some of its inputs at least."""
    kept = (c for c in compilations if not _is_given_up(c))
    return any(_function(c, compilations) == function for c in kept)


def _nothing_of(function: Function) -> str:
    _, name, _ = function
    if RESUMED.fullmatch(name):
        return f"the rest of `{_name(name)}` is not compiled, and runs as plain Python"
    return f"nothing of `{name}` is compiled: it runs as plain Python"


def _graph_breaks(
    breaks: Iterable[Any], given_up: Iterable[Any], root: str
) -> Iterator[Finding]:
    """Yield one per line, however often its function was compiled or called."""
    stacks = [([_location(f) for f in b.user_stack], b.reason) for b in breaks]
    stacks += [([_given_up_at(c)], str(c.fail_reason)) for c in given_up]
    seen: dict[tuple[str, int], Finding] = {}
    for stack, reason in stacks:
        if stack:
            key = stack[-1].file, stack[-1].line
            seen.setdefault(key, _graph_break(stack, reason, root))
    yield from seen.values()


def _graph_break(stack: Sequence[Location], reason: str, root: str) -> Finding:
    rooms = [(line, room_of(line.file, root)) for line in stack]
    project = [line for line, room in rooms if room is SourceOwner.PROJECT]
    users = [line for line, room in rooms if room in USERS]
    innermost = (users or stack)[-1]
    location = (project or [innermost])[-1]
    return Finding(
        kind=FindingKind.BREAK,
        op=None,
        per_step=1,
        location=location,
        innermost=None if innermost == location else innermost,
        metrics=(GRAPH_BREAKS.name,),
        reason=_in_short(reason),
    )


def _location(frame: Any) -> Location:
    return Location(
        file=frame.filename, line=frame.lineno or 0, function=_name(frame.name)
    )


def _given_up_at(compilation: Any) -> Location:
    return Location(
        file=compilation.fail_user_frame_filename,
        line=compilation.fail_user_frame_lineno or 0,
        function=_name(str(compilation.co_name)),
    )


def _name(function: str) -> str:
    """Name the function that a resumed one is the rest of."""
    resumed = RESUMED.fullmatch(function)
    return _name(resumed.group(1)) if resumed else function


def _in_short(reason: str) -> str:
    """Keep what Dynamo calls a break and its explanation, and not its hints."""
    if reason.startswith(JUMP):
        return BRANCH
    lines = [line.strip() for line in reason.strip().splitlines()]
    head = lines[0].rstrip(".:") if lines else ""
    starts = [line for line in lines if line.startswith("Explanation:")]
    explained = starts[0].removeprefix("Explanation:").strip() if starts else ""
    text = ": ".join(filter(None, (head, explained)))
    return text if len(text) <= LONGEST_GUARD else f"{text[: LONGEST_GUARD - 3]}..."


def _recompilations(
    again: Iterable[Any], compilations: Sequence[Any]
) -> Iterator[Finding]:
    groups: Mapping[Function | None, list[Any]] = defaultdict(list)
    for compilation in again:
        groups[_function(compilation, compilations)].append(compilation)
    for function, group in groups.items():
        reason = _guard(getattr(group[0], "recompile_reason", ""))
        refused = any(RECOMPILE_LIMIT in str(c.fail_reason or "") for c in group)
        yield Finding(
            kind=FindingKind.RECOMPILE,
            op=None,
            per_step=len(group),
            location=None if function is None else _definition(function),
            metrics=(RECOMPILES.name,),
            reason=f"{reason}{REFUSED if refused else ''}",
        )


def _guard(reason: str) -> str:
    """Keep the guard that failed, without the source that Dynamo prints after it."""
    guard = COMPILATION.sub("", reason).partition("\n")[0]
    return _in_short(guard.partition(COMMENT_START)[0])


def _definition(function: Function) -> Location:
    file, name, line = function
    return Location(file=file, line=line, function=_name(name))
