"""What an ordinary test did on the simulated GPU."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from .finding import Finding, FindingKind, file_of


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedTest:
    """What a test did on the simulated GPU: certain syncs and copies, line by line.

    Files are named from the rootdir or from site-packages on. Memory that is ``left``
    outlived the test, ``garbage`` was freed by Python's garbage collector alone: their
    reasons say what kept it. ``unchecked`` says why it could not be checked there.
    """

    test: str = ""
    lines: tuple[Finding, ...] = ()
    left: tuple[Finding, ...] = ()
    garbage: tuple[Finding, ...] = ()
    peak_bytes: int = 0
    used: bool = False
    unchecked_ops: int = 0
    unchecked: str = ""

    @property
    def syncs(self) -> int:
        """Syncs on lines that are no test's."""
        return syncs_in(self.judged)

    @property
    def judged(self) -> tuple[Finding, ...]:
        """What lines outside of the tests did: a test must read what it asserts."""
        return tuple(done for done in self.lines if not is_test_code(file_of(done)))

    @property
    def left_tensors(self) -> int:
        """Tensors that it left to the next test."""
        return sum(left.per_step for left in self.left)


def syncs_in(lines: Iterable[Finding]) -> int:
    """Count the syncs in what *lines* did."""
    return sum(done.per_step for done in lines if done.kind is not FindingKind.TRANSFER)


TEST_FOLDERS: Final = frozenset({"test", "tests", "testing", "_pytest", "hypothesis"})
"""Folders whose code only tests run."""


def is_test_code(file: str) -> bool:
    """Whether only tests run the code of *file*, by its name and folders."""
    path = PurePath(file)
    is_named_so = path.stem.startswith("test_") or path.stem.endswith("_test")
    return (
        is_named_so
        or path.name == "conftest.py"
        or not TEST_FOLDERS.isdisjoint(path.parts[:-1])
    )
