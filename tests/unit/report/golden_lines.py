"""What the parts of a report say of one case each: a sentence, and its lines below it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from builders import (
    CPU,
    KIB,
    MIB,
    a_comparison,
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
from golden_audits import (
    CONDITION,
    HERE,
    ITEM as AUDITED,
    LOSS,
    TRAIN,
    UNCHECKED,
    an_audit,
)
from golden_commands import COMPARED
from golden_failures import SLOWER, failed
from golden_suite import SIDES, SPEEDUP, a_detectable_change

from pytest_gpuperf.model.ab import AbRun, Answer, Comparison, Training, TrainingAnswer
from pytest_gpuperf.model.baseline import BaselineChange
from pytest_gpuperf.model.finding import Finding, FindingKind, Location, Phase
from pytest_gpuperf.model.metrics import FLOPS, PEAK_ALLOCATED, STEP_MS, SYNCS, Metric
from pytest_gpuperf.model.verdict import (
    DecidedBy,
    DetectableChange,
    Outcome,
    SuiteAcuity,
    TestVerdict,
    Verdict,
)
from pytest_gpuperf.report.command import DEFAULT_INVOCATION, Invocation
from pytest_gpuperf.report.document import Block, terminal
from pytest_gpuperf.report.numbers import (
    format_apart,
    format_change,
    format_value,
    join_fitting,
    rounded,
)
from pytest_gpuperf.report.screen.acceptance import (
    drift_lines,
    drifted_line,
    kept_lines,
)
from pytest_gpuperf.report.screen.audit import AuditView, audit_blocks
from pytest_gpuperf.report.screen.commits import comparison_blocks, markdown_lines
from pytest_gpuperf.report.screen.comparison import compared_lines
from pytest_gpuperf.report.screen.counts import (
    acuity_lines,
    counts_line,
    inconclusive_lines,
    percent,
)
from pytest_gpuperf.report.screen.failure import explanation_lines
from pytest_gpuperf.report.screen.findings import (
    finding_blocks,
    inconclusive_remark,
    kinds_blocks,
    loop_fix,
)
from pytest_gpuperf.report.screen.summary import Line, refresh_lines, summary_lines
from pytest_gpuperf.worker.fixture import Compared


Cases = dict[str, Iterable[str]]
"""A sentence on each case, and the text that it gives."""


def listed(cases: Callable[[], Cases]) -> str:
    """The lines of each case below its sentence."""
    found = ([f"# {said}", *lines, ""] for said, lines in cases().items())
    return text_of(line for lines in found for line in lines)


def painted(lines: Iterable[Line]) -> Iterator[str]:
    """Lines of a terminal behind their colours."""
    return (f"{line.role.name:6} | {line.text}" for line in lines)


# Causes.

LINE: Final = a_location()
ITEM: Final = a_finding(
    location=LINE, reason="the CPU reads one element", phase=Phase.FORWARD
)
MAY_WAIT: Final = replace(
    ITEM, kind=FindingKind.INCONCLUSIVE, metrics=(), reason="it is staged and may block"
)
FEED: Final = replace(
    ITEM,
    kind=FindingKind.TRANSFER,
    op="aten::copy_",
    metrics=("h2d_bytes", "pageable_copies"),
    reason="from pageable memory to the GPU",
    moved_bytes=8 * KIB,
)
PEAK: Final = replace(
    ITEM,
    kind=FindingKind.PEAK,
    op="aten::add",
    metrics=("peak_allocated_bytes",),
    reason="activations 3.0 MiB, parameters 1.0 MiB",
    held_bytes=4 * MIB,
)
HELD: Final = replace(
    PEAK,
    kind=FindingKind.MEMORY,
    op="aten::tanh",
    location=replace(LINE, line=7),
    per_step=2,
    phase=Phase.BACKWARD,
    reason="",
    held_bytes=3 * MIB,
)
LOST: Final = replace(HELD, op=None, location=None)


def slow(line: int, percent: float, changed_since: str = "") -> Finding:
    """A line that takes *percent* of the time of its step."""
    return a_finding(
        FindingKind.TIME,
        line,
        op=None,
        metrics=("step_ms",),
        percent=percent,
        source="total += i * i",
        changed_since=changed_since,
    )


def lines_of(*found: Finding, of: str = "syncs", room: int = 9) -> tuple[str, ...]:
    return terminal(finding_blocks(found, {of}, room=room))


def findings() -> Cases:
    said: Cases = {}

    inner = a_location(3, "/v/lib/python3.11/site-packages/timm/loss.py", "forward")
    of_library = replace(
        ITEM,
        phase=Phase.BACKWARD,
        forward=a_location(7, "model.py", "forward"),
        innermost=inner,
    )
    allowed = replace(ITEM, metrics=(), allowed="logging")
    twice = replace(ITEM, source="a.item() + b.item()", reason="", per_step=2)
    said["a sync has its reason, and what may wait is apart"] = lines_of(
        MAY_WAIT, FEED, ITEM
    )
    said["syncs explain a time that nothing else does"] = lines_of(
        allowed, FEED, ITEM, of="step_ms"
    )
    said["allowed ones do not"] = lines_of(allowed, FEED, of="step_ms")
    said["a backward has its forward, an installed file its package"] = lines_of(
        of_library
    )
    said["what may wait is one remark, or none"] = [
        inconclusive_remark([ITEM, *found])
        for found in (
            [
                MAY_WAIT,
                replace(MAY_WAIT, location=replace(LINE, line=20), per_step=2),
            ],
            [replace(MAY_WAIT, location=None)],
            [FEED],
        )
    ]
    said["a line with two causes is marked whole"] = lines_of(twice)
    return said | memory() | slow_lines()


def peak_blocks(findings: Sequence[Finding]) -> Iterable[Block]:
    return kinds_blocks(findings, FindingKind.PEAK, FindingKind.MEMORY)


def memory() -> Cases:
    said: Cases = {}
    more = replace(HELD, held_bytes=5 * MIB, per_step=1, location=LINE)
    begins = replace(PEAK, op=None, phase=None, location=None, reason="")
    said["memory has its peak, then what holds most"] = lines_of(
        HELD, ITEM, PEAK, of="peak_allocated_bytes"
    )
    said["what holds more is first"] = lines_of(
        HELD, more, PEAK, of="peak_allocated_bytes", room=6
    )
    said["what does not fit is counted"] = lines_of(
        HELD, more, PEAK, of="peak_allocated_bytes", room=3
    )
    said["the peak next to any verdict"] = terminal(peak_blocks([ITEM, HELD, PEAK]))
    said["no peak"] = terminal(peak_blocks([ITEM]))
    said["a peak of an unknown phase"] = terminal(
        peak_blocks([replace(PEAK, phase=None, reason="")])
    )
    said["what has no line says when it was"] = terminal(
        peak_blocks([replace(LOST, held_bytes=MIB), replace(LOST, phase=None), begins])
    )
    changed = replace(HELD, changed_since="3b1a741")
    said["memory of a line that changed comes before the peak"] = terminal(
        peak_blocks([PEAK, changed])
    )
    return said


def slow_lines() -> Cases:
    said: Cases = {}
    said["a slow line that changed comes alone"] = lines_of(
        slow(3, 60.0), slow(7, 34.4, "3b1a741"), slow(9, 4.0, "3b1a741"), of="step_ms"
    )
    said["without one the two slowest"] = lines_of(
        slow(3, 30.0), slow(7, 40.0), slow(9, 21.0), of="step_ms", room=20
    )
    said["a line that changed is enough at a tenth"] = lines_of(
        slow(3, 30.0), slow(7, 40.0), slow(11, 9.0, "3b1a741"), of="step_ms", room=20
    )
    begun = ({"add": (3, 4)}, {"amax": (1, 256), "stack": (0, 1)})
    some = ({"mul": counts} for counts in ((0, 15), (2, 31), (40, 50)))
    said["an operation that is run in a loop has a fix, some more of it have none"] = [
        fix for ops in (*begun, *some) if (fix := loop_fix([line_change(ops)]))
    ]
    said["no line is slow"] = lines_of(slow(3, 19.0), of="step_ms", room=20)
    said["slow lines explain no memory"] = lines_of(
        slow(3, 60.0), of="peak_allocated_bytes"
    )
    said["a new sync is shown with a slow line"] = lines_of(
        slow(3, 60.0), replace(ITEM, stored=0), of="step_ms"
    )
    said["one that was there does not"] = lines_of(
        slow(3, 60.0), replace(ITEM, stored=1), of="step_ms"
    )
    return said


def blocking(ms: float, per_step: int = 1) -> Finding:
    """A wait on line ten times *ms*."""
    place = a_location(int(10 * ms), "a.py", "f")
    return a_finding(per_step=per_step, blocked_ms=ms, location=place)


def failures() -> Cases:
    said: Cases = {}

    def lines(*verdicts: Verdict, **fields: Any) -> list[str]:
        return failed(*verdicts, **fields).splitlines()

    over = a_missed_budget()
    hits = a_finding(blocked_ms=0.31, source="hits += (guess == labels).sum().item()")
    short = a_verdict("syncs", Outcome.INCONCLUSIVE, None, None, because="no time left")
    waits = [*map(blocking, (0.5, 0.1, 1.0, 0.2, 0.9, 0.3, 0.8, 0.4, 0.6, 0.7))]
    place = Location(file="src/training/loop.py", line=7, function="step", exact=False)
    known = a_finding(
        api="cudaStreamSynchronize", per_step=30, blocked_ms=12.14, location=place
    )
    bare = a_finding(op=None, location=None)
    also = (
        short,
        replace(short, metric="launches"),
        replace(short, because="no profile"),
    )
    said["what, where, what to do, how sure it is and what to type"] = lines(
        SLOWER,
        over,
        a_verdict("peak_allocated_bytes", now=36 * MIB, baseline=36 * MIB),
        findings=(hits,),
        changed={"torch": ("2.12.1", "2.13.0")},
    )
    said["a metric that is worse and over its limit has one headline"] = lines(
        over, a_regression("syncs", 1, 0, because="3 of 3 runs", limit=0)
    )
    said["what was not measured is said once a reason"] = lines(SLOWER, *also)
    said["findings come worst first, eight at most"] = lines(
        over, findings=tuple(waits)
    )
    said["those that block alike come most frequent first"] = lines(
        over, findings=(blocking(0.0, 1), blocking(0.0, 7))
    )
    said["all that is known of a finding, on two lines"] = lines(
        over, findings=(known,)
    )
    said["a finding of which little is known"] = lines(
        over, findings=(bare, replace(bare, api="cudaFree", per_step=2))
    )
    return said


# Audits of scripts.


def audits() -> Cases:
    said: Cases = {}

    def lines(
        *found: Finding, steps: int = 20, notes: tuple[str, ...] = (), **fields: Any
    ) -> Iterable[str]:
        sources = fields.pop("sources", {})
        audit = an_audit(*found, steps=steps, **fields)
        view = AuditView(
            here=HERE,
            line_of=lambda file, n: sources.get((file, n), ""),
            steps=audit.steps,
        )
        return terminal(audit_blocks(audit, notes, view))

    batches = a_location(70, "/env/lib/site-packages/models/trainer.py", "fit")
    clipping = a_location(
        109, "/env/lib/site-packages/torch/nn/utils/clip_grad.py", "total_norm"
    )
    read = replace(AUDITED, per_step=40, in_steps=20, innermost=batches)
    clip = replace(read, per_step=20, reason="a check", torch=clipping)
    sources = {
        (TRAIN.file, TRAIN.line): "trainer.fit(model)",
        (batches.file, batches.line): "logs['loss'] = loss.item()",
        (clipping.file, clipping.line): "if error and total_norm.isnan():",
    }
    said["waits in libraries are below the line that led there"] = lines(
        clip, read, steps=20, sources=sources
    )
    often = replace(CONDITION, per_step=12, in_steps=6)
    said["rare syncs come after those of each step, copies of the set-up last"] = lines(
        replace(AUDITED, op="aten::_to_copy", per_step=300, in_steps=0, once=True),
        replace(AUDITED, per_step=20, in_steps=1),
        replace(AUDITED, per_step=1, in_steps=0, once=True, location=LOSS),
        often,
        steps=6,
    )
    copied = "a blocking copy to the GPU from memory"
    said["a copy is not advised to be printed less often"] = lines(
        replace(AUDITED, op="aten::_to_copy", reason=copied, per_step=2, in_steps=0),
        steps=0,
        sources={
            (TRAIN.file, TRAIN.line): "print(model(rows.to('cuda')).sum().item())"
        },
    )
    elsewhere = replace(UNCHECKED, innermost=None, per_step=2)
    other = replace(UNCHECKED, op="aten::eig")
    said["equal lines are said once with their count"] = lines(
        not_checked=(UNCHECKED, elsewhere, UNCHECKED, other),
        notes=("So.", "It.", "So."),
    )
    said["the headline counts per step what the limit counts"] = [
        next(iter(lines(*(replace(AUDITED, per_step=n, in_steps=s) for n, s in each))))
        for each in (((19, 19),), ((2, 2),), ((20, 20), (38, 19)), ((3, 1),))
    ]
    said["a file from elsewhere keeps its path"] = terminal(
        audit_blocks(
            an_audit(AUDITED),
            (),
            AuditView(
                here=Path("/home/me/proj"),
                line_of=lambda _file, _line: "",
                steps=an_audit(AUDITED).steps,
            ),
        )
    )
    return said


# The end of a run.


def judged(name: str, *verdicts: Verdict, **fields: Any) -> TestVerdict:
    return a_test(*verdicts, test=f"tests/test_x.py::test_{name}", **fields)


PASSED: Final = judged(
    "pass",
    a_verdict(now=10.0, baseline=None, because="within its budget"),
    a_verdict(baseline=10.02),
    a_verdict("syncs", now=0, baseline=0),
    a_verdict("peak_allocated_bytes", now=38_063_309, baseline=38_063_309),
    a_verdict("latency_ms", Outcome.NOT_CHECKED, None, None, because="not on a cpu"),
)
OVER: Final = judged(
    "over", a_missed_budget(), a_verdict("launches", Outcome.NO_BASELINE, 0, None)
)
IMPROVED: Final = judged("faster", a_verdict(outcome=Outcome.IMPROVED, now=8.0))
INCONCLUSIVE: Final = a_verdict("step_ms", Outcome.INCONCLUSIVE, 0.0318, 0.0312)
BARE: Final = TestVerdict(test="tests/test_x.py::test_bare", verdicts=())


def summaries() -> Cases:
    said: Cases = {}

    def change(
        metric: str, old: float | None, new: float, **more: Any
    ) -> BaselineChange:
        return BaselineChange(test="t.py::a", metric=metric, old=old, new=new, **more)

    noisy = judged("noisy", INCONCLUSIVE)
    suite = (
        PASSED,
        judged(
            "elsewhere",
            a_verdict(
                "latency_ms", Outcome.NOT_CHECKED, None, None, because="not on a cpu"
            ),
            a_verdict("syncs", Outcome.NOT_CHECKED, None, None, because="no device"),
        ),
        BARE,
        IMPROVED,
        judged(
            "new",
            a_verdict(outcome=Outcome.NOT_CHECKED, now=None, because="cuda only"),
            a_verdict(outcome=Outcome.NO_BASELINE, now=12.1, baseline=None),
            a_verdict("syncs", Outcome.NO_BASELINE, 0, None),
        ),
        noisy,
        OVER,
        judged(
            "slower[a long parameter that is never cut]",
            a_verdict("syncs", now=1, baseline=1),
            a_regression(),
            a_verdict("peak_allocated_bytes", now=2**30, baseline=2**30),
        ),
    )
    said["the table is worst first, with whole names last"] = painted(
        summary_lines(suite)
    )
    said["what became worse has a column"] = painted(
        summary_lines(
            [
                a_test(a_regression("launches", 516, 5), test="t.py::loop"),
                a_test(a_regression("pageable_copies", 1, 0), test="t.py::copy"),
                a_test(a_verdict("launches", now=9, baseline=9), test="t.py::same"),
            ]
        )
    )
    said["no verdicts make no table"] = painted(summary_lines(()))
    said["the last line names nothing that did not occur"] = painted(
        counts_line(tests, CPU)
        for tests in ((IMPROVED,), (noisy,), (PASSED,), (OVER,), (BARE,), ())
    )
    said["what no new test has is no column"] = painted(
        refresh_lines(
            [
                change("peak_allocated_bytes", None, 3_719_168),
                change("syncs", None, 0),
            ]
        )
    )
    said["a refresh that ends at its anchors has no drift"] = painted(
        refresh_lines([change("syncs", 1, 2, anchor=2)])
    )
    said["of what has no anchor, or moved away from it just now, no drift is shown"] = (
        painted(
            refresh_lines(
                [
                    change(
                        "peak_allocated_bytes", 3_000_000, 3_010_000, anchor=2_900_000
                    ),
                    change(
                        "peak_reserved_bytes", 3_000_000, 3_010_000, anchor=3_000_000
                    ),
                    change("syncs", 0, 1, anchor=1),
                ]
            )
        )
    )
    said["more is good where the metric says so"] = painted(
        refresh_lines([change("busy_pct", 60, 71)])
    )
    widest = a_test(
        a_verdict(outcome=Outcome.INCONCLUSIVE, now=1234.0, baseline=0.0004321),
        a_verdict("syncs", now=9919),
        a_verdict("peak_allocated_bytes", now=1023 * MIB),
        test="TEST",
    )
    said["the widest numbers leave the name in 80 columns"] = painted(
        summary_lines([widest])
    )
    said["nothing to refresh makes no table"] = painted(refresh_lines(()))
    tests = [judged(name, INCONCLUSIVE, recorded=name) for name in ("abc1234", "")]
    said["what decides a time names the commit of its baseline"] = painted(
        inconclusive_lines(tests, DEFAULT_INVOCATION, is_strict=False)
    )
    on_cpu = Invocation(options=("--gpuperf-device=cpu",))
    said["every refused test is named as a shell reads it"] = painted(
        [drifted_line(["t.py::a", "t.py::b[x y]"], on_cpu)]
    )
    said["nothing left out makes no tables"] = painted(
        (*kept_lines([]), *drift_lines([]))
    )
    return said


def explanations() -> Cases:
    said: Cases = {}

    def lines(*verdicts: Verdict) -> Iterator[str]:
        return painted(explanation_lines([a_test(*verdicts, test="t")]))

    known = some_evidence(discount=0.004, p_improved=1.0)
    budget = replace(known, runs=1, discount=-0.01, p_regressed=None, p_improved=None)
    said["a time has its rule and all its numbers"] = lines(
        a_regression(evidence=known)
    )
    said["a budget has no tolerance, and unknown numbers are left out"] = lines(
        a_verdict(baseline=None, evidence=replace(budget, rule=DecidedBy.BUDGET))
    )
    return said


def precision() -> Cases:
    said: Cases = {}

    def lines(*tests: DetectableChange, **fields: Any) -> Iterator[str]:
        decidable = sum(test.decidable for test in tests)
        known = {"scatter": 0.023, "smallest": 0.061, "decidable": decidable}
        return painted(acuity_lines(SuiteAcuity(tests=tests, **known, **fields)))

    one = a_detectable_change
    wild = replace(one("wild", 0.4), tolerance=0.05)
    said["a machine that sees well gets a short line"] = lines(one("t", 0.01))
    said["of two tests it is the median"] = lines(one("t", 0.01), one("u", 0.01))
    said["one test gets advice too"] = lines(
        one("t", 0.03), advised=0.1, decidable_then=1
    )
    said["where no tolerance helps it says what does"] = lines(wild, one("u", 0.4))
    scatters = {"wild": 0.4, "loud": 0.05, "usual": 0.02, "calm": 0.01}
    said["tests that scatter twice as much are named"] = lines(
        *(one(name, s) for name, s in scatters.items()),
        advised=0.5,
        decidable_then=4,
    )
    said["three of them at most"] = lines(*[one("t", 0.5)] * 5)
    said["ratios have two digits"] = map(percent, (0.002, 0.0994, 0.0996, 1.614))
    return said


# Two sides.


def trained(*answers: TrainingAnswer, worse: bool = False) -> AbRun:
    """A comparison of tests that train so."""
    calls = [
        Comparison(
            test=f"t.py::{number}",
            time=a_comparison(Answer.SLOWER if worse else Answer.SAME, 1.0),
            training=Training(answer=answer, text=f"because of {number}"),
        )
        for number, answer in enumerate(answers)
    ]
    return replace(COMPARED, calls=tuple(calls), uncompared=(), notes=())


def comparisons() -> Cases:
    said: Cases = {}

    def of(sides: Comparison, *verdicts: Verdict) -> TestVerdict:
        return TestVerdict(test="a.py::t#compare", verdicts=verdicts, sides=sides)

    untimed = Comparison(
        before={"syncs": 1}, after={"syncs": 0}, unmeasured={"speedup": "no clock"}
    )
    missed = a_missed_budget("speedup", 1.3, 1.4, because="too slow")
    met = replace(missed, outcome=Outcome.PASS)
    result = Compared(SIDES)
    noisy = replace(SPEEDUP, answer=Answer.INCONCLUSIVE, why="too noisy")
    said["a table of both sides, of its own"] = painted(
        [
            *compared_lines([of(untimed), of(replace(SIDES, training=None), missed)]),
            *summary_lines([of(SIDES)]),
            *compared_lines([BARE]),
        ]
    )
    said["what agreed and what is unknown are below the row"] = painted(
        compared_lines([of(replace(SIDES, time=noisy))])
    )
    said["comparisons that nobody judged are counted"] = painted(
        counts_line(tests, CPU) for tests in ([of(SIDES, met), of(SIDES)], [of(SIDES)])
    )
    said["what an assertion shows of a result"] = map(
        repr, (result.time, result.memory, result.copies, result)
    )
    said["all of a result"] = str(result).splitlines()
    alike = trained(TrainingAnswer.SAME, TrainingAnswer.SAME)
    same = Training(answer=TrainingAnswer.SAME, text="losses agree in every digit")
    agreed = tuple(replace(call, training=same) for call in alike.calls)
    said["the training is first, and counted last"] = terminal(
        comparison_blocks(trained(*TrainingAnswer))
    )
    said["what agreed is said for all"] = terminal(comparison_blocks(alike))[:2]
    said["and once if it is the same"] = terminal(
        comparison_blocks(replace(alike, calls=agreed))
    )[:2]
    clockless = Comparison(
        test="t.py::t[a|b]", pairs=1, unmeasured={"speedup": "it has no clock"}
    )
    said["a name with a bar stays in its cell"] = markdown_lines(
        AbRun(
            before="a",
            after="b",
            device="simulated-cuda",
            engine="pairs",
            calls=(clockless,),
        )
    )
    return said


# Numbers.

VALUES: Final[tuple[tuple[Metric, tuple[float, ...]], ...]] = (
    (STEP_MS, (12.034, 9.99, 1203.4, 9999.7, 12_034.0, 12_034_000.0, 0.0312)),
    (STEP_MS, (0.99999, 0.000312, 0.0, float("nan"), float("inf"))),
    (
        PEAK_ALLOCATED,
        (38_063_309, MIB - 512, MIB - 1, 1000 * MIB, 1536 * MIB, 2048, 1023, 0),
    ),
    (SYNCS, (30, 1_234_567.0, 0.5)),
    (FLOPS, (0, 999_999, 104_726_528, 6_442_450_944, 2.5e12)),
)
CHANGES: Final[tuple[tuple[Metric, tuple[tuple[float, float], ...]], ...]] = (
    (
        STEP_MS,
        ((10.0, 12.03), (10.0, 9.0), (10.0, 10.001), (10.0, 9.999), (0.0, 12.03)),
    ),
    (
        PEAK_ALLOCATED,
        ((MIB, 2 * MIB), (32 * MIB, 32 * MIB + 512), (MIB, MIB), (0, MIB)),
    ),
    (SYNCS, ((0, 1), (3, 1), (2, 2))),
    (FLOPS, ((104_726_528, 209_453_056), (104_726_528, 104_726_529))),
)
BESIDE: Final[tuple[tuple[Metric, tuple[tuple[float, ...], ...]], ...]] = (
    (STEP_MS, ((12.0, 12.001), (12.0, 12.0), (0.1, 0.1 + 2**-56), (2.0, 2.0 + 2**-50))),
    (PEAK_ALLOCATED, ((38_063_309, 38_063_310), (0, 512), (100, 900), (512, 1536))),
    (PEAK_ALLOCATED, ((12 * KIB, MIB), (1000 * KIB, 1229 * KIB), (3 * 2**30, 2**32))),
    (PEAK_ALLOCATED, ((100 * MIB, 1536 * MIB), (512, 64 * MIB), (611_328, 611_840))),
    (STEP_MS, ((),)),
    (FLOPS, ((104_726_528, 209_453_056), (104_726_528, 104_726_529))),
)


def numbers() -> Cases:
    said: Cases = {}
    said["four digits and the unit that fits"] = (
        f"{metric.name} {value}: {format_value(metric, value)}"
        for metric, values in VALUES
        for value in values
    )
    said["a change is a ratio where a ratio says something"] = (
        f"{metric.name} {old} to {new}: {format_change(metric, old, new)}"
        for metric, pairs in CHANGES
        for old, new in pairs
    )
    said["next to each other in one unit, with digits that tell them apart"] = (
        f"{metric.name} {values}: {', '.join(format_apart(metric, *values))}"
        for metric, many in BESIDE
        for values in many
    )
    said["what does not fit is counted"] = (
        f"{width}: {join_fitting(words, width)}"
        for words in (["alpha", "beta", "gamma"], [])
        for width in (20, 17, 18, 0)
    )
    said["for programs whole, or with six digits"] = (
        f"{value}: {rounded(value)}" for value in (10.0, 104857600, 1.23456789, 0.0)
    )
    return said


LINES: Final[Mapping[str, Callable[[], str]]] = {
    "lines-findings.txt": lambda: listed(findings),
    "lines-failures.txt": lambda: listed(failures),
    "lines-audits.txt": lambda: listed(audits),
    "lines-summaries.txt": lambda: listed(summaries),
    "lines-explanations.txt": lambda: listed(explanations),
    "lines-precision.txt": lambda: listed(precision),
    "lines-comparisons.txt": lambda: listed(comparisons),
    "lines-numbers.txt": lambda: listed(numbers),
}
