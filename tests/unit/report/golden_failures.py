"""Failures as a terminal shows them, one for each thing that a test can fail for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from builders import (
    KIB,
    MIB,
    TEST,
    a_finding,
    a_location,
    a_missed_budget,
    a_regression,
    a_test,
    a_verdict,
    line_change,
    some_evidence,
    text_of,
)

from pytest_gpuperf.model.baseline import Drift
from pytest_gpuperf.model.finding import FindingKind, Phase
from pytest_gpuperf.model.metrics import METRICS
from pytest_gpuperf.model.verdict import Outcome, Verdict
from pytest_gpuperf.report.command import Invocation
from pytest_gpuperf.report.document import coloured
from pytest_gpuperf.report.headline import fitting_headline, open_headline
from pytest_gpuperf.report.screen.acceptance import drift_text
from pytest_gpuperf.report.screen.failure import Failure
from pytest_gpuperf.report.screen.findings import SharedCauses
from pytest_gpuperf.report.screen.summary import summary_lines


SLOWER: Final = a_regression(
    because="all 5 fresh runs are slower than the 2nd slowest of 8 stored + 1 %",
    evidence=some_evidence(),
)
NEW_SYNCS: Final = a_regression(
    "syncs", 2, 0, limit=0, because="2 against 0 stored, in each of 2 runs"
)
TOO_NOISY: Final = a_verdict(
    outcome=Outcome.INCONCLUSIVE,
    now=10.2,
    limit=10.4,
    because="no change is proven, and +3 % is not ruled out; this machine could have "
    "seen +4.1 %",
)
NEW: Final = a_test(
    a_verdict(outcome=Outcome.NO_BASELINE, now=12.1, baseline=None),
    a_verdict("syncs", Outcome.NO_BASELINE, 0, None),
    a_verdict("peak_allocated_bytes", Outcome.NO_BASELINE, 36 * MIB, None),
)
ELSEWHERE: Final = Invocation(
    options=("--gpuperf-device=simulated",),
    root=Path("/project"),
    folder=Path("/project/tests"),
)


def failed(*verdicts: Verdict, **fields: Any) -> str:
    """The text of a test that failed."""
    asked = {"nodeid": fields.get("test", TEST)}
    options = ("nodeid", "invocation", "strict", "baseline_needed")
    asked |= {name: fields.pop(name) for name in options if name in fields}
    return f"{Failure(a_test(*verdicts, **fields), **asked).text}\n"


def slower() -> str:
    wait = a_finding(
        line=21,
        blocked_ms=1.8,
        source="total += loss.item()",
        stored=0,
        metrics=("syncs",),
    )
    slow = a_finding(
        FindingKind.TIME,
        line=14,
        op=None,
        metrics=("step_ms",),
        percent=41.0,
        source="x = self.block(x)",
        changed_since="4d2a4d2",
    )
    return failed(SLOWER, findings=(wait, slow), runs=5)


def more_memory() -> str:
    peak = a_finding(
        FindingKind.PEAK,
        line=31,
        op="aten::mm",
        metrics=("peak_allocated_bytes",),
        held_bytes=131 * MIB,
        held_for=(("activations", 81 * MIB), ("parameters", 50 * MIB)),
        reason="activations 81.0 MiB, parameters 50.0 MiB",
        phase=Phase.BACKWARD,
        source="return self.narrow(x).mm(self.weight)",
    )
    held = a_finding(
        FindingKind.MEMORY,
        line=27,
        op="aten::relu",
        metrics=("peak_allocated_bytes",),
        per_step=4,
        held_bytes=64 * MIB,
        phase=Phase.FORWARD,
        source="x = torch.relu(self.wide(x))",
    )
    more = a_regression("peak_allocated_bytes", 131 * MIB, 100 * MIB, because="exact")
    return failed(more, findings=(held, peak))


def workspaces() -> str:
    """The step's own bytes, a part of cuBLAS that is new, and a budget of both."""
    name, kept = "peak_allocated_bytes", {"workspace_bytes": 64 * MIB}
    own = a_regression(name, 110 * MIB, 100 * MIB, limit=101 * MIB, **kept)
    limit = a_verdict(
        name, Outcome.OVER_BUDGET, 110 * MIB, None, limit=65 * MIB, **kept
    )
    new = a_verdict(name, Outcome.NO_BASELINE, 64 * MIB + 48 * KIB, None, **kept)
    verdicts = (
        replace(own, stored_workspace_bytes=64 * MIB),
        replace(own, stored_workspace_bytes=0),
        replace(own, workspace_bytes=0, stored_workspace_bytes=64 * MIB),
        own,
        limit,
    )
    whole = [failed(verdict).partition("\n")[0] for verdict in verdicts]
    short = (fitting_headline(whole[0], room) for room in (70, 50, 40, 30))
    table = summary_lines([a_test(v, test=f"t{n}") for n, v in enumerate(verdicts)])
    rows = (line.text for line in table)
    return text_of([*whole, *short, open_headline(a_test(new)), *rows])


def syncs() -> str:
    read = a_finding(
        line=12,
        per_step=2,
        blocked_ms=0.31,
        op="aten::_local_scalar_dense",
        stored=0,
        source="hits += (guess == labels).sum().item()",
    )
    inside = a_finding(
        line=20,
        op="aten::nonzero",
        stored=1,
        per_step=3,
        innermost=a_location(307, "/env/lib/site-packages/models/masks.py", "is_full"),
        source="out = model(batch, mask)",
    )
    inconclusive = a_finding(
        FindingKind.INCONCLUSIVE,
        line=25,
        op="aten::mode",
        metrics=(),
        reason="slices of more than 2048 elements are sorted with syncs",
        source="vote = logits.mode(dim=1)",
    )
    allowed = a_finding(line=40, allowed="logged every 100 steps", metrics=())
    return failed(NEW_SYNCS, findings=(read, inside, inconclusive, allowed))


def copies() -> str:
    pageable = a_finding(
        FindingKind.COPY,
        line=8,
        op="aten::_to_copy",
        api="cudaMemcpyAsync",
        metrics=("pageable_copies", "h2d_bytes"),
        reason="a blocking copy to the GPU from pageable memory",
        moved_bytes=6 * MIB,
        blocked_ms=0.52,
        source="x = batch.to('cuda')",
    )
    back = a_finding(
        FindingKind.TRANSFER,
        line=30,
        op="aten::copy_",
        metrics=("d2h_bytes",),
        moved_bytes=12,
        phase=Phase.OPTIMIZER,
        source="norms.append(norm.cpu())",
    )
    verdicts = (
        a_regression("pageable_copies", 1, 0, limit=0),
        a_regression("h2d_bytes", 6 * MIB, 3 * MIB, limit=3 * MIB),
        a_regression("d2h_bytes", 12, 8, limit=8),
    )
    return failed(*verdicts, findings=(pageable, back))


def budgets() -> str:
    verdicts = (
        a_missed_budget("step_ms", 12.001, 12, because="12.001 ms against 12 ms"),
        a_missed_budget(),
        a_missed_budget("busy_pct", 71, 85),
        a_missed_budget("peak_allocated_bytes", 100 * MIB + 512, 100 * MIB),
    )
    unchecked = Verdict(
        metric="latency_ms",
        outcome=Outcome.INCONCLUSIVE,
        because="latency_ms=9 was not checked: 60 s were not enough",
        unchecked_budget=True,
    )
    return failed(*verdicts, unchecked)


def growth() -> str:
    left = a_finding(
        FindingKind.LEFT,
        line=19,
        op="aten::mul",
        metrics=("growth_bytes",),
        per_step=2,
        held_bytes=4 * KIB,
        source="losses.append(loss)",
    )
    kept = a_regression("retained_graphs", 1, 0, limit=0)
    grows = a_regression("growth_bytes", 4 * KIB, 0, limit=0)
    return failed(grows, kept, findings=(left,))


def garbage() -> str:
    cycle = a_finding(
        FindingKind.GARBAGE,
        line=33,
        op="aten::empty",
        metrics=("garbage_bytes",),
        per_step=3,
        held_bytes=24 * MIB,
        reason="in a cycle of ValueError, traceback, frame",
        source="scratch = torch.empty(size)",
    )
    return failed(a_missed_budget("garbage_bytes", 24 * MIB, MIB), findings=(cycle,))


def graph_breaks() -> str:
    found = (
        a_finding(
            FindingKind.BREAK,
            line=15,
            op=None,
            metrics=("graph_breaks",),
            reason="a branch that the value of a tensor decides",
            source="if loss > best: print(loss)",
            stored=0,
        ),
        a_finding(
            FindingKind.BREAK,
            line=44,
            op=None,
            metrics=("graph_breaks",),
            reason="the function is left to Python: a generator",
        ),
        a_finding(
            FindingKind.RECOMPILE,
            line=10,
            op=None,
            metrics=("recompiles",),
            per_step=7,
            reason="tensor 'x' size mismatch at index 0. expected 32, actual 31",
            source="def step(x):",
        ),
    )
    verdicts = (
        a_regression("graph_breaks", 2, 1, limit=1),
        a_missed_budget("recompiles", 7, 0),
    )
    return failed(*verdicts, findings=found)


def work() -> str:
    found = (
        a_finding(
            FindingKind.WORK,
            line=17,
            op=None,
            metrics=("launches",),
            per_step=9,
            stored=0,
        ),
        a_finding(
            FindingKind.WORK, line=22, op="call", metrics=("launches",), per_step=40
        ),
    )
    other = (line_change({"aten::clone": (0, 9)}, module="Net.layers.3.attn"),)
    regressed = a_regression("launches", 49, 40, limit=40)
    return failed(regressed, findings=found, operations=other)


def varies() -> str:
    verdict = a_regression(
        "syncs",
        3,
        1,
        limit=1,
        because="3 to 5 against 1 to 2 stored, in each of 8 runs; the step draws its "
        "own random numbers",
    )
    inconclusive = a_verdict(
        "pageable_copies",
        Outcome.INCONCLUSIVE,
        1,
        0,
        limit=0,
        because="3 in one run, 1 in another",
    )
    found = a_finding(per_step=1, in_steps=3, of_steps=20)
    return failed(verdict, inconclusive, findings=(found,))


def environment_changed() -> str:
    moved = a_verdict(
        "launches",
        Outcome.INCONCLUSIVE,
        41,
        40,
        environment_changed=True,
        because="environment changed: torch 2.12.1 -> 2.13.0",
    )
    changed = {"torch": ("2.12.1", "2.13.0"), "cuda": ("", "13.0"), "triton": ("3", "")}
    return failed(SLOWER, moved, changed=changed)


def no_baseline() -> str:
    new = NEW.verdicts
    return failed(*new) + failed(*new, invocation=ELSEWHERE, baseline_needed=True)


def not_measured() -> str:
    short = Verdict(
        metric="syncs",
        outcome=Outcome.INCONCLUSIVE,
        because="the time cap was reached before this phase; raise --gpuperf-seconds",
    )
    other = replace(short, metric="launches")
    alone = failed(short, other, invocation=ELSEWHERE, baseline_needed=True)
    beside = failed(NEW.verdicts[2], short, baseline_needed=True)
    longer = replace(short, because="60 s were not enough")
    return alone + beside + failed(longer, strict=True)


def inconclusive() -> str:
    alone = failed(TOO_NOISY, strict=True)
    return alone + failed(TOO_NOISY, NEW.verdicts[2], strict=True)


def settled() -> str:
    verdict = a_regression(because="+20.0 % (95 %: +19.5 % to +20.5 %)")
    test = f"{TEST}[a b-'c']"
    return failed(
        verdict,
        test=f"{test}#eval",
        recorded="4d2a4d2",
        nodeid=test,
        invocation=ELSEWHERE,
    )


def every_metric() -> str:
    # The first of each unit: a further metric changes nothing here.
    last_first = reversed([m for m in METRICS.values() if m.budget])
    names = {(m.unit, m.kind): m.name for m in last_first}.values()
    worse = [a_regression(name, 2.0, 1.0, limit=1.0) for name in reversed(names)]
    changed = {f"software-{number}": ("1.0", "2.0") for number in range(20)}
    found = tuple(a_finding(line=n, blocked_ms=n / 10) for n in range(1, 30))
    return failed(*worse, findings=found, changed=changed)


def drifted() -> str:
    drifts = (
        Drift(
            test=TEST,
            metric="step_ms",
            anchor=10.0,
            now=10.4,
            limit=10.3,
            bound="detect 3 %",
        ),
        Drift(
            test=f"{TEST}#eval",
            metric="syncs",
            anchor=0,
            now=1,
            limit=0,
            bound="tolerance 0 %",
        ),
    )
    return f"{drift_text(drifts, nodeid=TEST, invocation=ELSEWHERE)}\n"


def headlines() -> str:
    """The first line of a failure in less and less room."""
    line = slower().partition("\n")[0]
    fitting = (f"{room:3} {fitting_headline(line, room)}" for room in (80, 50, 9))
    return text_of([*fitting, open_headline(a_test(TOO_NOISY)), open_headline(NEW)])


def shared() -> str:
    """A cause of three tests: the first names all, one names the first, one has its own as well."""
    wait = a_finding(line=17, stored=0, source="self.last = loss.item()")
    other = a_finding(line=30, stored=0, source="print(loss)")
    tests = {
        TEST: (wait,),
        "tests/test_train.py::test_deep[2]": (wait,),
        "t.py::c": (other, wait),
    }
    verdicts = {
        test: a_test(NEW_SYNCS, test=test, findings=findings)
        for test, findings in tests.items()
    }
    causes, texts = SharedCauses(), []
    for test, verdict in verdicts.items():
        causes.add(test, verdict)
    for test, verdict in verdicts.items():
        texts.append(Failure(verdict, test, shared=causes).text)
    return text_of(texts)


FAILURES: Final[Mapping[str, Callable[[], str]]] = {
    "failure-slower.txt": slower,
    "failure-coloured.txt": lambda: coloured(syncs()).replace("\x1b", "<ESC>"),
    "failure-memory.txt": more_memory,
    "failure-workspaces.txt": workspaces,
    "failure-syncs.txt": syncs,
    "failure-shared.txt": shared,
    "failure-copies.txt": copies,
    "failure-budgets.txt": budgets,
    "failure-growth-retained-graph.txt": growth,
    "failure-garbage.txt": garbage,
    "failure-graph-breaks.txt": graph_breaks,
    "failure-operations.txt": work,
    "failure-varies.txt": varies,
    "failure-inconclusive-strict.txt": inconclusive,
    "failure-no-baseline.txt": no_baseline,
    "failure-not-measured.txt": not_measured,
    "failure-environment.txt": environment_changed,
    "failure-settled.txt": settled,
    "failure-every-metric.txt": every_metric,
    "failure-drifted.txt": drifted,
    "failure-headlines.txt": headlines,
}
