"""Run the same code on the simulated GPU and on the real one, and print what differs.

    python benchmarks/agreement.py [--out FOLDER] [--answers FOLDER]
    python benchmarks/agreement.py --join --answers FOLDER --out FOLDER

Asks about the snippets of the four corpora ``tests/unit/simulated_corpus*.py``: how
often the host waits, on which lines, and what is copied from or to pageable memory. About torch's own operations, ``agreement_operations.py``
asks. Each side has a process of its own, because one of them patches torch, and that one
forks, so that a crash ends one snippet. Answers are written to the folder of ``--answers`` as
they come; ``--join`` makes the tables of those that are there, on any machine. Exit
status: 1 where a case differs that ``known_differences.toml`` does not explain, 4 without a
GPU, else 0.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import torch
from agreement_table import (
    KNOWN,
    UNKNOWN,
    Row,
    Seen,
    as_markdown,
    differences,
    rows_of,
    unexplained,
)
from forks import Task, each_in_a_fork

from pytest_gpuperf.devices.base import Step, TraceEvent
from pytest_gpuperf.devices.cuda.device import CudaDevice
from pytest_gpuperf.devices.simulated import simulated_gpu
from pytest_gpuperf.errors import UsageError
from pytest_gpuperf.measure.syncs import device_syncs, transfers_of
from pytest_gpuperf.measure.trace import parse
from pytest_gpuperf.model.finding import Location
from pytest_gpuperf.model.metrics import PAGEABLE_COPIES


sys.path.append(str(Path(__file__).parents[1] / "tests" / "unit"))

import simulated_corpus
import simulated_corpus_idioms
import simulated_corpus_more
import simulated_corpus_rare


if TYPE_CHECKING:
    from pytest_gpuperf.devices.simulated.gpu import SimulatedGpu


# How each GPU is asked.

Batches = Sequence[Sequence[object]]
Profile = Callable[[Step, Batches], Sequence[TraceEvent]]

ROOT: Final = "/corpora"
"""Where the files of the snippets would be; there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Something to run once a batch, made anew by each ``prepare``."""

    name: str
    prepare: Callable[[], tuple[Step, Batches]]


CORPORA: Final[Mapping[str, ModuleType]] = {
    "main": simulated_corpus,
    "more": simulated_corpus_more,
    "idioms": simulated_corpus_idioms,
    "rare": simulated_corpus_rare,
}


def corpus() -> Iterator[Case]:
    """The snippets of the corpora, each in a fresh setting."""
    for name, module in CORPORA.items():
        parts = (module.WAITS, module.RUNS_ON, module.MAY_WAIT)
        topics = chain.from_iterable(part.values() for part in parts)
        for snippet in dict.fromkeys(chain.from_iterable(topics)):
            prepare = partial(in_setting, module.SETTING, snippet)
            yield Case(name=f"{name}: {snippet}", prepare=prepare)


def in_setting(setting: str, snippet: str) -> tuple[Step, Batches]:
    """*snippet* as a step, in the *setting* of its corpus."""
    names: dict[str, Any] = {}
    exec(compile(setting, f"{ROOT}/setting.py", "exec"), names)  # noqa: S102, our own corpora
    code = compile(snippet, f"{ROOT}/snippet.py", "exec")
    return lambda: exec(code, names), [()]  # noqa: S102


def seen_on_simulated(cases: Iterable[Case]) -> Iterator[tuple[str, Seen]]:
    """Ask the simulated GPU."""
    with simulated_gpu(ROOT) as gpu:
        for case in cases:
            yield case.name, _answered(partial(_audited, gpu), case)


def _audited(gpu: SimulatedGpu, case: Case) -> Seen:
    step, batches = case.prepare()
    failures = Failures()
    syncs: list[int | None] = []
    inconclusive = 0
    lines: Counter[str] = Counter()
    pageable: Counter[str] = Counter()
    for arguments in batches:
        gpu.begin_step()
        failures.run(step, arguments)
        audit = gpu.end_step()
        for missing in audit.not_checked[:1]:
            failures.add(f"{missing.op}: {missing.reason}")
        syncs.append(None if failures.is_last else audit.totals.syncs)
        inconclusive += audit.totals.inconclusive
        for finding in audit.findings:
            if finding.is_certain:
                lines[line_of(finding.location)] += finding.per_step
        for copy in audit.copies:
            if PAGEABLE_COPIES.name in copy.metrics:
                pageable[line_of(copy.location)] += copy.per_step
    return Seen(
        syncs=tuple(syncs),
        inconclusive=inconclusive,
        lines=dict(lines),
        pageable=dict(pageable),
        silent=failures.first,
    )


def line_of(location: Location | None) -> str:
    """The file and the line of *location*, if it is one of a snippet's."""
    if location is None or not location.exact:
        return UNKNOWN
    return f"{Path(location.file).name}:{location.line}"


def seen_on_cuda(cases: Iterable[Case], profile: Profile) -> Iterator[tuple[str, Seen]]:
    """Ask a real GPU through *profile*; what is loaded or allocated once is so before."""
    for case in cases:
        yield case.name, _answered(partial(_profiled, profile), case)


def _profiled(profile: Profile, case: Case) -> Seen:
    step, batches = case.prepare()
    for arguments in batches:
        Failures().run(step, arguments)
    step, batches = case.prepare()
    failures = Failures()
    known: list[bool] = []

    def answer(*arguments: object) -> None:
        failures.run(step, arguments)
        known.append(not failures.is_last)

    trace = parse(profile(answer, batches))
    syncs = list(device_syncs(trace))
    counts = Counter(sync.step for sync in syncs)
    copies = [each for each in transfers_of(trace) if each.pinned is False]
    return Seen(
        syncs=tuple(
            counts[index] if is_known else None for index, is_known in enumerate(known)
        ),
        lines=dict(Counter(line_of(sync.cause.location) for sync in syncs)),
        pageable=dict(Counter(line_of(each.cause.location) for each in copies)),
        silent=failures.first,
    )


class Failures:
    """Why samples have no answer: the others are to be asked, too."""

    def __init__(self) -> None:
        self.first = ""
        self.is_last = False

    def run(self, step: Step, arguments: Sequence[object]) -> None:
        """Run one sample; what it raises is a failure."""
        self.is_last = False
        try:
            step(*arguments)
        except Exception as error:  # noqa: BLE001, of whatever kind
            first, *_ = str(error).splitlines() or [""]
            self.add(f"{type(error).__name__}: {first}")

    def add(self, reason: str) -> None:
        """Note that the sample at hand has no answer."""
        self.first = self.first or reason
        self.is_last = True


def _answered(ask: Callable[[Case], Seen], case: Case) -> Seen:
    failures = Failures()
    seen: list[Seen] = []
    failures.run(lambda: seen.append(ask(case)), ())
    return seen[0] if seen else Seen(silent=failures.first)


# Both sides.

Answers = Iterator[tuple[str, Seen]]

BATCH: Final = 24
"""Cases that share a fork, as long as none of them ends it."""

MOST_SECONDS: Final = 300
"""Of a fork."""


def on_cuda(cases: Sequence[Case]) -> Answers:
    device = replace(CudaDevice.open(), root=ROOT)
    return seen_on_cuda(cases, device.profile)


SIDES: Final = {"simulated": seen_on_simulated, "cuda": on_cuda}


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


def ask(answers: Path, only: str = "") -> None:
    """Ask both sides beside each other; each writes its answers as they come."""
    environment = CudaDevice.open().environment()
    names = ("torch", "driver")
    machine = {n: v for n, v in environment.software.items() if n in names}
    machine["GPU"] = environment.hardware.name
    (answers / MACHINE).write_text(json.dumps(machine), encoding="utf-8")
    program = [sys.executable, "-W", "ignore", __file__, "--only", only]
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
            found[name] = Seen(syncs=tuple(seen.pop("syncs")), **seen)
    return found


def join(answers: Path, out: Path | None = None) -> list[Row]:
    """Pair what both sides have said; write ``agreement-corpus.md``."""
    simulated, cuda = (read_answers(side, answers) for side in SIDES)
    both = [name for name in simulated if name in cuda]
    rows = rows_of({n: simulated[n] for n in both}, {n: cuda[n] for n in both})
    if out is not None:
        machine = json.loads((answers / MACHINE).read_text(encoding="utf-8"))
        title = "Agreement on syncs and copies: corpus"
        page = as_markdown(title, machine, rows, KNOWN["snippets"])
        (out / "agreement-corpus.md").write_text(page, encoding="utf-8")
    return rows


def compared(out: Path | None = None, only: str = "") -> list[Row]:
    """Ask both sides and pair what they say."""
    with TemporaryDirectory() as folder:
        ask(Path(folder), only)
        return join(Path(folder), out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="folder of the results")
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    parser.add_argument("--answers", type=Path, help="folder that keeps the answers")
    parser.add_argument(
        "--join", action="store_true", help="ask nobody: join the answers of a folder"
    )
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        cases = [case for case in corpus() if options.only in case.name]
        write_answers(options.side, cases, options.answers)
        return 0
    try:
        rows = rows_asked_for(options)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 4
    print(*differences(rows), sep="\n")
    open_rows = unexplained(rows, KNOWN["snippets"])
    print(f"{len(rows)} compared, {len(open_rows)} differ without an explanation")
    return int(bool(open_rows))


def rows_asked_for(options: argparse.Namespace) -> list[Row]:
    """Ask, unless the answers are there; keep them where a folder is named."""
    if not options.join:
        CudaDevice.open()
    if options.answers is None:
        return compared(options.out, options.only)
    if not options.join:
        options.answers.mkdir(parents=True, exist_ok=True)
        ask(options.answers, options.only)
    return join(options.answers, options.out)


if __name__ == "__main__":
    sys.exit(main())
