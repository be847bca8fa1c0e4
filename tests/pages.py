"""Runs as a page shows them, made up."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from typing import Any, Final

from builders import (
    MIB,
    a_finding,
    a_head,
    a_location,
    a_test,
    a_verdict,
    an_entry,
    some_evidence,
)

from pytest_gpuperf.model.baseline import Entry, StepSummary
from pytest_gpuperf.model.codec import encode_briefly
from pytest_gpuperf.model.environment import DeviceKind, Hardware
from pytest_gpuperf.model.finding import FindingKind, Location, MemoryCourse, Phase
from pytest_gpuperf.model.run import Ending, Record, Results
from pytest_gpuperf.model.verdict import Outcome, TestVerdict
from pytest_gpuperf.report.html.contents import Contents
from pytest_gpuperf.report.html.page import page_text
from pytest_gpuperf.report.judged_calls import judged_calls


HEAD: Final = a_head(commit="7a1d8c2f5e0b4936a7c1d2e3f405162738495a6b", exit_status=1)

EVIDENCE: Final = some_evidence(smallest_detectable=0.02, p_regressed=1e-6)

SLOWER: Final = a_verdict(
    "step_ms",
    Outcome.REGRESSED,
    12.0,
    10.0,
    because="20.0 % slower than the baseline, more than the tolerance of 1.0 %",
    limit=10.1,
    evidence=EVIDENCE,
)
LEAN: Final = a_verdict(
    "peak_allocated_bytes",
    Outcome.PASS,
    100 * MIB,
    100 * MIB,
    because="as much as the baseline",
    limit=101 * MIB,
)
WAITS: Final = a_verdict(
    "syncs", Outcome.OVER_BUDGET, 1, None, because="1 more than the budget", limit=0
)
UNKNOWN: Final = a_verdict(
    "launches",
    Outcome.NOT_CHECKED,
    None,
    None,
    because="only the simulated device counts",
)

ITEM: Final = a_finding(
    api="cudaStreamSynchronize",
    blocked_ms=0.5,
    location=a_location(3, "train.py", "step"),
    reason="the CPU reads one element",
    phase=Phase.FORWARD,
)
PEAK: Final = a_finding(
    FindingKind.PEAK,
    op="aten::mm",
    location=a_location(5, "train.py", "step"),
    metrics=("peak_allocated_bytes",),
    reason="activations 60.0 MiB, parameters 30.0 MiB, gradients 10.0 MiB",
    phase=Phase.BACKWARD,
    held_bytes=100 * MIB,
    held_for=(
        ("activations", 60 * MIB),
        ("parameters", 30 * MIB),
        ("gradients", 10 * MIB),
    ),
)

BAD: Final = a_test(
    SLOWER,
    LEAN,
    WAITS,
    UNKNOWN,
    findings=(ITEM, PEAK),
    runs=5,
    changed={"torch": ("2.6.0", "2.13.0"), "cudnn": ("", "9.1")},
    remarks=("the clock of the SMs was 1980 MHz",),
)
GOOD: Final = a_test(
    replace(SLOWER, outcome=Outcome.PASS, because="", now=10.0),
    LEAN,
    test="tests/test_train.py::test_eval",
)


def record(*calls: TestVerdict) -> Record:
    """What came of a test with these *calls*."""
    worst = min((call.outcome for call in calls), key=list(Outcome).index)
    return Record(
        ending=Ending.FAILED if worst.fails else Ending.PASSED,
        outcome=worst,
        headline=f"{calls[0].verdicts[0].metric} {worst.value}" if worst.fails else "",
        verdicts=tuple(encode_briefly(call) for call in calls),
    )


def contents(
    *verdicts: TestVerdict, others: dict[str, Record] | None = None, **more: Any
) -> Contents:
    """A run in which each of *verdicts* is that of a test, besides the *others*."""
    tests = {verdict.test: record(verdict) for verdict in verdicts}
    head = more.pop("head", HEAD)
    results = Results(head=head, tests={**tests, **(others or {})})
    sections = judged_calls(results, "results.json")
    return Contents(results=results, sections=sections, **more)


def entry(*step_ms: float) -> Entry:
    """Runs whose times lie at *step_ms*, a lower quartile each."""
    return an_entry(
        *step_ms,
        spread=0.01,
        exact={"peak_allocated_bytes": 100 * MIB},
        software={"torch": "2.6.0"},
        step=StepSummary(
            peak_bytes={"activations": 40 * MIB, "parameters": 30 * MIB},
        ),
    )


INVISIBLE: Final = {"script", "style"}


class Page(HTMLParser):
    """What a reader of HTML makes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.raw: list[str] = []
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag

    def handle_data(self, data: str) -> None:
        if self._inside in INVISIBLE:
            self.raw.append(data)
        elif data.strip():
            self.texts.append(" ".join(data.split()))

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    @property
    def text(self) -> str:
        return "|".join(["", *self.texts, ""])


def page(*verdicts: TestVerdict, **more: object) -> Page:
    """The page of a run in which each of *verdicts* is that of a test."""
    return Page(page_text(contents(*verdicts, **more)))


COURSE: Final = MemoryCourse(
    purposes=(
        "parameters",
        "optimizer state",
        "gradients",
        "activations",
        "other",
    ),
    kib=(
        (30 * 1024,),
        (20 * 1024,),
        tuple(max(0, min(n - 40, 40)) * 256 for n in range(100)),
        tuple(max(0, min(n, 40, 80 - n)) * 1024 for n in range(100)),
        tuple(2048 + n % 7 * 256 for n in range(100)),
    ),
    phases=(("forward", 1), ("backward", 41), ("optimizer", 82)),
    peak=41,
)


def full_contents() -> Contents:
    """A run of two tests with everything that can be known of one."""
    bad = replace(BAD, findings=(ITEM, replace(PEAK, course=COURSE)))
    return contents(
        bad,
        GOOD,
        stored={BAD.test: entry(*(9.9 + 0.02 * n for n in range(8)))},
        pending={BAD.test: entry(*(11.9 + 0.05 * n for n in range(5)))},
        lines={
            ("train.py", 2): "    loss = model(batch)",
            ("train.py", 3): "    total += loss.item()",
            ("train.py", 4): "    return total",
        },
    )


HOSTILE: Final = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</style></head><body onload=alert(1)>",
    '" onmouseover="alert(1)',
    "' autofocus onfocus='alert(1)",
    "]]><!--",
    "-->",
    "<![CDATA[<svg onload=alert(1)>",
    "&lt;b&gt; &amp;",
    "\u2028\u2029\x00\x1b]8;;http://evil\x07",
    "\ud800",
    "javascript:alert(1)//",
    "`${alert(1)}`",
    "a|b\nc\td",
    "🔥" * 40,
    "x" * 5000,
]
"""What somebody may call a test, a file or a reason."""


def hostile_page(evil: str) -> Contents:
    """A run in which *evil* stands wherever somebody else chose the text."""
    place = Location(file=evil, line=3, function=evil)
    finding = replace(
        ITEM,
        op=evil,
        api=evil,
        location=place,
        innermost=place,
        forward=place,
        reason=evil,
        allowed=evil,
    )
    verdict = a_test(
        replace(SLOWER, because=evil),
        replace(SLOWER, metric=evil, evidence=None),
        test=f"t.py::t[{evil}]",
        findings=(finding, replace(PEAK, held_for=((evil, 3), ("other", 5)))),
        changed={evil: (evil, evil)},
        remarks=(evil,),
        snapshot=evil,
    )
    head = replace(
        HEAD,
        version=evil,
        commit=evil,
        hardware=Hardware(kind=DeviceKind.CUDA, name=evil),
        notes=(evil,),
        selected=(evil,),
    )
    return contents(
        verdict,
        others={f"t.py::u[{evil}]": Record(Ending.FAILED, headline=evil)},
        head=head,
        stored={verdict.test: entry(10.0)},
        pending={verdict.test: entry(12.0)},
        lines={(evil, 3): evil},
    )
