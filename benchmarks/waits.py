"""Which operations of torch make the CPU wait for the GPU, by release of torch.

    python benchmarks/waits.py         # ask about this torch, and write both files
    python benchmarks/waits.py --page  # ask nobody: write the page from the document

Runs each program of ``docs/reference/waits.json`` on the GPU of this machine, which may be stub CUDA,
and on the simulated GPU, in a process of its own, once to load what is loaded once and then
in a profile. What CUDA does is read from its calls. Adds the answers of this release to
that document, and writes the tables of ``docs/reference/waits.md``. Prints
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
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from typing import Final

from forks import Task
from forks import each_in_a_fork
from waits_table import Answer
from waits_table import Operation
from waits_table import Program
from waits_table import catalogue
from waits_table import compared
from waits_table import page
from waits_table import read
from waits_table import written

from pytest_gpuperf.devices.cuda.device import CudaDevice
from pytest_gpuperf.devices.pretend import pretend_gpu
from pytest_gpuperf.errors import UsageError
from pytest_gpuperf.measure.copies import transfers_of
from pytest_gpuperf.measure.syncs import device_waits
from pytest_gpuperf.measure.trace import parse


REFERENCE: Final = Path(__file__).parents[1] / "docs" / "reference"
DOCUMENT: Final = REFERENCE / "waits.json"
PAGE: Final = REFERENCE / "waits.md"
RECORD: Final = Path(__file__).parent / "evidence" / "catalogue.md"
BEGIN: Final = "<!-- written by benchmarks/waits.py -->\n"

MOST_SECONDS: Final = 60
"""Of one program on one side."""


IMPORTED_ONCE: Final = (
    "torch.utils.flop_counter",
    "torch._dynamo",
    "pytest_gpuperf.devices.pretend.gpu",
)
"""Before the forks: each would import them anew, for longer than all else takes."""


def on_cuda(program: Program) -> Answer:
    names: dict[str, object] = {}
    exec(program.prepared, names)  # noqa: S102, our own programs
    code = compile(program.code, "program.py", "exec")
    step = partial(exec, code, names)
    step()
    trace = parse(CudaDevice.open().profile(step, [()]))
    waits = len(list(device_waits(trace)))
    copies = [each.pinned for each in transfers_of(trace)]
    # A copy from pageable memory that nothing waits for is staged: CUDA may wait.
    maybe = 0 if waits else copies.count(False)
    return Answer(waits=waits, maybe=maybe, copies=len(copies))


def on_simulated(program: Program) -> Answer:
    with pretend_gpu() as gpu:
        names: dict[str, object] = {}
        exec(program.prepared, names)  # noqa: S102
        code = compile(program.code, "program.py", "exec")
        exec(code, names)  # noqa: S102
        gpu.begin_step()
        exec(code, names)  # noqa: S102
        audit = gpu.end_step()
    if audit.not_judged:
        return Answer(failed=f"{audit.not_judged[0].op}: {audit.not_judged[0].reason}")
    copies = sum(copy.per_step for copy in audit.copies)
    return Answer(waits=audit.totals.syncs, maybe=audit.totals.maybe, copies=copies)


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
