"""Compare the memory that the simulated GPU predicts with what torch's own allocator says.

    python benchmarks/agreement_bytes.py [--only TEXT] [--out FOLDER] [--jobs N]
                                         [--answers FOLDER [--join]]

Each program of ``byte_programs.py`` makes three steps, once on the simulated GPU and once on
the real one, each in a process of its own with a time-out, N at a time on each side. The
peaks of the third step are compared: bytes allocated, reserved and requested. ``--answers``
keeps each answer as it comes; ``--join`` compares those that are there, on any machine. Exit status: 0 where all
programs are within the bars whose prediction does not call itself unknown, 1 where one
is not or too few are exact, 4 without a GPU.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib
import json
import os
import random
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import torch
from byte_programs import PROGRAMS

from pytest_gpuperf.devices.cuda.device import CudaDevice
from pytest_gpuperf.devices.simulated import simulated_gpu
from pytest_gpuperf.errors import UsageError
from pytest_gpuperf.measure.emulated import COMPILED_PEAK


if TYPE_CHECKING:
    from pytest_gpuperf.devices.simulated.memory import LiveMemory


STEPS: Final = 3
SECONDS: Final = 240
"""The time-out of one program on one side."""

SLOW_IMPORTS: Final = ("pytest_gpuperf.devices.simulated.gpu", "torch._dynamo")
"""What every program would import anew; none of it starts CUDA."""

MIB: Final = 2**20
ALLOCATED_SHARE: Final = 0.005
RESERVED_SHARE: Final = 0.005
RESERVED_FLOOR: Final = 2 * MIB
LEAST_EXACT: Final = 25
"""Programs that must have the same three numbers to the byte, of all of them."""

CAUSES: Final[Mapping[str, str]] = {
    "nn.Transformer, Adam loop": "whether the mask is causal is read, and guessed here",
    "nn.Transformer, bf16": "whether the mask is causal is read, and guessed here",
    "LSTM of cuDNN": (
        "what cuDNN keeps for itself is the same model over stub libraries and here, and "
        "no figure of cuDNN's"
    ),
}
"""Why a program differs, by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """The most that the third step had at once, or why that is not known.

    ``unchecked`` says what the prediction itself calls unknown. ``taken`` are the sizes of
    the step's allocations, each with what asked for it.
    """

    allocated_bytes: int = 0
    reserved_bytes: int = 0
    requested_bytes: int = 0
    unchecked: str = ""
    failure: str = ""
    taken: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteRow:
    """One program, predicted and run."""

    program: str
    predicted: Peaks
    measured: Peaks

    @property
    def failure(self) -> str:
        """Why there is nothing to compare; empty if there is."""
        return self.predicted.failure or self.measured.failure

    @property
    def differences(self) -> tuple[int, int, int]:
        """Predicted less measured: allocated, reserved, requested."""
        p, m = self.predicted, self.measured
        return (
            p.allocated_bytes - m.allocated_bytes,
            p.reserved_bytes - m.reserved_bytes,
            p.requested_bytes - m.requested_bytes,
        )

    @property
    def is_exact(self) -> bool:
        """Whether all three are the same to the byte."""
        return not self.failure and not any(self.differences)

    @property
    def is_good(self) -> bool:
        """Whether the bars are kept, or the prediction says that it is none."""
        return self.is_within_bars or bool(self.predicted.unchecked)

    @property
    def is_within_bars(self) -> bool:
        """Whether the prediction is as good as it must be."""
        if self.failure:
            return False
        allocated, reserved, _ = self.differences
        allowed = ALLOCATED_SHARE * self.measured.allocated_bytes
        floor = RESERVED_FLOOR + RESERVED_SHARE * self.measured.reserved_bytes
        return abs(allocated) <= allowed and abs(reserved) <= floor


def on_simulated(prepare: Callable[[], Callable[[], None]]) -> Peaks:
    from pytest_gpuperf.devices.simulated.memory_watch import watching_memory

    with simulated_gpu(values=False), watching_memory(from_now=True) as audit:
        step = prepare()
        for _ in range(STEPS):
            audit.step(step)
        last = audit.memories()[-1]
        events = audit.events[last.first : last.last]
        unchecked = "; ".join(unknown_of(audit.live))
    return Peaks(
        allocated_bytes=last.allocated_bytes,
        reserved_bytes=last.reserved_bytes,
        requested_bytes=last.requested_bytes,
        unchecked=unchecked,
        taken=tuple((e.nbytes, e.op) for e in events if e.is_birth),
    )


def unknown_of(live: LiveMemory) -> Iterator[str]:
    """What the prediction says that it does not know."""
    yield from (f"{op}: {why}" for op, why in live.unchecked)
    if live.is_compiled:
        yield COMPILED_PEAK


def on_cuda(prepare: Callable[[], Callable[[], None]]) -> Peaks:
    step = prepare()
    for _ in range(STEPS - 1):
        step()
        gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    with history() as taken:
        step()
        gc.collect()
    read = torch.cuda.memory_stats()
    return Peaks(
        allocated_bytes=read["allocated_bytes.all.peak"],
        reserved_bytes=read["reserved_bytes.all.peak"],
        requested_bytes=read["requested_bytes.all.peak"],
        taken=tuple(taken),
    )


@contextmanager
def history() -> Iterator[list[tuple[int, str]]]:
    """Keep the allocations inside, each with the innermost lines that asked for it."""
    taken: list[tuple[int, str]] = []
    record = torch.cuda.memory._record_memory_history  # noqa: SLF001, torch's own tutorial
    record(stacks="python", max_entries=10**6)
    yield taken
    traces = torch.cuda.memory._snapshot()["device_traces"]  # noqa: SLF001
    record(enabled=None)
    for event in (e for trace in traces for e in trace if e["action"] == "alloc"):
        places = [f"{Path(f['filename']).name}:{f['line']}" for f in event["frames"]]
        taken.append((event["size"], " < ".join(places[:3])))


SIDES: Final = {"simulated": on_simulated, "cuda": on_cuda}


def answered(side: str, program: str, answer: Path) -> None:
    """Write what *side* says of *program*, in a process that was forked for it."""
    signal.alarm(SECONDS)  # nothing catches it, so it ends what hangs
    random.seed(0)
    gc.collect()
    gc.disable()
    try:
        peaks = SIDES[side](PROGRAMS[program])
    except Exception as error:  # noqa: BLE001, one program's failure is its row
        traceback.print_exc()
        peaks = Peaks(failure=f"{type(error).__name__}: {error}".splitlines()[0])
    answer.write_text(json.dumps(asdict(peaks)), encoding="utf-8")


def answer_all(side: str, only: str, folder: Path, jobs: int) -> None:
    """Ask about each program in a fork of this process, which has imported torch."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no pool a program
    for name in SLOW_IMPORTS:
        importlib.import_module(name)
    running: set[int] = set()
    for program in chosen(only):
        if len(running) == jobs:
            running.discard(os.wait()[0])
        child = os.fork()
        if not child:
            answered(side, program, answer_file(folder, side, program))
            sys.stdout.flush()
            os._exit(0)
        running.add(child)
    for _ in running:
        os.wait()


def answer_file(folder: Path, side: str, program: str) -> Path:
    return folder / f"{side}-{list(PROGRAMS).index(program)}.json"


def chosen(only: str) -> list[str]:
    return [program for program in PROGRAMS if only in program]


MACHINE: Final = "machine.txt"


def ask(folder: Path, only: str, jobs: int) -> None:
    """Ask both sides at once, each in a process of its own that forks."""
    (folder / MACHINE).write_text(machine(), encoding="utf-8")
    program = [sys.executable, "-W", "ignore", __file__, "--only", only]
    options = ("--answers", str(folder), "--jobs", str(jobs))
    asking = [subprocess.Popen([*program, *options, "--side", side]) for side in SIDES]
    for process in asking:
        process.wait()


def read_answer(folder: Path, side: str, program: str) -> Peaks:
    answer = answer_file(folder, side, program)
    if not answer.exists():
        return Peaks(failure=f"no answer in {SECONDS} s, or the process ended")
    read = json.loads(answer.read_text(encoding="utf-8"))
    taken = tuple((size, place) for size, place in read.pop("taken"))
    return Peaks(taken=taken, **read)


def join(folder: Path, only: str = "", out: Path | None = None) -> list[ByteRow]:
    """Pair the answers in *folder*, and write ``agreement-bytes.md`` into *out*."""
    rows = [
        ByteRow(
            program=program,
            predicted=read_answer(folder, "simulated", program),
            measured=read_answer(folder, "cuda", program),
        )
        for program in chosen(only)
    ]
    if out is not None:
        computer = (folder / MACHINE).read_text(encoding="utf-8")
        page = "\n".join([*as_page(rows, computer), ""])
        (out / "agreement-bytes.md").write_text(page, encoding="utf-8")
    return rows


def compared(only: str = "", out: Path | None = None, jobs: int = 1) -> list[ByteRow]:
    """Ask both sides and pair what they say."""
    with TemporaryDirectory() as folder:
        ask(Path(folder), only, jobs)
        return join(Path(folder), only, out)


def machine() -> str:
    """What the numbers were read on, in a sentence or two."""
    environment = CudaDevice.open().environment()
    torch_version = environment.software["torch"]
    where = "Run on real torch over stub CUDA" if is_stub() else "Run on a GPU"
    return f"{where}: torch {torch_version}, {environment.hardware.name}."


def is_stub() -> bool:
    """Whether the driver is that of ``tests/stub_cuda``."""
    return hasattr(ctypes.CDLL("libcuda.so.1"), "gpuperf_stub")


def is_agreement(rows: Sequence[ByteRow]) -> bool:
    """Whether all bars are kept; the number of exact ones is that of all programs."""
    exact = sum(row.is_exact for row in rows)
    return all(row.is_good for row in rows) and (
        len(rows) < len(PROGRAMS) or exact >= LEAST_EXACT
    )


def as_page(rows: Sequence[ByteRow], machine: str) -> Iterator[str]:
    yield "# Agreement on bytes"
    yield ""
    yield (
        "Peaks of the third training step of programs that are written for this "
        "(`benchmarks/byte_programs.py`): what the simulated GPU predicts beside what torch's "
        f"own allocator says. {machine}"
    )
    yield ""
    yield "    python benchmarks/agreement_bytes.py --out benchmarks/evidence"
    yield ""
    yield (
        "The bars: allocated within 0.5 %, reserved within 2 MiB + 0.5 %, in all programs "
        f"but those whose prediction calls itself unknown; exact in {LEAST_EXACT} at "
        "least. Workspaces of cuDNN's convolutions are 0 over stub libraries, and are in no "
        "prediction. Compiled programs run with Inductor's default mode and are predicted as "
        "eager code, which the prediction says."
    )
    yield ""
    yield from as_markdown(rows)


def as_markdown(rows: Sequence[ByteRow]) -> Iterator[str]:
    exact = sum(row.is_exact for row in rows)
    within = sum(row.is_within_bars for row in rows)
    yield f"{len(rows)} programs: {within} within the bars, {exact} exact to the byte."
    yield ""
    yield (
        "| program | allocated: predicted | torch's | difference "
        "| reserved: predicted | torch's | difference "
        "| requested: predicted | torch's | difference | why |"
    )
    yield "|---|" + "---:|" * 9 + "---|"
    for row in rows:
        yield line_of(row)


def line_of(row: ByteRow) -> str:
    why = CAUSES.get(row.program, "")
    if row.failure:
        return f"| {row.program} |" + " |" * 9 + f" {row.failure} |"
    names = ("allocated_bytes", "reserved_bytes", "requested_bytes")
    cells = [row.program]
    for name, difference in zip(names, row.differences, strict=True):
        cells += [
            f"{getattr(row.predicted, name):,}",
            f"{getattr(row.measured, name):,}",
            f"{difference:+,}" if difference else "0",
        ]
    if row.predicted.unchecked:
        why = f"{why} (called unknown: {row.predicted.unchecked})".strip()
    return "| " + " | ".join([*cells, why]) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", default="", help="programs with this text in their name"
    )
    parser.add_argument("--out", type=Path, help="folder of the table")
    parser.add_argument("--jobs", type=int, default=1, help="forks at a time, a side")
    parser.add_argument("--answers", type=Path, help="folder that keeps the answers")
    parser.add_argument(
        "--join", action="store_true", help="ask nobody: join the answers of a folder"
    )
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        answer_all(options.side, options.only, options.answers, options.jobs)
        return 0
    try:
        rows = rows_asked_for(options)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 4
    print(*as_markdown(rows), sep="\n")
    return int(not is_agreement(rows))


def rows_asked_for(options: argparse.Namespace) -> list[ByteRow]:
    """Ask, unless the answers are there; keep them where a folder is named."""
    if not options.join:
        CudaDevice.open()
    if options.answers is None:
        return compared(options.only, options.out, options.jobs)
    if not options.join:
        options.answers.mkdir(parents=True, exist_ok=True)
        ask(options.answers, options.only, options.jobs)
    return join(options.answers, options.only, options.out)


if __name__ == "__main__":
    sys.exit(main())
