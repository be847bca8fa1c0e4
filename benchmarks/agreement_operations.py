"""Ask the simulated GPU and CUDA about every operation of torch's own database.

    python benchmarks/agreement_operations.py [--out FILE] [--only REGEX] [--part N/M]

The samples of each operation run forward and backward, on each side in a process of its
own. Waits in each direction, pageable copies and bytes are compared. FILE is the table,
as Markdown. Exit status: 1 where an operation differs that ``operation_differences.py``
does not have, or has one that does not differ, 4 without a GPU.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import sys
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from typing import Final

import torch
from forks import Task
from forks import each_in_a_fork
from operation_answers import SIDES
from operation_answers import answers_of
from operation_cases import operations
from operation_differences import DIFFERENCES
from operation_differences import UNJUDGED
from operation_table import Answer
from operation_table import Row
from operation_table import Standing
from operation_table import as_markdown
from operation_table import news


MOST_SECONDS: Final = 300
"""Of one operation on one side, which takes less than one on a machine that is idle."""


PRELOADED: Final = (
    "torch._dynamo",
    "torch.profiler",
    "pytest_gpuperf.devices.pretend.gpu",
    "pytest_gpuperf.devices.cuda.sync_markers",
)
"""Modules that each side imports, and that do not begin to use CUDA."""


def answers_by_name(name: str, side: str) -> list[dict[str, Any]]:
    return answers_of(side, operations()[name])


def tasks(names: Iterable[str]) -> Iterator[Task]:
    for name in names:
        for side in SIDES:
            yield Task(
                name=f"{name} {side}", function=answers_by_name, arguments=(name, side)
            )


def rows_of(names: Iterable[str], jobs: int) -> Iterator[Row]:
    """Ask both sides about each operation; a row is yielded when both have answered."""
    answered: dict[str, dict[str, Any]] = {}
    for ended in each_in_a_fork(tasks(names), jobs=jobs, most_seconds=MOST_SECONDS):
        name, _, side = ended.name.rpartition(" ")
        both = answered.setdefault(name, {})
        both[side] = ended
        if len(both) == len(SIDES):
            yield _row(name, answered.pop(name))


def _row(name: str, both: dict[str, Any]) -> Row:
    failed = [f"{side}: {e.failure}" for side, e in both.items() if e.failure]
    sides = {
        side: [Answer(**answer) for answer in ended.result or ()]
        for side, ended in both.items()
    }
    return Row(name=name, silent="; ".join(failed), **sides)


def has_gpu() -> bool:
    """Ask in a fork: who has asked cannot fork any more."""
    asked = Task(name="is there a GPU", function=torch.cuda.is_available, arguments=())
    (ended,) = each_in_a_fork([asked], jobs=1, most_seconds=MOST_SECONDS)
    return bool(ended.result)


def compared(only: str = "", part: str = "1/1", jobs: int = 0) -> list[Row]:
    """Ask both sides about the operations with a name that matches *only*, in their order."""
    first, every = map(int, part.split("/"))
    names = [name for name in operations() if re.search(only, name)][first - 1 :: every]
    for module in PRELOADED:
        importlib.import_module(module)
    jobs = jobs or os.cpu_count() or 1
    rows = {row.name: row for row in rows_of(names, jobs)}
    # A trace has the times of two clocks, which drift apart on a busy machine: a wait may
    # seem to lie behind the operation that it is in. That does not happen twice.
    again = [name for name in names if rows[name].standing is Standing.DIFFER]
    rows |= {row.name: row for row in rows_of(again, jobs)}
    return [rows[name] for name in names]


def write(rows: Sequence[Row], out: Path | None, answers: Path | None) -> None:
    """Write the table, and each answer, for who looks for a cause."""
    title = f"torch {torch.__version__}"
    page = as_markdown(rows, title, DIFFERENCES, UNJUDGED)
    if out:
        out.write_text(page, encoding="utf-8")
    if answers:
        document = json.dumps([asdict(row) for row in rows])
        answers.write_text(document, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", default="", help="operations with a name that matches it"
    )
    parser.add_argument("--part", default="1/1", help="each M-th, from the N-th on")
    parser.add_argument("--jobs", type=int, default=0, help="processes at a time")
    parser.add_argument("--out", type=Path, help="file of the table")
    parser.add_argument("--answers", type=Path, help="file of all answers, as JSON")
    options = parser.parse_args()
    if not has_gpu():
        print("there is no GPU to compare with", file=sys.stderr)
        return 4
    rows = compared(options.only, options.part, options.jobs)
    write(rows, options.out, options.answers)
    found = [*news(rows, DIFFERENCES, UNJUDGED)]
    print(*found, sep="\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
