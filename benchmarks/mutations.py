"""Does `make cuda` turn red when a module of the CUDA path is broken?

    python benchmarks/mutations.py LIBS [--only TEXT] [--out FILE]

Each break of ``mutation_cases.py`` is made in a copy of the package, of which the tree
stays as it is. Then the tests that are to notice it run on real torch over stub CUDA: once
unbroken, when they must pass, and once broken. LIBS is the folder of the stub libraries,
after `make cuda` ``.tox/cuda/stub_cuda/libs``, and the interpreter is the one that has the
CUDA build of torch: ``.tox/cuda/bin/python``. TEXT chooses among the modules and the breaks.
The table is printed, and written to FILE. Exits with 1 where a break stays green, or tests
fail without one.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from mutation_cases import MUTATIONS
from mutation_cases import Mutation
from mutation_cases import broken_text


ROOT: Final = Path(__file__).resolve().parents[1]
COPIED: Final = ("benchmarks", "pytest_gpuperf", "tests", "pyproject.toml")
"""What the tests need, beside each other: they put the folder above them first."""

HANGS_SECONDS: Final = 600
MOST_MEMORY: Final = 8 * 2**30

FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (?P<test>.+?)(?: - .*)?$", re.MULTILINE)

HEADER: Final = """\
| module | what is broken | part of `make cuda` | first test that fails |
|---|---|---|---|
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of the tests: the first that failed, and why there is none."""

    passed: bool
    first: str = ""


class Copy:
    """A copy of the tree, in which the package can be broken."""

    def __init__(self, folder: Path, libraries: Path) -> None:
        self.folder = folder
        self._libraries = libraries
        self._unbroken = cache(self._run)
        for name in COPIED:
            source, target = ROOT / name, folder / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.pyc"))
            else:
                shutil.copy(source, target)

    def unbroken(self, mutation: Mutation) -> Outcome:
        """Run its tests once, whatever the number of breaks that ask for them."""
        return self._unbroken(mutation.tests)

    def broken(self, mutation: Mutation) -> Outcome:
        """Run its tests with it, and take it back."""
        path = self.folder / "pytest_gpuperf" / mutation.file
        text = path.read_text(encoding="utf-8")
        path.write_text(broken_text(mutation, text), encoding="utf-8")
        try:
            return self._run(mutation.tests)
        finally:
            path.write_text(text, encoding="utf-8")

    def _run(self, tests: Sequence[str]) -> Outcome:
        pytest = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-rfE"]
        quiet = ["-p", "no:cacheprovider", "--color=no", "--numprocesses=0"]
        try:
            done = subprocess.run(
                [*pytest, *quiet, *tests],
                cwd=self.folder,
                env=self._environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=HANGS_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return Outcome(passed=False, first="none: the tests did not end")
        # The last: what a test shows of a pytest that it has run comes before.
        found = next(reversed([*FAILED.finditer(done.stdout)]), None)
        if done.returncode and not found:
            sys.exit(f"pytest ended with {done.returncode}:\n{done.stdout[-2000:]}")
        return Outcome(
            passed=done.returncode == 0, first=_name(found["test"]) if found else ""
        )

    def _environment(self) -> Mapping[str, str]:
        """Return the one of `make cuda`, in which the copy is found first."""
        own = {
            "GPUPERF_STUB_CLOCK": "virtual",
            "LD_LIBRARY_PATH": str(self._libraries),
            "LD_PRELOAD": str(self._libraries / "libgpuperf_clock.so"),
            "PYTHONPATH": str(self.folder),
        }
        return {n: v for n, v in os.environ.items() if n != "CI"} | own


def _name(test: str) -> str:
    """Return the test without its folder, with what a table takes for a column escaped."""
    return test.rpartition("/")[2].replace("|", r"\|")


def chosen(text: str) -> Iterator[Mutation]:
    for mutation in MUTATIONS:
        if text in f"{mutation.file} {mutation.broken}":
            yield mutation


def row(mutation: Mutation, outcome: Outcome) -> str:
    first = "**none: green**" if outcome.passed else f"`{outcome.first}`"
    return f"| `{mutation.file}` | {mutation.broken} | {mutation.part} | {first} |\n"


def tried(copy: Copy, mutation: Mutation) -> Outcome:
    """Run the tests of *mutation* without it, which must pass, and with it."""
    unbroken = copy.unbroken(mutation)
    if not unbroken.passed:
        sys.exit(f"{unbroken.first} fails without a break")
    start = time.monotonic()
    outcome = copy.broken(mutation)
    seconds = time.monotonic() - start
    print(f"{row(mutation, outcome).rstrip()} {seconds:.0f} s", flush=True)
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("libraries", type=Path, help="folder of the stub libraries")
    parser.add_argument("--only", default="", help="part of a module or a break")
    parser.add_argument("--out", type=Path, help="file for the table")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder) / "copy", options.libraries.resolve())
        found = [(one, tried(copy, one)) for one in chosen(options.only)]
    green = sum(outcome.passed for _, outcome in found)
    table = HEADER + "".join(row(one, outcome) for one, outcome in found)
    if options.out:
        options.out.write_text(table, encoding="utf-8")
    print(table, f"{len(found) - green} of {len(found)} red", sep="\n")
    return int(green > 0)


if __name__ == "__main__":
    sys.exit(main())
