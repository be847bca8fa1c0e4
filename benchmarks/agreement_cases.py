"""Code that both GPUs are asked about, and how each is asked."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING
from typing import Any
from typing import Final

from agreement_table import UNKNOWN
from agreement_table import Seen

from pytest_gpuperf.devices.base import Step
from pytest_gpuperf.devices.base import TraceEvent
from pytest_gpuperf.devices.pretend import pretend_gpu
from pytest_gpuperf.measure.copies import transfers_of
from pytest_gpuperf.measure.syncs import device_waits
from pytest_gpuperf.measure.trace import parse
from pytest_gpuperf.model.finding import Location
from pytest_gpuperf.model.metrics import PAGEABLE_COPIES


sys.path.append(str(Path(__file__).parents[1] / "tests" / "unit"))

import pretend_corpus
import pretend_corpus_idioms
import pretend_corpus_more
import pretend_corpus_rare


if TYPE_CHECKING:
    from pytest_gpuperf.devices.pretend.gpu import PretendGpu


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
    "main": pretend_corpus,
    "more": pretend_corpus_more,
    "idioms": pretend_corpus_idioms,
    "rare": pretend_corpus_rare,
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


CASES: Final[dict[str, Callable[[], Iterator[Case]]]] = {
    "corpus": corpus,
}


def seen_on_pretend(cases: Iterable[Case]) -> Iterator[tuple[str, Seen]]:
    """Ask the pretend GPU."""
    with pretend_gpu(ROOT) as gpu:
        for case in cases:
            yield case.name, _answered(partial(_audited, gpu), case)


def _audited(gpu: PretendGpu, case: Case) -> Seen:
    step, batches = case.prepare()
    failures = Failures()
    waits: list[int | None] = []
    maybe = 0
    lines: Counter[str] = Counter()
    pageable: Counter[str] = Counter()
    for arguments in batches:
        gpu.begin_step()
        failures.run(step, arguments)
        audit = gpu.end_step()
        for missing in audit.not_judged[:1]:
            failures.add(f"{missing.op}: {missing.reason}")
        waits.append(None if failures.is_last else audit.totals.syncs)
        maybe += audit.totals.maybe
        for finding in audit.findings:
            if finding.is_certain:
                lines[line_of(finding.location)] += finding.per_step
        for copy in audit.copies:
            if PAGEABLE_COPIES.name in copy.metrics:
                pageable[line_of(copy.location)] += copy.per_step
    return Seen(
        waits=tuple(waits),
        maybe=maybe,
        lines=dict(lines),
        pageable=dict(pageable),
        silent=failures.first,
    )


def line_of(location: Location | None) -> str:
    """The file and the line of *location*, if it is one of a snippet's."""
    if location is None or not location.exact:
        return UNKNOWN
    return f"{Path(location.file).name}:{location.line}"


def seen_on_cuda(
    cases: Iterable[Case],
    profile: Profile,
    warned: Callable[[Case], int | None] = lambda _case: None,
) -> Iterator[tuple[str, Seen]]:
    """Ask a real GPU through *profile*; what is loaded or allocated once is so before.

    *warned* counts what torch's sync debug mode warns of in a case.
    """
    for case in cases:
        seen = _answered(partial(_profiled, profile), case)
        yield case.name, replace(seen, warned=warned(case))


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
    waits = list(device_waits(trace))
    counts = Counter(wait.step for wait in waits)
    copies = [each for each in transfers_of(trace) if each.pinned is False]
    return Seen(
        waits=tuple(
            counts[index] if is_known else None for index, is_known in enumerate(known)
        ),
        lines=dict(Counter(line_of(wait.cause.location) for wait in waits)),
        pageable=dict(Counter(line_of(each.cause.location) for each in copies)),
        silent=failures.first,
    )


DEBUG_MODE: Final = "called a synchronizing CUDA operation"
"""What torch's warning says of each wait that it knows (``c10/cuda/CUDAFunctions.cpp``)."""


def times_warned(case: Case) -> int:
    """Count the warnings of torch's sync debug mode in one run of *case*."""
    import torch

    # What is raised is known of the profile; a batch that fails warns of nothing more.
    step, batches = case.prepare()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            for arguments in batches:
                Failures().run(step, arguments)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum(DEBUG_MODE in str(each.message) for each in said)


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
