"""Static linters beside the simulated GPU: which of the lines that wait does each name?

    python benchmarks/linters.py [--hotpath COMMAND] [--torch-preflight COMMAND]

Each function of ``tests/scripts/held_out`` becomes the body of a loop over batches in a file
of its own, as linters look into loops. The truth are the lines on which torch waits: of the
GPU of this machine, which may be stub CUDA, or with ``--truth=simulated`` those that the
simulated GPU names, which agree with stub CUDA on 0.99 of the lines (``held_out.py``). A
linter names a line if a rule about waits does, and so does ``grep``. Prints a table; a
linter that is not installed has no row.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import indent
from typing import Final

from held_out import SNIPPETS
from held_out import UNKNOWN
from held_out import Answer
from held_out import asked


HEAD: Final = "import torch\ndef train(model, loader):\n    for batch in loader:\n"
INDENT: Final = "    "

HOTPATH_WAITS: Final = frozenset({"KP003", "KP004"})
"""``.item()`` and transfers inside of a loop."""

PREFLIGHT_WAITS: Final = frozenset({"TG007", "TG013"})
"""Synchronisation in an inner loop, and transfers of each iteration."""

READS: Final = re.compile(r"\.(item|cpu|tolist|numpy)\(")


@dataclass(frozen=True, slots=True, kw_only=True)
class Looped:
    """One function as a loop: its file, and where its lines were."""

    file: Path
    source: str
    shift: int

    def line(self, number: int) -> str:
        """Name a line of the file as the truth does."""
        return f"{self.source}:{number + self.shift}"


def looped(folder: Path) -> Iterator[Looped]:
    """Write each function of the corpus as the body of a loop."""
    for source in sorted(SNIPPETS.glob("*.py")):
        text = source.read_text(encoding="utf-8")
        lines = text.splitlines()
        for node in ast.parse(text).body:
            if not isinstance(node, ast.FunctionDef) or node.args.args:
                continue
            first, last = node.body[0].lineno, node.end_lineno or node.lineno
            body = indent("\n".join(lines[first - 1 : last]), INDENT)
            file = folder / f"{source.stem}_{node.name}.py"
            file.write_text(f"{HEAD}{body}\n", encoding="utf-8")
            yield Looped(
                file=file, source=source.name, shift=first - 1 - HEAD.count("\n")
            )


Named = Callable[[Path], list[tuple[Path, int]]]


def by_hotpath(command: str) -> Named:
    def named(folder: Path) -> list[tuple[Path, int]]:
        found = []
        for file in sorted(folder.glob("*.py")):
            report = printed(command, "analyze", str(file), "--format=json")
            found += [
                (file, int(each["line"]))
                for found in json.loads(report)["files"]
                for each in found["findings"]
                if each["rule_id"] in HOTPATH_WAITS
            ]
        return found

    return named


def by_preflight(command: str) -> Named:
    def named(folder: Path) -> list[tuple[Path, int]]:
        report = printed(command, "check", str(folder), "--format=json")
        return [
            (Path(each["path"]), int(each["line"]))
            for each in json.loads(report)["diagnostics"]
            if each["code"] in PREFLIGHT_WAITS
        ]

    return named


def by_grep(folder: Path) -> list[tuple[Path, int]]:
    return [
        (file, number)
        for file in folder.glob("*.py")
        for number, line in enumerate(file.read_text().splitlines(), start=1)
        if READS.search(line)
    ]


def printed(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def lines_of(answers: Mapping[str, Answer]) -> set[str]:
    """The lines that wait, of functions that were judged."""
    return {
        line
        for answer in answers.values()
        if not (answer.raised or answer.not_judged)
        for line in answer.waits
        if line != UNKNOWN
    }


def row(name: str, said: set[str], true: set[str]) -> str:
    both = len(said & true)
    precision = f"{both / len(said):.2f}" if said else "-"
    return f"| {name} | {both} | {both / len(true):.2f} | {precision} |"


def version(command: str, package: str) -> str:
    python = Path(command).resolve().parent / "python"
    ask = f"from importlib.metadata import version; print(version({package!r}))"
    return printed(str(python), "-c", ask).strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hotpath", default=shutil.which("hotpath"))
    parser.add_argument("--torch-preflight", default=shutil.which("torch-preflight"))
    parser.add_argument("--truth", choices=("cuda", "simulated"), default="cuda")
    options = parser.parse_args()
    simulated = lines_of(asked("pretend", ""))
    true = lines_of(asked("cuda", "")) if options.truth == "cuda" else simulated
    linters: dict[str, Named] = {"grep": by_grep}
    if options.hotpath:
        name = f"hotpath-ai {version(options.hotpath, 'hotpath-ai')}"
        linters[name] = by_hotpath(options.hotpath)
    if options.torch_preflight:
        name = f"torch-preflight {version(options.torch_preflight, 'torch-preflight')}"
        linters[name] = by_preflight(options.torch_preflight)
    print(f"| names lines that wait | of {len(true)} | recall | precision |")
    print("|---|---|---|---|")
    with TemporaryDirectory() as folder:
        loops = {loop.file.resolve(): loop for loop in looped(Path(folder))}
        for name, named in linters.items():
            said = {
                loops[file.resolve()].line(line) for file, line in named(Path(folder))
            }
            print(row(name, said, true))
    if options.truth == "cuda":
        print(row("gpuperf audit", simulated, true))
    return 0


if __name__ == "__main__":
    sys.exit(main())
