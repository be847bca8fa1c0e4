"""Code that both GPUs are asked about, and how each is asked."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any
from typing import Final

from agreement_table import Seen

from pytest_gpuperf.devices.base import Step
from pytest_gpuperf.devices.base import TraceEvent
from pytest_gpuperf.devices.pretend import pretend_gpu
from pytest_gpuperf.measure.syncs import device_waits
from pytest_gpuperf.measure.trace import parse


sys.path.append(str(Path(__file__).parents[1] / "tests" / "unit"))

import pretend_corpus


if TYPE_CHECKING:
    from pytest_gpuperf.devices.pretend.gpu import PretendGpu


Batches = Sequence[Sequence[object]]
Profile = Callable[[Step, Batches], Sequence[TraceEvent]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Something to run once a batch, made anew by each ``prepare``."""

    name: str
    prepare: Callable[[], tuple[Step, Batches]]


def corpus() -> Iterator[Case]:
    """The snippets of the corpus, each in a fresh setting."""
    parts = (pretend_corpus.WAITS, pretend_corpus.RUNS_ON, pretend_corpus.MAY_WAIT)
    snippets = (s for topics in parts for part in topics.values() for s in part)
    for snippet in dict.fromkeys(snippets):
        yield Case(name=snippet, prepare=lambda snippet=snippet: in_setting(snippet))


def in_setting(snippet: str) -> tuple[Step, Batches]:
    """*snippet* as a step, in the corpus's setting."""
    names: dict[str, Any] = {}
    exec(pretend_corpus.SETTING, names)  # noqa: S102, our own corpus
    code = compile(snippet, "snippet", "exec")
    return lambda: exec(code, names), [()]  # noqa: S102


CASES: Final[dict[str, Callable[[], Iterator[Case]]]] = {
    "corpus": corpus,
}


def seen_on_pretend(cases: Iterator[Case]) -> Iterator[tuple[str, Seen]]:
    """Ask the pretend GPU."""
    with pretend_gpu() as gpu:
        for case in cases:
            yield case.name, _answered(partial(_audited, gpu), case)


def _audited(gpu: PretendGpu, case: Case) -> Seen:
    step, batches = case.prepare()
    failures = Failures()
    waits: list[int | None] = []
    maybe = 0
    for arguments in batches:
        gpu.begin_step()
        failures.run(step, arguments)
        audit = gpu.end_step()
        for missing in audit.not_judged[:1]:
            failures.add(f"{missing.op}: {missing.reason}")
        waits.append(None if failures.is_last else audit.totals.syncs)
        maybe += audit.totals.maybe
    return Seen(waits=tuple(waits), maybe=maybe, silent=failures.first)


def seen_on_cuda(cases: Iterator[Case], profile: Profile) -> Iterator[tuple[str, Seen]]:
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
    counts = Counter(wait.step for wait in device_waits(trace))
    waits = [
        counts[index] if is_known else None for index, is_known in enumerate(known)
    ]
    return Seen(waits=tuple(waits), silent=failures.first)


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
