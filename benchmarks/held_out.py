"""Recall and precision of the simulated GPU on code that it was not made from.

    python benchmarks/held_out.py [--only NAME] [--write FILE]

Runs each function of ``tests/scripts/held_out`` on the simulated GPU and on the GPU of this
machine, which may be stub CUDA, each side in a process of its own. Compares by line
whether the host waits there, how often, and what is copied from or to pageable memory.
What is found is mended in the simulated GPU, and never in the snippets. Exit status: 0
where recall and precision are 0.99 or more, 1 where one is less, 4 without a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from agreement import Failures, line_of
from agreement_table import UNKNOWN

from pytest_gpuperf.devices.cuda.device import CudaDevice
from pytest_gpuperf.devices.simulated import simulated_gpu
from pytest_gpuperf.errors import UsageError
from pytest_gpuperf.measure.syncs import find_syncs, find_traffic
from pytest_gpuperf.model.metrics import PAGEABLE_COPIES


SNIPPETS: Final = Path(__file__).parents[1] / "tests" / "scripts" / "held_out"
BAR: Final = 0.99

OTHER_PATH: Final[Mapping[str, str]] = {
    "detection.connected_by_flood": "whether a map changed decides",
    "generation.documents_packed_into_one_row": "no token ends a document",
    "losses.batch_hard_triplet": "no triplet is hard",
    "metrics.confusion_matrix_by_bincount": "nothing is kept to be counted",
    "metrics.expected_calibration_error": "no bin has a share",
    "metrics.mean_per_class": "the loop is over no class",
    "training.quasi_newton": "the gradient is zero, so it ends at once",
    "training.skip_steps_that_are_not_finite": "the first gradient is not finite",
}
"""Functions that go another way on stub CUDA, where what was computed reads as zero."""

Snippet = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Syncs and pageable copies of a function by line; ``raised`` is what ended it.

    Where the trace does not know the line, a count stands under ``?``.
    """

    syncs: Mapping[str, int] = field(default_factory=dict)
    pageable: Mapping[str, int] = field(default_factory=dict)
    raised: str = ""
    not_checked: str = ""


def snippets(only: str) -> Iterator[tuple[str, Snippet]]:
    """Yield the functions without arguments of each file, by ``file.function``."""
    sys.path.insert(0, str(SNIPPETS))
    for file in sorted(SNIPPETS.glob("*.py")):
        module = importlib.import_module(file.stem)
        for name, value in tuple(vars(module).items()):
            if only in f"{file.stem}.{name}" and _is_snippet(value, file.stem):
                yield f"{file.stem}.{name}", value


def _is_snippet(value: object, module: str) -> bool:
    code = getattr(value, "__code__", None)
    is_own = getattr(value, "__module__", "") == module
    return is_own and code is not None and code.co_argcount == 0


def raised_by(snippet: Snippet) -> str:
    """Run *snippet* unheard; return what it raises."""
    failures = Failures()
    run(snippet, failures)
    return failures.first


def run(snippet: Snippet, failures: Failures) -> None:
    """Run *snippet* unheard, and note in *failures* what it raises."""
    with contextlib.redirect_stdout(io.StringIO()):
        failures.run(snippet, ())


def on_simulated(only: str) -> Iterator[tuple[str, Answer]]:
    with simulated_gpu(str(SNIPPETS)) as gpu:
        for name, snippet in snippets(only):
            raised_by(snippet)
            gpu.begin_step()
            raised = raised_by(snippet)
            audit = gpu.end_step()
            syncs: Counter[str] = Counter()
            for finding in audit.findings:
                if finding.is_certain:
                    syncs[line_of(finding.location)] += finding.per_step
            copies: Counter[str] = Counter()
            for copy in audit.copies:
                if PAGEABLE_COPIES.name in copy.metrics:
                    copies[line_of(copy.location)] += copy.per_step
            reasons = [f"{item.op}: {item.reason}" for item in audit.not_checked]
            yield (
                name,
                Answer(
                    syncs=dict(syncs),
                    pageable=dict(copies),
                    raised=raised,
                    not_checked="; ".join(reasons[:1]),
                ),
            )


def on_cuda(only: str) -> Iterator[tuple[str, Answer]]:
    device = replace(CudaDevice.open(), root=str(SNIPPETS))
    for name, snippet in snippets(only):
        raised_by(snippet)  # loads and allocates what is loaded and allocated once
        failures = Failures()
        step = partial(run, snippet, failures)
        events = device.profile(step, [()])
        syncs: Counter[str] = Counter()
        for finding in find_syncs(events).findings:
            syncs[line_of(finding.location)] += finding.per_step
        copies: Counter[str] = Counter()
        for finding in find_traffic(events).findings:
            if PAGEABLE_COPIES.name in finding.metrics:
                copies[line_of(finding.location)] += finding.per_step
        yield (
            name,
            Answer(syncs=dict(syncs), pageable=dict(copies), raised=failures.first),
        )


SIDES: Final = {"simulated": on_simulated, "cuda": on_cuda}


def asked(side: str, only: str) -> dict[str, Answer]:
    """Ask one side in a process of its own, because one of them patches torch."""
    with TemporaryDirectory() as folder:
        answers = Path(folder, "answers.json")
        command = ("--side", side, "--answers", str(answers), "--only", only)
        subprocess.run([sys.executable, "-W", "ignore", __file__, *command], check=True)
        read = json.loads(answers.read_text(encoding="utf-8"))
    return {name: Answer(**answer) for name, answer in read.items()}


# What both say, line by line.


@dataclass(slots=True, kw_only=True)
class Score:
    """Lines that one side or both name, and those with the same count on both."""

    said: int = 0
    true: int = 0
    both: int = 0
    equal: int = 0

    def __str__(self) -> str:
        recall, precision = self.both / self.true, self.both / self.said
        return (
            f"recall {recall:.4f}, precision {precision:.4f} "
            f"({self.said} lines named, {self.true} true, {self.both} both, "
            f"{self.equal} with the same count)"
        )

    @property
    def is_met(self) -> bool:
        return self.both >= BAR * max(self.said, self.true)


def compared(
    said: Mapping[str, int], true: Mapping[str, int], score: Score
) -> Iterator[str]:
    """Add the lines of a function to *score*, and yield those that differ.

    A count without a line belongs to lines that the simulated GPU names and the trace
    does not.
    """
    spare = true.get(UNKNOWN, 0)
    for line in sorted({*said, *true} - {UNKNOWN}):
        ours, theirs = said.get(line, 0), true.get(line, 0)
        lent = min(spare, max(0, ours - theirs))
        spare, theirs = spare - lent, theirs + lent
        score.said += ours > 0
        score.true += theirs > 0
        score.both += ours > 0 < theirs
        score.equal += ours == theirs
        if ours != theirs:
            yield f"{line}: simulated {ours}, true {theirs}"
    if spare:
        score.true += 1
        yield f"no line known: simulated 0, true {spare}"


def why_not_checked(name: str, said: Answer, true: Answer) -> str:
    if name in OTHER_PATH:
        return f"other values, another path: {OTHER_PATH[name]}"
    if said.raised != true.raised:
        return f"simulated {said.raised or 'nothing'!r}, true {true.raised!r} raised"
    return said.not_checked


def report(only: str) -> tuple[str, bool]:
    """Ask both sides; return what to print, and whether the bar is met."""
    simulated, cuda = (asked(side, only) for side in SIDES)
    syncs, copies = Score(), Score()
    unchecked, differing = [], []
    for name, said in simulated.items():
        if why := why_not_checked(name, said, cuda[name]):
            unchecked.append(f"not checked: {name}: {why}")
            continue
        for what, score in (("syncs", syncs), ("pageable", copies)):
            pair = getattr(said, what), getattr(cuda[name], what)
            differing += [f"{what}: {name} {d}" for d in compared(*pair, score)]
    lines = [
        f"{len(simulated) - len(unchecked)} of {len(simulated)} functions judged",
        f"syncs: {syncs}",
        f"pageable copies: {copies}",
        *differing,
        *unchecked,
    ]
    return "\n".join(lines) + "\n", syncs.is_met and copies.is_met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="functions whose name has this text")
    parser.add_argument("--write", type=Path, help="file of what is printed")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--answers", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        found = {name: asdict(a) for name, a in SIDES[options.side](options.only)}
        options.answers.write_text(json.dumps(found), encoding="utf-8")
        return 0
    try:
        CudaDevice.open()
    except UsageError as error:
        print(error, file=sys.stderr)
        return 4
    text, is_met = report(options.only)
    print(text, end="")
    if options.write:
        options.write.write_text(text, encoding="utf-8")
    return int(not is_met)


if __name__ == "__main__":
    sys.exit(main())
