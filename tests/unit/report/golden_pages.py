"""What a run leaves for others to read: pages, reports of CI services, files."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from difflib import unified_diff
from functools import partial
from pathlib import Path
from typing import Any, Final
from zlib import decompress

from builders import (
    CPU,
    MIB,
    SCRIPTED,
    SIMULATED,
    USUAL,
    a_finding,
    a_location,
    a_missed_budget,
    a_record,
    a_regression,
    a_test,
    a_verdict,
    an_entry,
    some_results,
    text_of,
)
from golden_audits import FORECAST, FORECAST_BLOCKS, HERE, SAVINGS, WAITING, line_of
from golden_commands import COMPARED
from golden_lines import Cases, listed
from golden_suite import SIDES, VERDICTS
from pages import (
    BAD,
    COURSE,
    GOOD,
    HEAD,
    ITEM,
    LEAN,
    PEAK,
    SLOWER,
    UNKNOWN,
    WAITS as WAITS_MORE,
    Page,
    contents,
    entry,
    page as a_page,
    record as a_record_of,
)

from pytest_gpuperf.errors import UsageError
from pytest_gpuperf.model.baseline import StepSummary
from pytest_gpuperf.model.finding import Location
from pytest_gpuperf.model.measurement import Samples
from pytest_gpuperf.model.run import Ending, Record, Results
from pytest_gpuperf.model.verdict import Outcome, TestVerdict, Verdict
from pytest_gpuperf.report import json as results_json, pytest_benchmark
from pytest_gpuperf.report.ci.github import Sources, commands, line_address, outputs
from pytest_gpuperf.report.ci.job_summary import run_markdown
from pytest_gpuperf.report.command import at_root
from pytest_gpuperf.report.html.page import ab_page, audit_page, memory_page, page_text
from pytest_gpuperf.report.judged_calls import judged_calls
from pytest_gpuperf.report.measured_calls import (
    MeasuredCall,
    measured_calls,
    properties_of,
)
from pytest_gpuperf.report.screen.audit import AuditView, audit_blocks
from pytest_gpuperf.report.screen.commits import comparison_blocks
from pytest_gpuperf.report.secrets import secrets_of, shown_headline, shown_verdict


PENDING: Final = ".gpuperf/pending-cuda-nvidia-h200.json"
COMMIT: Final = "7a1d8c2f5e0b4936a7c1d2e3f405162738495a6b"
GITHUB: Final = {
    "GITHUB_SERVER_URL": "https://github.com",
    "GITHUB_REPOSITORY": "octocat/train",
}
SOURCES: Final = Sources(
    is_ours={"train.py", "tests/test_train.py"}.__contains__,
    folder="models/",
    address=partial(line_address, GITHUB, lambda _file: COMMIT),
)
WAITS: Final = a_test(
    a_regression("syncs", 2, 0, limit=0),
    a_missed_budget("peak_allocated_bytes", 110 * MIB, 100 * MIB),
    test="tests/test_train.py::test_waits[a|b <c> @d]",
    findings=(
        a_finding(blocked_ms=0.5, source="total += loss.item()", stored=0),
        a_finding(
            location=a_location(7, "/env/lib/site-packages/lib/it.py"), blocked_ms=0.9
        ),
    ),
    changed={"torch": ("2.12.1", "2.13.0")},
)
OTHERS: Final = {
    "tests/test_train.py::test_raises": Record(
        Ending.FAILED,
        headline="RuntimeError: the step failed: 3",
        where="tests/test_train.py:30",
    ),
    "tests/test_train.py::test_skipped": Record(
        Ending.SKIPPED, headline="no GPU", where="tests/test_train.py:40"
    ),
    "tests/test_train.py::test_xfailed": Record(Ending.XFAILED),
}


def a_whole_run(**head: Any) -> Results:
    return some_results(
        (*VERDICTS, WAITS),
        OTHERS,
        commit=COMMIT,
        collected=tuple(verdict.test for verdict in VERDICTS),
        selected=tuple(verdict.test for verdict in VERDICTS),
        notes=("gpuperf: all tests +6.0 %, sentinels too: the machine, not the code",),
        **head,
    )


def markdown(found: Results, room: int = 64_000) -> str:
    return run_markdown(
        found,
        judged_calls(found, "results.json"),
        SOURCES,
        baseline_file="baselines/cuda-nvidia-h200.json",
        pending=PENDING,
        room=room,
    )


def small_summaries() -> str:
    """A green run, one that measured nothing, and one whose rows do not fit."""
    green = some_results([a_test()], exit_status=0)
    nothing = some_results(exit_status=5, unreported=("t.py::lost",))
    return "\n".join(
        (markdown(green), markdown(nothing), markdown(a_whole_run(), 2_500))
    )


def shared_summary() -> str:
    """Three tests that one line makes worse: one row, one explanation, one command."""
    wait = a_finding(line=17, stored=0, source="self.last = loss.item()")
    worse = a_verdict("syncs", Outcome.REGRESSED, 1, 0)
    names = ("train_step", "deep_step[2]", "deep_step[4]")
    tests = [a_test(worse, test=f"t.py::test_{n}", findings=(wait,)) for n in names]
    return markdown(some_results(tests))


def annotations() -> str:
    found = a_whole_run()
    lines = commands(
        judged_calls(found, "results.json"), SOURCES, at_root(found.head.hardware)
    )
    return text_of(lines) + outputs(found, f"models/{PENDING}")


def properties() -> str:
    """The properties that a test has in the XML of JUnit."""
    return text_of(
        f"{test}: {name} = {value!r}"
        for test, record in a_whole_run().tests.items()
        for name, value in properties_of(
            test, [results_json.to_json(_decoded(call)) for call in record.verdicts]
        )
    )


def _decoded(call: Mapping[str, Any]) -> Any:
    return results_json.verdict_of(call, "results.json")


def results_without_secrets() -> str:
    """The file of a run, with one test whose texts name paths and a secret."""
    secrets = secrets_of({"HF_TOKEN": "opensesame", "MAX_TOKENS": "512-all"})
    failed = "ValueError: opensesame at /src/train.py, /home/ada/x, --password=hunter2"
    headline = shown_headline(failed, Path("/src"), Path("/home/ada"), secrets)
    inside = a_finding(location=a_location(7, "/env/lib/site-packages/lib/it.py"))
    verdict = shown_verdict(a_test(a_missed_budget(), findings=(inside,)))
    samples = {verdict.test: ROUNDS}
    record = a_record(verdict)._replace(headline=headline, samples=samples)
    head = {"commit": COMMIT, "notes": ("a note",), "collected": (verdict.test,)}
    found = some_results((), {verdict.test: record, **OTHERS}, **head)
    return results_json.dumps(found)


ROUNDS: Final[tuple[Samples, ...]] = (
    {"step_ms": (10.0, 10.12345), "latency_ms": (12.0,)},
    {},
)
TIMES: Final[Mapping[str, tuple[Samples, ...]]] = dict.fromkeys(
    [verdict.test for verdict in VERDICTS[:2]],
    ({"step_ms": (8.0, 16.0, 8.0)}, {"step_ms": (16.0, 8.0)}),
)


def exported(write: Callable[[tuple[MeasuredCall, ...]], str]) -> str:
    found = a_whole_run()
    verdicts = {test: record.verdicts for test, record in found.tests.items()}
    return write(tuple(measured_calls(verdicts, TIMES)))


AT: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)


def benchmark() -> str:
    head = a_whole_run().head
    return exported(lambda calls: pytest_benchmark.dumps(head, calls, AT))


# A page of HTML, without its style and its script.

ASSET: Final = re.compile(r"(<(style|script)[^>]*>).*?(?=</\2>)", re.DOTALL)
HASH: Final = re.compile(r"sha256-[\w+/]+=")


def outlined(text: str) -> str:
    """A line for each tag with the text behind it."""
    bare = HASH.sub("sha256-of-an-asset", ASSET.sub(r"\1", text))
    return bare.replace("<", "\n<").lstrip()


def page() -> str:
    """One test that failed with all that can be known of it, and one that passed."""
    bad = replace(
        BAD,
        recorded="4d2a4d2",
        verdicts=(*BAD.verdicts, a_verdict("busy_pct", now=71.0)),
        findings=(
            replace(ITEM, waits_after=(36,), operations=100, stored=0),
            replace(PEAK, course=COURSE),
        ),
        rates={"samples_per_s": 74_240.4},
    )
    compared = replace(VERDICTS[-1], sides=SIDES)
    step = StepSummary(peak_bytes={"activations": 40 * MIB, "parameters": 30 * MIB})
    found = contents(
        bad,
        GOOD,
        compared,
        others=OTHERS,
        stored={BAD.test: an_entry(step=step, spread=0.01, exact=USUAL)},
        pending={
            BAD.test: an_entry(
                *(12.0 + 0.05 * n for n in range(5)), spread=0.01, exact=USUAL
            )
        },
        lines=LINES,
    )
    return outlined(page_text(found))


def sheets() -> Mapping[str, Callable[[], str]]:
    """The pages of an audit, a forecast and a comparison."""
    view = AuditView(here=HERE, line_of=line_of, steps=WAITING.steps)
    place = {"waits_after": (4,), "operations": 10}
    waiting = replace(
        WAITING, findings=tuple(replace(f, **place) for f in WAITING.findings)
    )
    return {
        "page-audit.html": lambda: outlined(
            audit_page(
                "train.py",
                waiting,
                view,
                audit_blocks(waiting, (), view),
            )
        ),
        "page-memory.html": lambda: outlined(
            memory_page(FORECAST, SAVINGS, view, FORECAST_BLOCKS)
        ),
        "page-ab.html": lambda: outlined(
            ab_page(COMPARED, view, comparison_blocks(COMPARED))
        ),
    }


LINES: Final[Mapping[tuple[str, int], str]] = {
    ("train.py", 2): "    loss = model(batch)",
    ("train.py", 3): "    total += loss.item()",
    ("train.py", 4): "    return total",
}
CODE: Final[Any] = {"lines": LINES}
RAN: Final = replace(ITEM, source="total += loss.item()")


def an_outcome(which: Outcome, name: str, now: float = 12.0) -> TestVerdict:
    return a_test(replace(SLOWER, outcome=which, now=now), test=name)


def differing(base: Page, *calls: TestVerdict, **more: Any) -> list[str]:
    """The texts of a page that are not those of *base*, in their order."""
    lines = unified_diff(base.texts, a_page(*calls, **more).texts, n=0, lineterm="")
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def parts_of_a_test() -> Cases:
    """What the page of a failed test says, and what else it says of another."""
    base = a_page(BAD)

    def bad(*verdicts: Verdict, more: Any = None, **fields: Any) -> list[str]:
        fields.setdefault("verdicts", verdicts or BAD.verdicts)
        return differing(base, replace(BAD, **fields), **(more or {}))

    guessed = Location(file="train.py", line=3, function="step", exact=False)
    vague = (replace(ITEM, location=guessed),)
    over = replace(
        SLOWER, outcome=Outcome.OVER_BUDGET, baseline=None, limit=11.0, because="over"
    )
    new = a_verdict("launches", Outcome.NO_BASELINE, 3, None)
    pending = {"pending": {BAD.test: entry(12.0)}}
    changed = {"lines": {**LINES, ("train.py", 3): "x"}}
    said: Cases = {"a failure": base.texts}
    said["with its lines"] = bad(more=CODE)
    said["a file that changed since shows the line that ran"] = bad(
        findings=(RAN,), more=changed
    )
    said["a line that is only the function's shows no source"] = bad(
        findings=vague, more=CODE
    )
    said["the worst verdict is first"] = bad(LEAN, UNKNOWN, WAITS_MORE, SLOWER)
    said["a metric with two limits has one row"] = bad(SLOWER, over)
    said["an allowed wait says why"] = bad(
        findings=(replace(ITEM, metrics=(), allowed="the loss is logged"),)
    )
    said["what changed is a table"] = bad(more={"stored": {BAD.test: entry(10.0)}})
    said["the snapshot is named"] = bad(snapshot=".gpuperf/memory-t.pickle")
    said["pending runs can be accepted"] = bad(more=pending)
    said["a broken budget cannot"] = bad(WAITS_MORE, LEAN, more=pending)
    said["nor next to what has no baseline"] = bad(WAITS_MORE, LEAN, new, more=pending)
    said["a metric of another version has no explanation"] = bad(
        replace(WAITS_MORE, metric="novel")
    )
    return said


def parts_of_what_passed() -> Cases:
    base = a_page(GOOD)

    def good(*verdicts: Verdict, more: Any = None, **fields: Any) -> list[str]:
        fields.setdefault("verdicts", verdicts or GOOD.verdicts)
        return differing(base, replace(GOOD, **fields), **(more or {}))

    many = tuple(replace(ITEM, per_step=n) for n in range(1, 16))
    grown = replace(LEAN, outcome=Outcome.REGRESSED, now=131 * MIB, because="grown")
    said: Cases = {"what passed": base.texts}
    said["of it the rule says it all"] = good(
        replace(SLOWER, outcome=Outcome.PASS, because="about the same")
    )
    said["a finding has its line of source"] = good(
        findings=(ITEM,), more={"lines": {("train.py", 3): "loss.item()  # < 1"}}
    )
    said["many findings are cut and counted"] = good(findings=many)
    said["what failed leads the row and the pictures"] = good(
        GOOD.verdicts[0],
        grown,
        findings=(PEAK,),
        more={"pending": {GOOD.test: entry(10.0, 10.1)}},
    )
    return said


def parts_of_a_run() -> Cases:
    def head(*calls: TestVerdict, **fields: Any) -> list[str]:
        changed = {"head": replace(HEAD, **fields)}
        return differing(a_page(*calls), *calls, **changed)

    def other(*calls: TestVerdict, **fields: Any) -> list[str]:
        record = a_record_of(*calls)._replace(**fields)
        return differing(a_page(GOOD), GOOD, others={"t.py::t": record})

    strict = an_outcome(Outcome.INCONCLUSIVE, "t.py::t")
    ran = {
        "a": Record(Ending.FAILED, headline="\x1b[31mAssertionError\x1b[0m: loss"),
        "b": Record(Ending.SKIPPED),
    }
    better = (Outcome.NOT_CHECKED, Outcome.PASS, Outcome.IMPROVED, Outcome.INCONCLUSIVE)
    found = contents(
        *(an_outcome(outcome, outcome.value) for outcome in better),
        an_outcome(Outcome.REGRESSED, "a little slower", now=11.0),
        an_outcome(Outcome.REGRESSED, "much slower", now=15.0),
        others={"died": Record(Ending.DIED, headline="killed by signal 9")},
    )
    said: Cases = {
        f"on {hardware}": a_page(GOOD, head=replace(HEAD, hardware=hardware)).texts[:1]
        for hardware in (SIMULATED, CPU, SCRIPTED)
    }
    said["failures first, then the worst outcomes, then the largest excess"] = [
        section.key for section in found.sections
    ]
    said["a test that a setting failed"] = other(
        strict, ending=Ending.FAILED, headline="inconclusive"
    )
    said["a call names its test"] = other(replace(GOOD, test="t.py::t#eval"))
    said["one that passed does not show the failure of another"] = other(
        replace(GOOD, test="t.py::t#warm"), replace(BAD, test="t.py::t#cold")
    )
    said["without a verdict it says how it ended"] = differing(
        a_page(GOOD), GOOD, others=ran
    )
    said["without tests"] = head(hardware=None, commit=None, exit_status=5)
    said["a run that did not finish names the missing tests"] = head(
        BAD, exit_status=None, selected=(BAD.test, "t.py::lost")
    )
    said["one that lost nothing has no objection"] = head(BAD, selected=(BAD.test,))
    said["its notes are above its tests"] = head(GOOD, notes=("40 tests are slower",))
    return said


def packed() -> str:
    """The words by which a page finds the tests that it has packed."""
    long = tuple(replace(BAD.verdicts[0], because="slow " * 9_000) for _ in range(2))
    calls = [replace(BAD, test=f"t.py::t[{n}]", verdicts=long) for n in range(5)]
    text = page_text(contents(*calls))
    (block,) = re.findall(r'id="bodies">([^<]*)<', text)
    found = json.loads(decompress(b64decode(block)))
    notes = re.findall(r"<noscript>.*?</noscript>", text)
    return text_of([*notes, *(words for _, words in found)])


READ: Final[Mapping[str, tuple[Callable[[str, str], object], str]]] = {
    "an empty file": (results_json.loads, " "),
    "no JSON": (results_json.loads, "{\n<"),
    "no object": (results_json.loads, "[]"),
    "a newer schema": (results_json.loads, '{"schema": 9}'),
    "no schema": (results_json.loads, "{}"),
    "no number": (results_json.loads, '{"schema": 1, "tests": {"t": [NaN]}}'),
    "no tests": (results_json.loads, '{"schema": 1, "tests": []}'),
}


def refusal(loads: Callable[[str, str], object], text: str) -> str:
    """What is said of a file with this *text*."""
    try:
        return repr(loads(text, "a.json"))
    except UsageError as error:
        return str(error)


def refusals() -> str:
    """What is said of files that cannot be read; ours are read as they were written."""
    written = results_without_secrets()
    assert results_json.dumps(results_json.loads(written, "a.json")) == written
    return text_of(f"{what}: {refusal(*file)}" for what, file in READ.items())


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "job-summary.md": lambda: markdown(a_whole_run()),
    "job-summary-small.md": small_summaries,
    "job-summary-shared.md": shared_summary,
    "annotations.txt": annotations,
    "junit-properties.txt": properties,
    "results.json": results_without_secrets,
    "export-pytest-benchmark.json": benchmark,
    "page.html": page,
    "page-failed.txt": lambda: listed(parts_of_a_test),
    "page-passed.txt": lambda: listed(parts_of_what_passed),
    "page-run.txt": lambda: listed(parts_of_a_run),
    "page-packed.txt": packed,
    **sheets(),
    "refused-files.txt": refusals,
}
