"""Which operations of torch make the CPU wait for the GPU, by release of torch.

    python benchmarks/syncs.py         # ask about this torch, and write both files
    python benchmarks/syncs.py --page  # ask nobody: write the page from the document

Runs each program of ``docs/reference/syncs.json`` on the GPU of this machine, which may be stub CUDA,
and on the simulated GPU, in a process of its own, once to load what is loaded once and then
in a profile. What CUDA does is read from its calls. Adds the answers of this release to
that document, and writes the tables of ``docs/reference/syncs.md``. Prints
where the two differ, and what NVIDIA's catalogue says otherwise. Exit status: 4 without a
GPU, else 0.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, replace
from enum import Enum
from functools import partial
from importlib import import_module
from importlib.metadata import version
from io import StringIO
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from agreement_table import KNOWN
from forks import Task, each_in_a_fork

from pytest_gpuperf.devices.cuda.device import CudaDevice
from pytest_gpuperf.devices.simulated import simulated_gpu
from pytest_gpuperf.errors import UsageError
from pytest_gpuperf.measure.syncs import device_syncs, transfers_of
from pytest_gpuperf.measure.trace import parse


REFERENCE: Final = Path(__file__).parents[1] / "docs" / "reference"
DOCUMENT: Final = REFERENCE / "syncs.json"
PAGE: Final = REFERENCE / "syncs.md"
RECORD: Final = Path(__file__).parent / "evidence" / "catalogue.md"
BEGIN: Final = "<!-- written by benchmarks/syncs.py -->\n"

# The document, and its table for readers.


@dataclass(frozen=True, slots=True)
class Program:
    """An operation, as a table names it, and the program that does it.

    ``text`` has the lines that make what it uses, an empty line, and the operation.
    """

    topic: str
    operation: str
    text: str

    @property
    def prepared(self) -> str:
        return self.text.partition("\n\n")[0]

    @property
    def code(self) -> str:
        return self.text.partition("\n\n")[2]


class Does(Enum):
    """What an operation does to the CPU that calls it, worst first."""

    WAITS = "waits"
    MAY_WAIT = "may wait"
    COPIES = "copies"
    NOTHING = "nothing"
    UNKNOWN = "not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Of one run: syncs, those that only a GPU can decide, copies, and what ended it."""

    syncs: int = 0
    inconclusive: int = 0
    copies: int = 0
    failed: str = ""

    @property
    def does(self) -> Does:
        if self.failed:
            return Does.UNKNOWN
        if self.syncs:
            return Does.WAITS
        if self.inconclusive:
            return Does.MAY_WAIT
        return Does.COPIES if self.copies else Does.NOTHING


Answers = Mapping[str, Answer]
"""By release of torch, or by operation."""

SIDES: Final = ("cuda", "simulated")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A program and, by release, the answers of CUDA and of the simulated GPU."""

    program: Program
    cuda: Answers
    simulated: Answers


def read(document: Mapping[str, Any]) -> list[Operation]:
    """Return the operations of the document; a new one needs its program, topic and name."""
    return [
        Operation(
            program=Program(each["topic"], each["operation"], each["program"]),
            **{side: _spread(each.get(side, ())) for side in SIDES},
        )
        for each in document["operations"]
    ]


def _spread(groups: Iterable[Mapping[str, Any]]) -> dict[str, Answer]:
    found = {}
    for group in groups:
        numbers = {n: group[n] for n in ("syncs", "inconclusive", "copies", "failed")}
        found |= dict.fromkeys(group["torch"], Answer(**numbers))
    return found


def written(operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the document: equal answers of several releases are one."""
    return {
        "format": 1,
        "catalogue": CATALOGUE,
        "patterns": [asdict(pattern) for pattern in PATTERNS],
        "operations": [
            {
                "operation": each.program.operation,
                "topic": each.program.topic,
                "program": each.program.text,
                "cuda": list(_grouped(each.cuda)),
                "simulated": list(_grouped(each.simulated)),
            }
            for each in operations
        ],
    }


def in_order(releases: Iterable[str]) -> list[str]:
    return sorted(releases, key=_numbers)


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in release.split("."))


def _grouped(answers: Answers) -> Iterator[dict[str, Any]]:
    releases: dict[Answer, list[str]] = {}
    for release in in_order(answers):
        releases.setdefault(answers[release], []).append(release)
    for answer, those in releases.items():
        yield {"torch": those, "does": answer.does.value, **asdict(answer)}


# For readers: the operations by what they do in all releases, and those that changed.

HEADINGS: Final = {
    Does.WAITS: "Waits",
    Does.MAY_WAIT: "May wait",
    Does.COPIES: "Copies, and does not wait",
}
"""What does neither is in the document alone: a page of all would be read by nobody."""


OTHERWISE: Final = {**KNOWN["syncs"], **KNOWN["miscounted_syncs"]}


def page(operations: Sequence[Operation]) -> str:
    """Tables: a section for each thing that an operation does, a row for each topic."""
    *others, newest = in_order({r for each in operations for r in each.cuda})
    lines = [f"Asked: torch {', '.join(others)} and {newest}."]
    for does, heading in HEADINGS.items():
        lines += ["", f"## {heading}", "", "| | operations |", "|---|---|"]
        for topic in dict.fromkeys(each.program.topic for each in operations):
            cells = [
                _shown(each)
                for each in operations
                if each.program.topic == topic and _always(each) is does
            ]
            if cells:
                lines.append(f"| {topic} | {', '.join(cells)} |")
    return "\n".join([*lines, *_changed(operations), *_differing(operations)]) + "\n"


def _changed(operations: Sequence[Operation]) -> Iterator[str]:
    yield from ("", "## Depends on the release", "")
    yield from ("| operation | by release |", "|---|---|")
    for each in operations:
        if _always(each) is None:
            yield f"| {_code(each.program)} | {'; '.join(_by_release(each.cuda))} |"


def _differing(operations: Sequence[Operation]) -> Iterator[str]:
    yield from ("", "## The simulated GPU says otherwise", "")
    for each in operations:
        if reason := OTHERWISE.get(each.program.operation):
            yield f"- {_code(each.program)}: {reason}"


def _always(each: Operation) -> Does | None:
    """What it does in every release; ``None`` if that, or how often it waits, changed."""
    found = {(answer.does, answer.syncs) for answer in each.cuda.values()}
    return found.pop()[0] if len(found) == 1 else None


def _code(program: Program) -> str:
    return f"`{program.operation}`".replace("|", "&#124;")


def _shown(each: Operation) -> str:
    """Its name, and how often it waits if that is not once."""
    syncs = next(iter(each.cuda.values())).syncs
    return f"{_code(each.program)} ({syncs})" if syncs > 1 else _code(each.program)


def _by_release(answers: Answers) -> Iterator[str]:
    """What it does in one release after another, those of equal answers together."""
    for said, group in groupby(in_order(answers), lambda r: _said(answers[r])):
        minors = [release.rpartition(".")[0] for release in group]
        first, last = minors[0], minors[-1]
        yield f"{first if first == last else f'{first} to {last}'}: {said}"


def _said(answer: Answer) -> str:
    if answer.failed:
        return f"not run, `{answer.failed}`"
    times = f" {answer.syncs} times" if answer.syncs > 1 else ""
    return f"{answer.does.value}{times}"


# NVIDIA's catalogue beside both.

CATALOGUE: Final = (
    "https://github.com/NVIDIA/TensorRT-LLM/blob/de6776e454ae4b8285193f54059c6171e7c02889/"
    ".claude/skills/perf-torch-sync-free/references/sync-patterns.md"
)
"""Operations of torch that wait, in nine chapters; 1 to 7 have 28 rows in tables."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A row of the catalogue as operations of ours: whether it waits, what to do instead."""

    chapter: int
    operation: str
    syncs: bool = True
    instead: str = ""


PATTERNS: Final = tuple(
    Pattern(**each) for each in json.loads(DOCUMENT.read_text("utf-8"))["patterns"]
)

MAY_WAIT: Final = (
    "from pageable memory: NVIDIA's catalogue calls it free of syncs, its runtime's manual says "
    "that the copy might be synchronous and that the driver may wait for the stream to stage it "
    "(https://docs.nvidia.com/cuda/cuda-runtime-api/api-sync-behavior.html)"
)

REASONS: Final[Mapping[str, str]] = {
    pattern.instead: MAY_WAIT
    for pattern in PATTERNS
    if pattern.instead.endswith('("cuda", non_blocking=True)')
    or pattern.instead == "host.cuda(non_blocking=True)"
}
"""Why what we say of an operation is not what the catalogue says."""

CHANGED: Final[Mapping[str, tuple[tuple[int, ...], str]]] = {
    "x[rows] = 0": ((2, 15), "since torch 2.15 a number is set with a fill"),
}
"""The same, from a release of torch on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """An operation of the catalogue: what it says, what we say, what CUDA's calls say."""

    chapter: int
    operation: str
    nvidia: Does
    ours: Does
    cuda: Does
    replaces: bool
    reason: str = ""

    @property
    def agrees(self) -> bool:
        syncs = [side is Does.WAITS for side in (self.nvidia, self.ours, self.cuda)]
        return len({*syncs}) == 1 and self.ours is not Does.MAY_WAIT

    @property
    def line(self) -> str:
        """Its row in a table."""
        shown = "instead: " if self.replaces else ""
        said = "waits" if self.nvidia is Does.WAITS else "does not wait"
        cells = (f"{shown}`{self.operation}`", said, self.cuda.value, self.ours.value)
        return f"| {self.chapter} | {' | '.join(cells)} | {self.reason} |"


def compared(operations: Sequence[Operation], release: str) -> Iterator[Compared]:
    """Yield the catalogue's patterns, each followed by what it says to do instead."""
    known = {each.program.operation: each for each in operations}
    for pattern in PATTERNS:
        for name, syncs in (
            (pattern.operation, pattern.syncs),
            (pattern.instead, False),
        ):
            if name:
                yield Compared(
                    chapter=pattern.chapter,
                    operation=name,
                    nvidia=Does.WAITS if syncs else Does.NOTHING,
                    ours=known[name].simulated[release].does,
                    cuda=known[name].cuda[release].does,
                    replaces=name == pattern.instead,
                    reason=REASONS.get(name) or _changed_in(name, release),
                )


def _changed_in(name: str, release: str) -> str:
    since, reason = CHANGED.get(name, ((), ""))
    return reason if _numbers(release) >= since else ""


CATALOGUE_HEAD: Final = """\
# NVIDIA's catalogue of syncs

The 28 patterns in the tables 1 to 7 of [NVIDIA's catalogue]({address}), each followed by what the
catalogue says to write instead. "CUDA" are the calls of real torch {release} over stub CUDA, `gpuperf audit` is
the simulated GPU. Made by `benchmarks/syncs.py`.

{patterns} of 28 patterns agree, and {instead} of {alternatives} that replace them.

| | pattern | catalogue | CUDA | gpuperf audit | why they differ |
|---|---|---|---|---|---|
"""


def catalogue(operations: Sequence[Operation]) -> str:
    """A page: each pattern and what replaces it, by all three, with the newest torch."""
    release = in_order(operations[0].cuda)[-1]
    rows = list(compared(operations, release))
    patterns = [row for row in rows if not row.replaces]
    instead = {row.operation: row for row in rows if row.replaces}
    head = CATALOGUE_HEAD.format(
        address=CATALOGUE,
        release=release,
        patterns=sum(row.agrees for row in patterns),
        instead=sum(row.agrees for row in instead.values()),
        alternatives=len(instead),
    )
    return head + "".join(f"{row.line}\n" for row in rows)


# Asking.

MOST_SECONDS: Final = 60
"""Of one program on one side."""


IMPORTED_ONCE: Final = (
    "torch.utils.flop_counter",
    "torch._dynamo",
    "pytest_gpuperf.devices.simulated.gpu",
)
"""Before the forks: each would import them anew, for longer than all else takes."""


def on_cuda(program: Program) -> Answer:
    names: dict[str, object] = {}
    exec(program.prepared, names)  # noqa: S102, our own programs
    code = compile(program.code, "program.py", "exec")
    step = partial(exec, code, names)
    step()
    trace = parse(CudaDevice.open().profile(step, [()]))
    syncs = len(list(device_syncs(trace)))
    copies = [each.pinned for each in transfers_of(trace)]
    # A copy from pageable memory that nothing waits for is staged: CUDA may wait.
    inconclusive = 0 if syncs else copies.count(False)
    return Answer(syncs=syncs, inconclusive=inconclusive, copies=len(copies))


def on_simulated(program: Program) -> Answer:
    with simulated_gpu() as gpu:
        names: dict[str, object] = {}
        exec(program.prepared, names)  # noqa: S102
        code = compile(program.code, "program.py", "exec")
        exec(code, names)  # noqa: S102
        gpu.begin_step()
        exec(code, names)  # noqa: S102
        audit = gpu.end_step()
    if audit.not_checked:
        return Answer(
            failed=f"{audit.not_checked[0].op}: {audit.not_checked[0].reason}"
        )
    copies = sum(copy.per_step for copy in audit.copies)
    return Answer(
        syncs=audit.totals.syncs, inconclusive=audit.totals.inconclusive, copies=copies
    )


def quietly(ask: partial[Answer]) -> Answer:
    warnings.simplefilter("ignore")
    with redirect_stdout(StringIO()):
        return ask()


def asked(operations: Sequence[Operation]) -> dict[str, dict[str, Answer]]:
    """Return by side and operation what became of each program."""
    for module in IMPORTED_ONCE:
        import_module(module)
    gc.freeze()  # a collection in a fork would copy all of this process's memory
    import_module("torch").set_num_threads(1)  # as many processes as cores
    sides = {"cuda": on_cuda, "simulated": on_simulated}
    tasks = [
        Task(
            name=f"{side} {each.program.operation}",
            function=quietly,
            arguments=(partial(ask, each.program),),
        )
        for side, ask in sides.items()
        for each in operations
    ]
    found: dict[str, dict[str, Answer]] = {side: {} for side in sides}
    jobs = os.cpu_count() or 1
    for ended in each_in_a_fork(tasks, jobs=jobs, most_seconds=MOST_SECONDS):
        side, _, operation = ended.name.partition(" ")
        found[side][operation] = ended.result or Answer(failed=ended.failure)
    return found


def why_no_gpu() -> str:
    """Ask in a fork: those of a process that has used CUDA cannot use it."""

    def opened() -> str:
        try:
            CudaDevice.open()
        except UsageError as error:
            return str(error)
        return ""

    task = Task(name="open", function=opened, arguments=())
    ended = next(each_in_a_fork([task], jobs=1, most_seconds=MOST_SECONDS))
    return ended.failure or str(ended.result)


def with_release(
    each: Operation, release: str, found: Mapping[str, Mapping[str, Answer]]
) -> Operation:
    name = each.program.operation
    return replace(
        each,
        cuda={**each.cuda, release: found["cuda"][name]},
        simulated={**each.simulated, release: found["simulated"][name]},
    )


def write_pages(operations: list[Operation]) -> None:
    RECORD.write_text(catalogue(operations), encoding="utf-8")
    text = PAGE.read_text(encoding="utf-8")
    head = text[: text.index(BEGIN) + len(BEGIN)]
    PAGE.write_text(f"{head}\n{page(operations)}", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", action="store_true", help="ask nobody")
    options = parser.parse_args()
    operations = read(json.loads(DOCUMENT.read_text("utf-8")))
    if not options.page:
        if missing := why_no_gpu():
            print(missing, file=sys.stderr)
            return 4
        release = version("torch").partition("+")[0]
        found = asked(operations)
        operations = [with_release(each, release, found) for each in operations]
        DOCUMENT.write_text(
            json.dumps(written(operations), indent=1) + "\n", encoding="utf-8"
        )
        show(operations, release)
    write_pages(operations)
    return 0


def show(operations: list[Operation], release: str) -> None:
    for each in operations:
        cuda, ours = each.cuda[release], each.simulated[release]
        if cuda != ours or cuda.failed:
            print(f"{each.program.operation}: CUDA {cuda}, simulated {ours}")
    for row in compared(operations, release):
        if not row.agrees:
            print(row)


if __name__ == "__main__":
    sys.exit(main())
