"""What a run leaves for others to read: pages, reports of CI services, files."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, Final
from zlib import decompress

from builders import (
    MIB,
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
from golden_suite import SIDES, VERDICTS
from pages import BAD, COURSE, GOOD, ITEM, PEAK, contents

from pytest_gpuperf.errors import UsageError
from pytest_gpuperf.model.baseline import StepSummary
from pytest_gpuperf.model.measurement import Samples
from pytest_gpuperf.model.results import Record, Results
from pytest_gpuperf.model.run import Ending
from pytest_gpuperf.report import pytest_benchmark
from pytest_gpuperf.report.ci.github import commands, line_address, outputs
from pytest_gpuperf.report.ci.job_summary import run_markdown
from pytest_gpuperf.report.ci.worst_findings import Sources, remarks
from pytest_gpuperf.report.command import at_root
from pytest_gpuperf.report.html.page import page_text
from pytest_gpuperf.report.json import results as results_json
from pytest_gpuperf.report.measured_calls import (
    MeasuredCall,
    measured_calls,
    properties_of,
)
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
        remarks(found),
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


def annotations() -> str:
    found = a_whole_run()
    lines = commands(remarks(found), SOURCES, at_root(found.head.hardware))
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
        findings=(ITEM, replace(PEAK, course=COURSE)),
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
        lines={
            ("train.py", 2): "    loss = model(batch)",
            ("train.py", 3): "    total += loss.item()",
            ("train.py", 4): "    return total",
        },
    )
    return outlined(page_text(found))


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
    "annotations.txt": annotations,
    "junit-properties.txt": properties,
    "results.json": results_without_secrets,
    "export-pytest-benchmark.json": benchmark,
    "page.html": page,
    "page-packed.txt": packed,
    "refused-files.txt": refusals,
}
