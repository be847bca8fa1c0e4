"""Run the same code on the pretend GPU and on the real one, and print what differs.

    python benchmarks/agreement.py corpus [--out FOLDER] [--answers FOLDER]
    python benchmarks/agreement.py corpus --join --answers FOLDER --out FOLDER

``corpus`` asks about the snippets of the four corpora ``tests/unit/pretend_corpus*.py``: how
often the host waits, on which lines, what is copied from or to pageable memory, and how
often torch's sync debug mode warns. About torch's own operations, ``agreement_operations.py``
asks. Each side has a process of its own, because one of them patches torch, and that one
forks, so that a crash ends one snippet. Answers are written to the folder of ``--answers`` as
they come; ``--join`` makes the tables of those that are there, on any machine. Exit
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
from contextlib import suppress
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
from agreement_cases import times_warned
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
    return seen_on_cuda(cases, device.profile, times_warned)


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

MACHINE: Final = "machine.json"


def ask(cases: str, answers: Path, only: str = "") -> None:
    """Ask both sides beside each other; each writes its answers as they come."""
    environment = CudaDevice.open().environment()
    names = ("torch", "driver")
    machine = {n: v for n, v in environment.software.items() if n in names}
    machine["GPU"] = environment.hardware.name
    (answers / MACHINE).write_text(json.dumps(machine), encoding="utf-8")
    program = [sys.executable, "-W", "ignore", __file__, cases, "--only", only]
    asking = [
        subprocess.Popen(
            [*program, "--side", side, "--answers", str(answers)],
            env=VALUES | os.environ,
        )
        for side in SIDES
    ]
    for process in asking:
        process.wait()


def write_answers(side: str, cases: Sequence[Case], answers: Path) -> None:
    with (answers / f"{side}.jsonl").open("w", encoding="utf-8") as file:
        for name, seen in answered(side, cases):
            file.write(json.dumps([name, asdict(seen)]) + "\n")
            file.flush()


def read_answers(side: str, answers: Path) -> dict[str, Seen]:
    """Return what *side* has said; a run that was ended may have left half a line."""
    found = {}
    for line in (answers / f"{side}.jsonl").read_text(encoding="utf-8").splitlines():
        with suppress(json.JSONDecodeError):
            name, seen = json.loads(line)
            found[name] = Seen(waits=tuple(seen.pop("waits")), **seen)
    return found


def join(cases: str, answers: Path, out: Path | None = None) -> list[Row]:
    """Pair what both sides have said; write ``agreement-<cases>.md`` and ``.json``."""
    pretend, cuda = (read_answers(side, answers) for side in SIDES)
    both = [name for name in pretend if name in cuda]
    rows = rows_of({n: pretend[n] for n in both}, {n: cuda[n] for n in both})
    if out is not None:
        machine = json.loads((answers / MACHINE).read_text(encoding="utf-8"))
        title = f"Agreement on waits and copies: {cases}"
        page = as_markdown(title, machine, rows, DIFFERENCES)
        document = json.dumps(as_document(machine, rows), indent=1)
        (out / f"agreement-{cases}.md").write_text(page, encoding="utf-8")
        (out / f"agreement-{cases}.json").write_text(document, encoding="utf-8")
    return rows


def compared(cases: str, out: Path | None = None, only: str = "") -> list[Row]:
    """Ask both sides and pair what they say."""
    with TemporaryDirectory() as folder:
        ask(cases, Path(folder), only)
        return join(cases, Path(folder), out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", choices=CASES)
    parser.add_argument("--out", type=Path, help="folder of the results")
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    parser.add_argument("--answers", type=Path, help="folder that keeps the answers")
    parser.add_argument(
        "--join", action="store_true", help="ask nobody: join the answers of a folder"
    )
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        cases = [c for c in CASES[options.cases]() if options.only in c.name]
        write_answers(options.side, cases, options.answers)
        return 0
    try:
        rows = rows_asked_for(options)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 4
    print(*differences(rows), sep="\n")
    open_rows = unexplained(rows, DIFFERENCES)
    print(f"{len(rows)} compared, {len(open_rows)} differ without an explanation")
    return int(bool(open_rows))


def rows_asked_for(options: argparse.Namespace) -> list[Row]:
    """Ask, unless the answers are there; keep them where a folder is named."""
    if not options.join:
        CudaDevice.open()
    if options.answers is None:
        return compared(options.cases, options.out, options.only)
    if not options.join:
        options.answers.mkdir(parents=True, exist_ok=True)
        ask(options.cases, options.answers, options.only)
    return join(options.cases, options.answers, options.out)


if __name__ == "__main__":
    sys.exit(main())
