"""Run the same code on the pretend GPU and on the real one, and print what differs.

    python benchmarks/agreement.py corpus [--out FOLDER]

``corpus`` asks about the snippets of ``tests/unit/pretend_corpus.py``; about torch's own
operations, ``agreement_operations.py`` asks. Each side has a process of its own, because
one of them patches torch. Exit status: 0 where no case differs, 1 where one does, 4 without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from agreement_cases import CASES
from agreement_cases import Case
from agreement_cases import seen_on_cuda
from agreement_cases import seen_on_pretend
from agreement_table import Row
from agreement_table import Seen
from agreement_table import Standing
from agreement_table import as_document
from agreement_table import as_markdown
from agreement_table import differences
from agreement_table import rows_of

from pytest_gpuperf.devices.cuda.device import CudaDevice
from pytest_gpuperf.errors import UsageError


Answers = Iterator[tuple[str, Seen]]


def on_cuda(cases: Iterator[Case]) -> Answers:
    device = CudaDevice.open()
    return seen_on_cuda(cases, device.profile)


SIDES: Final[dict[str, Callable[[Iterator[Case]], Answers]]] = {
    "pretend": seen_on_pretend,
    "cuda": on_cuda,
}


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
        page = as_markdown(f"Agreement on syncs: {cases}", machine, rows)
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
        cases = (c for c in CASES[options.cases]() if options.only in c.name)
        seen = {case: asdict(answer) for case, answer in SIDES[options.side](cases)}
        options.write.write_text(json.dumps(seen), encoding="utf-8")
        return 0
    try:
        CudaDevice.open()
    except UsageError as error:
        print(error, file=sys.stderr)
        return 4
    rows = compared(options.cases, options.out, options.only)
    print(*differences(rows), sep="\n")
    return int(any(row.standing is Standing.DIFFER for row in rows))


if __name__ == "__main__":
    sys.exit(main())
