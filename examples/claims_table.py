"""The table of ``--gpuperf-claims``: what this run says of each claim that it showed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest
from claims import Claim, ClaimsError, Gate, read_claims


CLAIM: Final = "claim"
SHOWN: Final = "shown"
PREDICTED: Final = "predicted"
VERDICTS: Final = "gpuperf"
"""Properties of a report: the claims of a test, what it counted and what it foretold by
itself, and what the plugin found, as JSON. The plugin's mark has the last one's name, too."""

WIDTHS: Final = (22, 19, 19, 13)
"""Of all columns but the last."""

DEVICES: Final = {"flops": "simulated", "peak_allocated_bytes": "cuda"}
"""The device of a call, by the first of these metrics that it has."""

METRICS: Final[Mapping[Gate, tuple[str, ...]]] = {
    Gate.SYNCS: ("syncs",),
    Gate.COPIES: ("pageable_copies",),
    Gate.COPIED_BYTES: ("h2d_bytes",),
    Gate.MEMORY: ("peak_allocated_bytes",),
    Gate.RESERVED: ("peak_reserved_bytes",),
    Gate.OPERATIONS: ("launches",),
    Gate.COLLECTIVES: ("collectives",),
    Gate.LOADER_WAIT: ("loader_wait_pct",),
    Gate.BREAKS: ("graph_breaks",),
    Gate.BUSY: ("busy_pct",),
}
"""By what an example is judged, where the plugin measures that."""

WORDS: Final = {
    "pageable_copies": "copies",
    "syncs": "syncs",
    "launches": "launches",
    "collectives": "collectives",
    "loader_wait_pct": "%",
    "busy_pct": "%",
    "graph_breaks": "breaks",
}
MIB: Final = 2**20
FOUR_DIGITS: Final = 9999.5

INCONCLUSIVE: Final = "inconclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table; an empty cell is shown as a dash."""

    claim: str
    measured: str = ""
    predicted: str = ""
    verdict: str = ""
    device: str = ""


HEADINGS: Final = Row(
    claim="claim",
    measured="measured here",
    predicted="predicted",
    verdict="verdict",
    device="device",
)


@pytest.hookimpl(wrapper=True)
def remember_claims(
    item: pytest.Item,
    call: pytest.CallInfo[None],  # noqa: ARG001, of the hook
) -> Iterator[None]:
    """Let a report say which claims its test shows: it may come from a worker."""
    report = yield
    marks = list(item.iter_markers(CLAIM))
    if marks:
        found = ", ".join(getattr(item, "verdicts", ()))
        report.user_properties.append((VERDICTS, f"[{found}]"))
    for mark in marks:
        text = json.dumps({"id": mark.args[0], **mark.kwargs})
        report.user_properties.append((CLAIM, text))
    return report


class ClaimsTable:
    """Collects the reports of tests that show a claim, and prints the table at the end.

    The verdicts come with the reports: results.json is written when pytest has ended.
    """

    def __init__(self, config: pytest.Config) -> None:
        if not config.getoption("--gpuperf", default=False):
            msg = "--gpuperf-claims: found no --gpuperf, which measures; add it"
            raise pytest.UsageError(msg)
        try:
            self._claims = read_claims()
        except ClaimsError as error:
            raise pytest.UsageError(str(error)) from None
        self._rows: list[Row] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.passed:
            return
        for name, text in report.user_properties:
            if name == CLAIM:
                mark = json.loads(text)
                self._rows.append(row_of(self._shown_by(mark), report))

    def _shown_by(self, mark: Mapping[str, Any]) -> Claim:
        """Return the row, with the numbers and the gate of one rung where *mark* has some."""
        own = {key: value for key, value in mark.items() if key not in {"id", "gate"}}
        if "gate" in mark:
            own["gates"] = (Gate(mark["gate"]),)
        return replace(self._claims[mark["id"]], **own)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("claims")
        for line in lines_of(self._rows):
            terminalreporter.write_line(line)


def row_of(claim: Claim, report: pytest.TestReport) -> Row:
    """Say of *claim* what one test found."""
    properties = dict(report.user_properties)
    calls = json.loads(properties.get(VERDICTS, "[]"))
    device = device_of(calls) if _is_measured(report) or report.skipped else "host"
    found = properties.get(SHOWN) or _counted(claim, calls)
    foretold = properties.get(PREDICTED, "")
    if device == "simulated":
        found, foretold = "", foretold or found
    return Row(
        claim=f"{claim.id} {claim.numbers}".rstrip(),
        measured=found,
        predicted=foretold,
        verdict=_verdict(report, calls),
        device=device,
    )


def _verdict(report: pytest.TestReport, calls: Sequence[Mapping[str, Any]]) -> str:
    inconclusive = any(
        verdict["outcome"] == INCONCLUSIVE
        for call in calls
        for verdict in call["verdicts"]
    )
    return INCONCLUSIVE if report.passed and inconclusive else report.outcome


def _is_measured(report: pytest.TestReport) -> bool:
    """Whether the plugin ran its test: it marks each that takes its fixture."""
    return VERDICTS in report.keywords


def device_of(calls: Sequence[Mapping[str, Any]]) -> str:
    """Name the device by its metrics: the CPU, a clock, has none of them."""
    named = {name for call in calls for name in _numbers_of(call)[1]}
    of_clock = "cpu" if named else ""
    return next(
        (device for metric, device in DEVICES.items() if metric in named), of_clock
    )


def _numbers_of(
    call: Mapping[str, Any],
) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Return the numbers before and after by metric: the same ones for a single step."""
    sides = call.get("sides")
    if sides:
        return sides["before"], sides["after"]
    now = {
        verdict["metric"]: verdict["now"]
        for verdict in call["verdicts"]
        if verdict.get("now") is not None
    }
    return now, now


def _counted(claim: Claim, calls: Sequence[Mapping[str, Any]]) -> str:
    """Write ``1 -> 0 syncs`` of the first gate that was measured."""
    if not calls:
        return ""
    first = next((call for call in calls if call.get("sides")), calls[0])
    before, after = _numbers_of(first)[0], _numbers_of(calls[-1])[1]
    for gate in claim.gates:
        if gate is Gate.TIME and (speed := _speed(calls)):
            return speed
        for metric in METRICS.get(gate, ()):
            if metric in before and metric in after:
                return written(metric, before[metric], after[metric])
    return ""


def _speed(calls: Sequence[Mapping[str, Any]]) -> str:
    """Write how many times as fast a step became where that was judged."""
    found = (
        verdict["now"]
        for call in calls
        for verdict in call["verdicts"]
        if verdict["metric"] == "speedup" and verdict.get("now") is not None
    )
    return next((f"{ratio:.3g} x as fast" for ratio in found), "")


def written(metric: str, before: float, after: float) -> str:
    """Write both numbers with their unit, or the one if they are the same."""
    word, size = WORDS.get(metric, "MiB"), 1 if metric in WORDS else MIB
    both = dict.fromkeys(_short(value / size) for value in (before, after))
    return f"{' -> '.join(both)} {word}"


def _short(value: float) -> str:
    """Keep four digits, and all of those before the point."""
    return f"{value:.4g}" if value < FOUR_DIGITS else f"{value:.0f}"


def lines_of(rows: Iterable[Row]) -> Iterator[str]:
    """Lay out a heading and the rows, each once."""
    for row in dict.fromkeys((HEADINGS, *rows)):
        *cells, last = (row.claim, row.measured, row.predicted, row.verdict, row.device)
        laid = (
            f"{cell or '-':<{w - 1}} " for cell, w in zip(cells, WIDTHS, strict=True)
        )
        yield "".join(laid) + (last or "-")
