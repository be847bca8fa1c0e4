"""What the pages of a CI service say of one test or one run each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from builders import MIB, SCRIPTED, SIMULATED, a_verdict
from golden_lines import Cases, listed
from remarkable_runs import SOURCES, SYNC, SYNCS, record, regressed, results, time

from pytest_gpuperf.model.baseline import BaselineChange
from pytest_gpuperf.model.environment import Hardware
from pytest_gpuperf.model.finding import Finding, FindingKind, Location
from pytest_gpuperf.model.run import Ending, Record, Results
from pytest_gpuperf.model.verdict import Outcome, Verdict
from pytest_gpuperf.report.ci.github import Sources, commands
from pytest_gpuperf.report.ci.job_summary import run_markdown, title
from pytest_gpuperf.report.command import Invocation
from pytest_gpuperf.report.judged_calls import judged_calls


PEAK: Final = "peak_allocated_bytes"


def worse(metric: str, now: float, was: float) -> Verdict:
    return a_verdict(metric, Outcome.REGRESSED, now, was)


def over(metric: str, now: float, limit: float) -> Verdict:
    return a_verdict(metric, Outcome.OVER_BUDGET, now, None, limit=limit)


def rows(found: Results, sources: Sources = SOURCES) -> list[str]:
    """The rows of a summary."""
    text = run_markdown(
        found,
        judged_calls(found, "results.json"),
        sources,
        baseline_file="",
        pending="",
        room=64_000,
    )
    return [line for line in text.splitlines() if line.startswith("| <code>")]


def row(*verdicts: Verdict, ending: Ending = Ending.FAILED, **fields: Any) -> list[str]:
    return rows(results(t=record("t", *verdicts, ending=ending, **fields)))


def passed(*verdicts: Verdict) -> list[str]:
    return row(*verdicts, ending=Ending.PASSED)


def summary_rows() -> Cases:
    calls = [
        record(name, time(Outcome.REGRESSED, now), ending=Ending.FAILED).verdicts[0]
        for name, now in (("t.py::t", 11.0), ("t.py::t#eval|", 12.0))
    ]
    both = Record(Ending.FAILED, Outcome.REGRESSED, "", tuple(calls), "t.py:3")
    failed = record("a", time(Outcome.PASS), ending=Ending.FAILED)
    drifted = failed._replace(headline="DRIFTED step time: 2.068 ms")
    doubted = time(Outcome.INCONCLUSIVE, 12.0, None, limit=10.0)
    slow = time(Outcome.REGRESSED, 12.03)
    said: Cases = {}
    said["several metrics"] = row(
        slow,
        worse("syncs", 1, 0),
        over(PEAK, 95 * MIB, 90.0 * MIB),
        a_verdict(PEAK, Outcome.PASS, 95 * MIB, 80 * MIB),
    )
    said["two limits"] = row(worse("step_ms", 6.2, 4.2), over("step_ms", 6.2, 5.0))
    said["how each moved"] = [
        line
        for verdict in (
            *(
                worse("syncs", 3, 0),
                worse("pageable_copies", 2, 0),
                over("syncs", 3, 0),
            ),
            *(over("busy_pct", 71.0, 85.0), worse("growth_bytes", 4096, 0)),
            *(worse(PEAK, MIB + 512, MIB), worse("launches", 4 / 3, 1.1 + 0.1)),
        )
        for line in row(verdict)
    ]
    said["what did not fail begins with what came of it"] = [
        line
        for verdict in (
            time(Outcome.PASS, 2.0000000000000004, 2.0),
            time(Outcome.IMPROVED, 8.0),
            a_verdict("syncs", Outcome.PASS, 0.1 + 0.2, 0.1 + 0.2),
            time(Outcome.NOT_CHECKED, None, None),
            doubted,
            time(Outcome.INCONCLUSIVE, None, None),
        )
        for line in passed(verdict)
    ]
    said["two calls of a test share its row"] = rows(results(**{"t.py::t": both}))
    said["two tests of one name have their files"] = rows(
        results(**{f"{file}.py::t": regressed(f"{file}.py::t") for file in "ab"})
    )
    said["the line that waits is linked although the time is worse"] = row(
        slow, worse("syncs", 1, 0), findings=(SYNC,)
    )
    said["a line without a page is named"] = rows(
        results(t=regressed("t")), Sources(is_ours=lambda _: False)
    )
    said["a test that failed although its metrics pass"] = [
        *rows(results(a=failed)),
        *rows(results(a=drifted)),
    ]
    text = run_markdown(
        results(t=regressed("t")),
        [],
        SOURCES,
        baseline_file="",
        pending="",
        room=64_000,
        changed=[
            BaselineChange(test="t.py::a", metric="syncs", old=0, new=2),
            BaselineChange(test="t.py::a|b", metric="step_ms", old=None, new=12.0),
            BaselineChange(test="t.py::gone", metric=PEAK, old=9 * MIB, new=None),
        ],
    )
    said["what a pull request changes in the baselines"] = text.splitlines()[2:]
    said["what a budget could not decide is against the budget"] = [
        line
        for call in judged_calls(results(a=record("a", doubted)), "results.json")
        for line in call.sentences
    ]
    return said


def titles() -> Cases:
    def on(hardware: Hardware, found: Results) -> Results:
        return replace(found, head=replace(found.head, hardware=hardware))

    passes = record("a", time(Outcome.PASS))
    unsure = record("b", time(Outcome.INCONCLUSIVE))
    unknown = record("a", time(Outcome.NO_BASELINE, 1, None), ending=Ending.FAILED)
    broken = record("a", time(Outcome.PASS), ending=Ending.FAILED)
    green = results(0, a=passes)
    found = {
        "nothing": results(0),
        "green": green,
        "green, and pytest was not": results(2, a=passes),
        "nor by its exit status of failures": results(1, a=passes),
        "red": results(1, a=regressed("a")),
        "red, and pytest ended early": results(3, a=regressed("a"), b=regressed("b")),
        "some inconclusive": results(0, a=passes, b=unsure),
        "without a baseline": results(a=unknown, b=passes),
        "failed by itself": results(a=broken, b=passes),
        "on the simulated GPU": on(SIMULATED, green),
        "on a device without a name": on(SCRIPTED, green),
        "nothing came": results(4),
    }
    return {said: [title(one)] for said, one in found.items()}


def annotations() -> Cases:
    def marked(
        sources: Sources = SOURCES, *command: Invocation, **tests: Record
    ) -> tuple[str, ...]:
        return commands(
            judged_calls(results(**tests), "results.json"), sources, *command
        )

    def waits(*findings: Finding, name: str = "t", verdicts: Any = (SYNCS,)) -> Record:
        return record(name, *verdicts, ending=Ending.FAILED, findings=findings)

    syncs, peak = (
        a_verdict(name, Outcome.NO_BASELINE, now, None)
        for name, now in (("syncs", 2), (PEAK, MIB))
    )
    library = Location(file="/x/site-packages/lib/it.py", line=7, function="f")
    later = replace(
        SYNC, stored=0, location=replace(SYNC.location, line=9), source="loss.item()"
    )
    limited = replace(SYNCS, outcome=Outcome.OVER_BUDGET, baseline=None, limit=0)
    held = replace(SYNC, kind=FindingKind.PEAK, metrics=(PEAK,))
    flops = replace(syncs, metric="flops", now=13_090_816)
    device = Invocation(options=("--gpuperf-device=simulated",))
    said: Cases = {}
    for ending in (Ending.PASSED, Ending.FAILED):
        said[f"a test without baseline that {ending.value}"] = marked(
            SOURCES, device, new=record("new", syncs, peak, ending=ending)
        )
    said["a line of a library is named and not marked"] = marked(
        t=waits(replace(SYNC, location=library))
    )
    said["the worst of several lines is marked"] = marked(t=waits(SYNC, later))
    said["a line outside of the project is not"] = marked(
        replace(SOURCES, is_ours=lambda _: False), t=waits(SYNC)
    )
    said["tests that fail by the same line share one"] = marked(
        b=waits(SYNC, name="b"),
        c=waits(SYNC, name="c"),
        a=waits(SYNC, name="a", verdicts=(limited, SYNCS)),
    )
    said["what has no baseline is marked at its own line"] = marked(
        new=record("new", flops, peak, syncs, findings=(held,))
    )
    return said


CI: Final[Mapping[str, Callable[[], str]]] = {
    "ci-rows.md": lambda: listed(summary_rows),
    "ci-titles.txt": lambda: listed(titles),
    "ci-annotations.txt": lambda: listed(annotations),
}
