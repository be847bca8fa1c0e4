r"""Static linters beside the simulated GPU: which of the lines that wait does each name?

    python benchmarks/linters.py [--write FILE]

Asks hotpath-ai, torch-preflight, two patterns of grep and the simulated GPU about each
function of ``tests/scripts/held_out``. For the linters each function is put into a loop that
trains, as they look into such loops; the rest of its file stays. The truth are the lines at
which torch waits for the GPU of this machine, which may be stub CUDA:

    make cuda
    GPUPERF_STUB_VALUES=mirror LD_LIBRARY_PATH=.tox/cuda/stub_cuda/libs \
        .tox/cuda/bin/python benchmarks/linters.py --write benchmarks/evidence/linters.md

A linter names a line if a rule about syncs does. One that is not installed (``--hotpath``, ``--torch-preflight``)
has no row.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from agreement_table import UNKNOWN
from held_out import SNIPPETS, Answer, asked


LOOP: Final = "    for batch in loader:"
TRAINS: Final = "        loss.backward()"
"""What makes of a loop one that trains, in the eyes of a linter."""

HOTPATH_WAITS: Final = frozenset({"KP003", "KP004", "KP017"})
"""``.item()``, transfers and ``.numpy()`` inside of a loop."""

PREFLIGHT_WAITS: Final = frozenset({"TG007", "TG013"})
"""Synchronisation in an inner loop, and transfers of each iteration."""

GREPS: Final = (r"\.item\(", r"\.(item|cpu|tolist|numpy)\(")

Named = Callable[[Path], Iterator[tuple[str, int]]]
"""Asks a tool about the files of a folder: the file and the number of each named line."""


def looped(text: str) -> Iterator[tuple[str, int]]:
    """Yield the lines of a file with the functions in loops, and where each was."""
    ends = {
        node.body[0].lineno: node.end_lineno or node.lineno
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef) and not node.args.args
    }
    end = 0
    for number, line in enumerate(text.splitlines(), start=1):
        if number in ends:
            end = ends[number]
            yield LOOP, 0
        yield (f"    {line}" if line and number <= end else line), number
        if number == end:
            yield TRAINS, 0


def by_hotpath(command: str, folder: Path) -> Iterator[tuple[str, int]]:
    for file in sorted(folder.glob("*.py")):
        report = printed(command, "analyze", str(file), "--format=json")
        for each in (e for f in json.loads(report)["files"] for e in f["findings"]):
            if each["rule_id"] in HOTPATH_WAITS:
                yield file.name, int(each["line"])


def by_preflight(command: str, folder: Path) -> Iterator[tuple[str, int]]:
    report = printed(command, "check", str(folder), "--format=json")
    for each in json.loads(report)["diagnostics"]:
        if each["code"] in PREFLIGHT_WAITS:
            yield Path(each["path"]).name, int(each["line"])


def by_grep(pattern: str, folder: Path) -> Iterator[tuple[str, int]]:
    for file in folder.glob("*.py"):
        for number, line in enumerate(file.read_text("utf-8").splitlines(), start=1):
            if re.search(pattern, line):
                yield file.name, number


def printed(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def version_beside(command: str, package: str) -> str:
    python = Path(command).absolute().with_name("python")
    ask = f"from importlib.metadata import version; print(version({package!r}))"
    return printed(str(python), "-c", ask).strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """Who names lines, and what it needs to do so."""

    name: str
    rules: str
    runs_code: bool
    said: frozenset[str]

    def row(self, true: frozenset[str]) -> str:
        found, false = len(self.said & true), len(self.said - true)
        numbers = f"{found} | {len(true) - found} | {false}"
        return f"| {self.name} | {self.rules} | {'yes' if self.runs_code else 'no'} | {numbers} |"


def linters(options: argparse.Namespace) -> Iterator[tuple[str, str, Named]]:
    """Name, rules and way to ask of each linter that is installed."""
    for package, command, rules, named in (
        ("hotpath-ai", options.hotpath, HOTPATH_WAITS, by_hotpath),
        ("torch-preflight", options.torch_preflight, PREFLIGHT_WAITS, by_preflight),
    ):
        if command:
            name = f"{package} {version_beside(command, package)}"
            yield name, ", ".join(sorted(rules)), partial(named, command)
    for pattern in GREPS:
        shown = pattern.replace("|", "&#124;")
        yield "grep", f"`{shown}`", partial(by_grep, pattern)


def tools(options: argparse.Namespace, judged: Callable[[str], bool]) -> Iterator[Tool]:
    with TemporaryDirectory() as name:
        folder = Path(name)
        origin: dict[tuple[str, int], str] = {}
        for source in SNIPPETS.glob("*.py"):
            lines = list(looped(source.read_text("utf-8")))
            text = "\n".join(line for line, _ in lines) + "\n"
            folder.joinpath(source.name).write_text(text, encoding="utf-8")
            for number, (_, was) in enumerate(lines, start=1):
                origin[source.name, number] = f"{source.name}:{was}"
        for tool, rules, named in linters(options):
            said = frozenset(filter(judged, (origin[at] for at in named(folder))))
            yield Tool(name=tool, rules=rules, runs_code=False, said=said)


def lines_of(answers: Mapping[str, Answer]) -> frozenset[str]:
    syncs = (line for answer in answers.values() for line in answer.syncs)
    return frozenset(line for line in syncs if line != UNKNOWN)


def within(functions: frozenset[str]) -> Iterator[str]:
    """Yield the lines of *functions*."""
    for source in SNIPPETS.glob("*.py"):
        for node in ast.parse(source.read_text("utf-8")).body:
            if (
                getattr(node, "name", None)
                and f"{source.stem}.{node.name}" in functions
            ):
                for number in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                    yield f"{source.name}:{number}"


HEAD: Final = """\
# Linters beside gpuperf audit

Which lines of {functions} functions make the CPU wait for the GPU (`tests/scripts/held_out`)?
Made by `benchmarks/linters.py`, which says how. The
truth is CUDA's: the calls of real torch {torch} over stub CUDA, with right values.

The functions are this project's own. The rules of `gpuperf audit` were not written from them, but
two faults that the first run showed were mended (it found 364 of 366 lines and named one in vain).
Only rules about syncs count. torch-preflight by design does not name one sync per step. In {unlined} of
the functions CUDA also waits at lines that its trace does not know: what is named there is not counted.

| tool | rules | runs the code | found, of {lines} | missed | named in vain |
|---|---|---|---|---|---|
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hotpath", default=shutil.which("hotpath"))
    parser.add_argument("--torch-preflight", default=shutil.which("torch-preflight"))
    parser.add_argument("--write", type=Path, help="file of what is printed")
    options = parser.parse_args()
    simulated = asked("simulated", "")
    truth = asked("cuda", "")
    not_checked = frozenset(
        name
        for name, answer in truth.items()
        if answer.raised or simulated[name].not_checked or simulated[name].raised
    )
    unlined = frozenset(n for n, a in truth.items() if UNKNOWN in a.syncs) - not_checked
    true = lines_of(truth) - {*within(not_checked)}
    open_lines = {*within(not_checked | unlined)} - true

    def judged(line: str) -> bool:
        return line not in open_lines

    own = Tool(
        name=f"gpuperf audit {version('pytest-gpuperf')}",
        rules="all",
        runs_code=True,
        said=frozenset(filter(judged, lines_of(simulated))),
    )
    page = HEAD.format(
        functions=len(truth) - len(not_checked),
        lines=len(true),
        unlined=len(unlined),
        torch=version("torch"),
    )
    page += "".join(f"{tool.row(true)}\n" for tool in (own, *tools(options, judged)))
    print(page, end="")
    for name in sorted(not_checked):
        print(
            f"not checked: {name}: {truth[name].raised or simulated[name].not_checked}"
        )
    if options.write:
        options.write.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
