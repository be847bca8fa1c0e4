"""Run the same code on the pretend GPU and on the real one, and print what differs.

    python benchmarks/agreement.py corpus [--out FOLDER]

``corpus`` asks about the snippets of the four corpora ``tests/unit/pretend_corpus*.py``: how
often the host waits, on which lines, and what is copied from or to pageable memory. About
torch's own operations, ``agreement_operations.py`` asks. Each side has a process of its own,
because one of them patches torch, and that one forks, so that a crash ends one snippet. Exit
status: 1 where a case differs that ``snippet_differences.py`` does not explain, 4 without a
GPU, else 0.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import asdict
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import torch
from agreement_cases import CASES
from agreement_cases import ROOT
from agreement_cases import Case
from agreement_cases import seen_on_cuda
from agreement_cases import seen_on_pretend
from agreement_table import Row
from agreement_table import Seen
from agreement_table import as_document
from agreement_table import as_markdown
from agreement_table import differences
from agreement_table import rows_of
from agreement_table import unexplained
from forks import Task
from forks import each_in_a_fork
from snippet_differences import DIFFERENCES

from pytest_gpuperf.devices.cuda.device import CudaDevice
from pytest_gpuperf.errors import UsageError


Answers = Iterator[tuple[str, Seen]]

BATCH: Final = 24
"""Cases that share a fork, as long as none of them ends it."""

MOST_SECONDS: Final = 300
"""Of a fork."""


def on_cuda(cases: Sequence[Case]) -> Answers:
    device = replace(CudaDevice.open(), root=ROOT)
    return seen_on_cuda(cases, device.profile)


SIDES: Final = {"pretend": seen_on_pretend, "cuda": on_cuda}


def answers_of(side: str, cases: Sequence[Case]) -> list[tuple[str, Seen]]:
    """Ask one side, in a fork of its own."""
    torch.set_num_threads(1)  # as many forks as cores, and threads wait for each other
    return list(SIDES[side](cases))


def answered(side: str, cases: Sequence[Case], together: int = BATCH) -> Answers:
    """Ask in forks, *together* in one; those that a crash took with it are asked alone."""
    parts = [cases[at : at + together] for at in range(0, len(cases), together)]
    tasks = [
        Task(name=str(index), function=answers_of, arguments=(side, part))
        for index, part in enumerate(parts)
    ]
    for ended in each_in_a_fork(
        tasks, jobs=os.cpu_count() or 1, most_seconds=MOST_SECONDS
    ):
        part = parts[int(ended.name)]
        if ended.result is not None:
            yield from ended.result
        elif together > 1:
            yield from answered(side, part, together=1)
        else:
            yield part[0].name, Seen(silent=f"the process ended: {ended.failure}")


VALUES: Final = {"GPUPERF_STUB_VALUES": "mirror"}
"""On stub CUDA, some snippets raise without right values; a GPU has them."""


def asked(side: str, cases: str, only: str = "") -> dict[str, Seen]:
    """Ask one side in a process of its own."""
    with TemporaryDirectory() as folder:
        answers = Path(folder, "answers.json")
        command = (cases, "--side", side, "--write", str(answers), "--only", only)
        subprocess.run(
            [sys.executable, "-W", "ignore", __file__, *command],
            check=True,
            env=VALUES | os.environ,
        )
        read = json.loads(answers.read_text(encoding="utf-8"))
    return {
        case: Seen(waits=tuple(seen.pop("waits")), **seen)
        for case, seen in read.items()
    }


def compared(cases: str, out: Path | None = None, only: str = "") -> list[Row]:
    """Ask both sides, and write ``agreement-<cases>.md`` and ``.json`` into *out*."""
    rows = rows_of(asked("pretend", cases, only), asked("cuda", cases, only))
    if out is not None:
        environment = CudaDevice.open().environment()
        names = ("torch", "driver")
        machine = {n: v for n, v in environment.software.items() if n in names}
        machine["GPU"] = environment.hardware.name
        page = as_markdown(
            f"Agreement on waits and copies: {cases}", machine, rows, DIFFERENCES
        )
        document = json.dumps(as_document(machine, rows), indent=1)
        (out / f"agreement-{cases}.md").write_text(page, encoding="utf-8")
        (out / f"agreement-{cases}.json").write_text(document, encoding="utf-8")
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", choices=CASES)
    parser.add_argument("--out", type=Path, help="folder of the results")
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        cases = [c for c in CASES[options.cases]() if options.only in c.name]
        answers = dict(answered(options.side, cases))
        seen = {case.name: asdict(answers[case.name]) for case in cases}
        options.write.write_text(json.dumps(seen), encoding="utf-8")
        return 0
    try:
        CudaDevice.open()
    except UsageError as error:
        print(error, file=sys.stderr)
        return 4
    rows = compared(options.cases, options.out, options.only)
    print(*differences(rows), sep="\n")
    return int(bool(unexplained(rows, DIFFERENCES)))


if __name__ == "__main__":
    sys.exit(main())
