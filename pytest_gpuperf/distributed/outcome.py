"""One result of a test out of what became of its ranks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Final

from ..devices.process_time import UsedTime
from ..model.codec import decode
from ..model.run import Ending, TestResult
from ..sharing.processes import death
from .processes import RankEnd


OWN_FOLDER: Final = str(Path(__file__).parents[1])

FRAME: Final = re.compile(
    r'  File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<name>.+)'
)

ENTRY: Final = re.compile(r"(?P<where>[^\s>:][^:]*:\d+):(?P<name> in \S+)?(?: ?\w*)")
"""Entries of pytest's traceback: ``test_it.py:12: ValueError``, ``it.py:3: in step``."""

RUNNERS: Final = re.compile(r"[/\\](_pytest|pluggy|pytest)[/\\]")

MOST_FRAMES: Final = 12

UNKNOWN_END: Final = RankEnd(said=(), code=None, ended_at=0.0, stack="", output="")
"""The end of a rank that reported nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _RankReport:
    """What one rank reported: its newest result, and when it failed, if ever."""

    number: int
    end: RankEnd
    result: TestResult | None
    failed_at: float

    @property
    def has_died(self) -> bool:
        return bool(self.end.code) and self.result is None


def result_of(test: str, ends: Sequence[RankEnd], timeout_s: float) -> TestResult:
    """Say how *test* ended, by the *ends* of its ranks.

    If all ended alike it is rank 0's result. Otherwise the text says why the first one
    failed and where the others were. *timeout_s* is what they had.
    """
    reports = [_report(number, end) for number, end in enumerate(ends)]
    # The first failure is the cause: the peers of a rank that is gone fail as well, a
    # moment later.
    first = min(reports, key=lambda one: one.failed_at)
    if first.failed_at < inf:
        return _failure(test, first, reports)
    if any(one.end.code is None for one in reports):
        return _hang(test, reports, timeout_s)
    return _together(test, reports)


def result_of_launched(
    test: str, ends: Sequence[RankEnd | None], timeout_s: float
) -> TestResult:
    """Say how *test* ended if each rank has a pytest; some may have no end."""
    lost = [str(number) for number, end in enumerate(ends) if end is None]
    result = result_of(test, [end or UNKNOWN_END for end in ends], timeout_s)
    if not lost:
        return result
    text = (
        f"no word came of how rank {', '.join(lost)} ended: did its pytest die, or is "
        f"its machine cut off?\n\n{result.text}"
    )
    return replace(result, ending=Ending.DIED, text=text, headline="", calls=())


def _report(number: int, end: RankEnd) -> _RankReport:
    for message in end.said:
        if message.get("failed"):
            result = decode(TestResult, message["result"])
            return _RankReport(
                number=number, end=end, result=result, failed_at=message["at"]
            )
    results = [decode(TestResult, message["result"]) for message in end.said]
    return _RankReport(
        number=number,
        end=end,
        result=results[-1] if results else None,
        failed_at=end.ended_at if end.code else inf,
    )


def _together(test: str, reports: Sequence[_RankReport]) -> TestResult:
    """All have ended by themselves, and none of them failed."""
    results = [
        one.result or TestResult(test=test, ending=Ending.DIED) for one in reports
    ]
    first, *_ = results
    if len({result.ending for result in results}) > 1:
        did = ", ".join(f"rank {i} {r.ending.value}" for i, r in enumerate(results))
        text = f"the ranks of a test must end alike: {did}"
        return TestResult(test=test, ending=Ending.FAILED, text=text)
    others = enumerate(results[1:], start=1)
    sections = ((f"{t} (rank {i})", s) for i, r in others for t, s in r.sections)
    return replace(first, sections=(*first.sections, *sections))


def _failure(
    test: str, first: _RankReport, reports: Sequence[_RankReport]
) -> TestResult:
    name = f"rank {first.number} of {len(reports)}"
    peers = [line for one in reports if one is not first for line in _peer(one)]
    if first.has_died or first.result is None:
        text = "\n".join(_death(name, first.end))
        ending, headline = Ending.DIED, ""
    else:
        text = f"{name} failed first:\n\n{first.result.text}"
        ending, headline = Ending.FAILED, f"rank {first.number}: {_headline(first)}"
    return TestResult(
        test=test,
        ending=ending,
        text="\n".join((text, "", *peers)).rstrip(),
        headline=headline,
        sections=first.result.sections if first.result else (),
    )


def _headline(one: _RankReport) -> str:
    result = one.result
    first, *_ = (result.text.splitlines() if result else []) or ["it failed"]
    return (result.headline if result else "") or first


def _hang(test: str, reports: Sequence[_RankReport], timeout_s: float) -> TestResult:
    used = next((u for one in reports if (u := one.end.used)), None)
    used = used or UsedTime(wall_s=timeout_s)
    asked = "wait for what another never does" if used.idle else "loop for ever"
    text = (
        f"the {len(reports)} ranks gave no result and were killed: they {used}; does one of "
        f"them {asked}? If they only need longer, raise timeout_s of gpuperf.ranks"
    )
    lines = [line for one in reports for line in _peer(one)]
    text = "\n".join((text, "", *lines))
    return TestResult(test=test, ending=Ending.DIED, text=text)


def _peer(one: _RankReport) -> Iterator[str]:
    if one.failed_at < inf and not one.has_died:
        yield f"rank {one.number} failed then: {_headline(one)}"
        yield from _entries(one.result.text if one.result else "")
    elif one.end.code:
        yield from _death(f"rank {one.number}", one.end)
    elif one.end.code == 0:
        yield f"rank {one.number} had ended"
    else:
        frames = list(_frames(one.end.stack))
        yield f"rank {one.number} was at" + ("" if frames else " an unknown place")
        yield from frames


def _death(name: str, end: RankEnd) -> Iterator[str]:
    """Describe a death by the stack that it left, else by the last printed lines."""
    frames = list(_frames(end.stack))
    words = end.output.splitlines()[:1] if frames else end.output.splitlines()
    yield f"{name} {death(end.code or 0)}: " + "\n".join(words)
    yield from frames


def _entries(traceback: str) -> Iterator[str]:
    """Yield the places that a *traceback* of pytest names, innermost first."""
    places = [found for found in map(ENTRY.fullmatch, traceback.splitlines()) if found]
    for place in reversed(places[-MOST_FRAMES:]):
        yield f"  {place['where']}{place['name'] or ''}"


def _frames(stack: str) -> Iterator[str]:
    """Yield the frames of a test that faulthandler wrote, innermost first.

    They end where those of pytest begin, in the thread that has such frames.
    """
    for thread in stack.split("\n\n"):
        frames = [found for found in map(FRAME.fullmatch, thread.splitlines()) if found]
        runner = (i for i, f in enumerate(frames) if RUNNERS.search(f["file"]))
        last = next(runner, None)
        if last is None:
            continue
        shown = [f for f in frames[:last] if not f["file"].startswith(OWN_FOLDER)]
        for frame in shown[:MOST_FRAMES]:
            yield f"  {frame['file']}:{frame['line']} in {frame['name']}"
        return
